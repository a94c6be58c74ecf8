public import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging
public import ProviderTransport

/// A provider of identities that a device-management server issues, over EST (RFC 7030) or SCEP (RFC 8894).
///
/// ``getCertificate(_:)`` makes a key, requests a certificate, verifies the answer and seals both into the identity
/// store. An existing identity is renewed with a new key, and stays until the new identity has signed a probe.
public final class RemoteMDMProvider: CertificateProvider {
    /// The provider's identifier, `mdm`.
    public static let id = ProviderID("mdm")
    /// The entry of the provider for a ``/CertificateProviding/ProviderRegistry``.
    public static let descriptor = descriptor(transport: Transport())

    /// Returns the entry of the provider for a ``/CertificateProviding/ProviderRegistry``, with the transport for its connections: a
    /// service's own event loops, or a test's network.
    public static func descriptor(transport: Transport) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Device management",
            summary: "Requests an identity from a server, over EST (RFC 7030) or SCEP (RFC 8894).",
            parameters: EnrolmentParameter.all
        ) { environment, parameters throws(CertificateProviderError) in
            try RemoteMDMProvider(environment, parameters, transport)
        }
    }
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    let transport: Transport
    let settings: EnrolmentSettings
    let keys: EnrolmentKeys
    private let enrolment = SharedCall<Identity>()

    /// Creates a provider. Neither the server nor a token is contacted.
    ///
    /// - Parameter transport: The network, and the delays between attempts.
    /// - Throws: `unsupportedParameter` and `configurationInvalid`, which name the parameter; `unsupportedAlgorithm`
    ///   for a key that the protocol cannot use.
    public convenience init(
        environment: ProviderEnvironment, parameters: ProviderParameters, transport: Transport = Transport()
    ) throws(CertificateProviderError) {
        try self.init(environment, try Self.descriptor.check(parameters, environment), transport)
    }

    private init(
        _ environment: ProviderEnvironment, _ parameters: Parameters, _ transport: Transport
    ) throws(CertificateProviderError) {
        self.environment = environment
        self.transport = transport
        do throws(CertificateProviderError) { settings = try EnrolmentSettings(parameters) } catch {
            throw error.attributed(to: Self.id)
        }
        keys = EnrolmentKeys(parameters, environment)
    }

    /// Enrols, or resumes an interrupted enrolment with the same key. Concurrent calls share one enrolment, which asks the user of
    /// the first one.
    ///
    /// Waits for the server for at most `timeout`, over all connections and requests together, and as long again while
    /// the request is pending. The time that the user takes for an answer, and a token for making a key, is not
    /// counted.
    ///
    /// - Throws: `pending` if the server has not decided: ask again later. `rejected` if it refuses, `unavailable` if
    ///   it does not answer, `timedOut` if it does not answer in time, `protocolError` if its answer is invalid or not
    ///   trusted, `operationNotAllowed` while another process is enrolling.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            return try await enrolment.run { [self] () async throws(CertificateProviderError) in
                try await Enrolment(settings, keys, environment, interaction, transport).run()
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the identity in the store; `nil` if there is none. Blocks on the token if the key is in one.
    ///
    /// - Throws: The errors of the store and of the token; `interactionRequired` if the user would have to be asked
    ///   for the PIN.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            guard let entry = try environment.storage.entry(named: settings.entryName) else { return nil }
            guard let kept = OwnedKey(entry) else {
                throw CertificateProviderError(
                    .storeReadFailed, "The stored identity has no key; delete it and fetch it anew.")
            }
            return try Self.identity(entry, try keys.storedKey(kept))
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Deletes the certificate and the key, a pending request, and the authorities that were confirmed or learnt. Keys
    /// in a token are destroyed first, without asking for a PIN. An entry or record that is damaged names no key, and is
    /// deleted with a warning. The certificate is not revoked: the server is not contacted.
    ///
    /// - Throws: `operationNotAllowed` while another process is enrolling; the errors of the store and of the token.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let deleted: Void? = try environment.storage.withLease(of: settings.recordName, deleteAlone)
            if deleted == nil { throw settings.busy }
        } catch {
            throw error.attributed(to: id)
        }
    }

    private func deleteAlone() throws(CertificateProviderError) {
        for key in try ownedKeys(warns: true) {
            do throws(CertificateProviderError) {
                try keys.store(of: key).destroyStored(key)
            } catch {
                // A token that is no longer configured may be lost, and must not block the deletion for ever.
                if keys.isConfigured(key) { throw error }
                environment.logger.warning(
                    "a key is left in a key store that cannot be used",
                    metadata: ["key": "\(key.uri)", "reason": "\(error)"])
            }
        }
        try environment.storage.removeRecord(named: settings.recordName)
        try AuthorityTrust.forget(settings, in: environment.storage)
        try environment.storage.removeEntry(named: settings.entryName)
    }

    /// Logs out of the tokens that hold the keys, and closes their sessions.
    public func shutdown() async {
        await keys.shutdown()
        await settings.clientCertificate?.shutdown()
    }

    /// Returns the keys in key stores that this host has written down.
    ///
    /// - Parameter warns: Whether a warning is logged for an entry or record that is damaged.
    private func ownedKeys(warns: Bool) throws(CertificateProviderError) -> [KeyReference] {
        var keys: [OwnedKey?] = []
        try environment.toleratingDamage(warns: warns) { () throws(CertificateProviderError) in
            guard let entry = try environment.storage.entry(named: settings.entryName) else { return }
            keys.append(OwnedKey(entry))
        }
        try environment.toleratingDamage(warns: warns) { () throws(CertificateProviderError) in
            guard let record = try environment.storage.record(named: settings.recordName) else { return }
            let pending = try PendingEnrolment(record)
            keys += [pending.key, pending.replaced]
        }
        var references: [KeyReference] = []
        for key in keys.compactMap({ $0?.reference })
        where !references.contains(where: { $0.publicKey == key.publicKey }) { references.append(key) }
        return references
    }

    static func identity(
        _ entry: StoredIdentity, _ key: any IdentityKey
    ) throws(CertificateProviderError) -> Identity {
        try Identity(
            certificateChain: entry.certificateChain, key: key, trust: entry.trust,
            provenance: .init(provider: id, source: entry.attributes["server"]))
    }
}

extension EnrolmentSettings {
    var recordName: String { "enrolment-\(entryName)" }

    /// The error while another process has the lease of the record.
    var busy: CertificateProviderError {
        CertificateProviderError(
            .operationNotAllowed, "Another process is enrolling with \(server.authority); wait until it has finished.",
            reason: .busy)
    }
}

extension RemoteMDMProvider: DeletionAnnouncing {
    public var deletions: (any DeletionAnnouncing)? { self }

    /// Returns a sentence for each object that ``deleteStoredCertificate()`` destroys in a token.
    public func announcedDeletions() async throws(CertificateProviderError) -> [String] {
        do throws(CertificateProviderError) {
            var sentences: [String] = []
            for key in try ownedKeys(warns: false) {
                sentences += try await keys.store(of: key).announceDestruction(of: key)
            }
            return sentences
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension RemoteMDMProvider: ReplacedIdentityDiscarding {
    public var replacement: (any ReplacedIdentityDiscarding)? { self }

    /// Destroys the key in a token that the stored identity has replaced, and the certificates for it.
    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            try await Enrolment(settings, keys, environment, interaction, transport).discardReplaced(
                by: identity.certificate)
        } catch {
            throw error.attributed(to: id)
        }
    }
}
