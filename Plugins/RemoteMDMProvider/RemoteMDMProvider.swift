public import CertificateProviding
import CertificateTLSCore
import FoundationEssentials
import Logging
import RemoteMDMParameters
import ServerTransport
import Synchronization

/// An identity that a device-management server issues.
///
/// ``getCertificate(_:)`` makes a key, asks the server for a certificate, verifies what comes back and seals both into
/// the identity store. Where there is an identity already, it is renewed with a new key, and stays until the new one
/// has worked.
public final class RemoteMDMProvider: CertificateProvider {
    public static let id = RemoteMDMParameters.id
    public static let descriptor = RemoteMDMParameters.descriptor { RemoteMDMProvider(environment: $0) }
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    let retryPolicy: RetryPolicy
    private let state = Mutex<(EnrolmentSettings, IdentityKeys)?>(nil)

    public convenience init(environment: ProviderEnvironment) {
        self.init(environment: environment, retryPolicy: RetryPolicy())
    }

    init(environment: ProviderEnvironment, retryPolicy: RetryPolicy) {
        self.environment = environment
        self.retryPolicy = retryPolicy
    }

    public func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: RemoteMDMParameters.documented, provider: id)
        let settings = try EnrolmentSettings(parameters, provider: id)
        let tokens = TokenHome(settings.token, environment.makeProvider)
        let keys = IdentityKeys(tokens: tokens, executor: environment.executor)
        state.withLock { $0 = (settings, keys) }
    }

    /// Enrols, or resumes an enrolment that was begun, with the same key. Waits for the server for at most `timeout`,
    /// over all connections and requests together, and as long again for a decision that it has not made. What a person
    /// takes for an answer, and a token for a key, comes on top.
    ///
    /// - Throws: `pending` where the server has not decided: ask again later. `rejected` where it refuses,
    ///   `unavailable` where it does not answer, `timedOut` where it does not in time, `protocolError` where what it
    ///   answers must not be used, `operationNotAllowed` while another process is enrolling.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            let (settings, keys) = try configured()
            return try await Enrolment(settings, keys, environment, interaction, retryPolicy).run()
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the identity in the store. Where its key is in a token, blocks for that, and throws what looking for it
    /// meets; `interactionRequired` where somebody would have to be asked for the PIN.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            let (settings, keys) = try configured()
            guard let entry = try environment.storage.entry(named: settings.entryName) else { return nil }
            guard let kept = KeptKey(entry) else {
                throw CertificateProviderError(
                    .storeReadFailed, "The stored identity has no key; delete it and fetch it anew.")
            }
            return try Self.identity(entry, try keys.keyAtHand(kept))
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Forgets certificate and key, a request that is pending, and the authorities that were confirmed or learnt; keys
    /// in a token are destroyed first, for which nobody is asked for a PIN. Revokes nothing: the server is not told.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let (settings, keys) = try configured()
            guard let claim = try environment.storage.leaseRecord(named: settings.recordName) else {
                throw CertificateProviderError(
                    .operationNotAllowed, "A process is enrolling with \(settings.server.authority); wait for it.")
            }
            defer { claim.isUnsettled = false }
            for uri in try keysInTokens() {
                do throws(CertificateProviderError) {
                    try keys.tokens.destroyer(ofKey: uri).deleteStoredCertificate()
                } catch {
                    // A token that is configured no more may be lost, and must not keep what is here for ever.
                    if keys.tokens.isConfigured(forKey: uri) { throw error }
                    environment.logger.warning(
                        "a key is left in a token that cannot be used",
                        metadata: ["key": "\(uri)", "reason": "\(error)"])
                }
            }
            try environment.storage.updateRecord(named: settings.recordName) { _ in SecretBytes(copying: []) }
            try AuthorityTrust.forget(settings, in: environment.storage)
            try environment.storage.removeEntry(named: settings.entryName)
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Closes what is open of the tokens that its keys are in.
    public func shutdown() async { await state.withLock { $0 }?.1.tokens.shutdown() }

    /// The URIs of the keys in tokens that this host remembers.
    private func keysInTokens() throws(CertificateProviderError) -> [String] {
        let (settings, _) = try configured()
        var keys: [KeptKey?] = []
        // What cannot be read names no key, and is to be deleted all the same.
        if let entry = try? environment.storage.entry(named: settings.entryName) { keys.append(KeptKey(entry)) }
        if let record = try? environment.storage.record(named: settings.recordName),
            let pending = try? PendingEnrolment(record)
        {
            keys += [pending.key, pending.replaced]
        }
        var uris: [String] = []
        for uri in keys.compactMap({ $0?.tokenURI }) where !uris.contains(uri) { uris.append(uri) }
        return uris
    }

    func settings() throws(CertificateProviderError) -> EnrolmentSettings { try configured().0 }

    private func configured() throws(CertificateProviderError) -> (EnrolmentSettings, IdentityKeys) {
        guard let configured = state.withLock({ $0 }) else {
            throw CertificateProviderError(
                .configurationInvalid, "The provider '\(id)' has no parameters yet; set 'protocol' and 'url'.",
                provider: id)
        }
        return configured
    }

    static func identity(
        _ entry: StoredIdentity, _ key: any IdentityKey
    ) throws(CertificateProviderError) -> Identity {
        try Identity(
            certificateChain: entry.certificateChain, key: key,
            provenance: .init(provider: id, source: entry.attributes["server"]))
    }
}

extension EnrolmentSettings {
    var recordName: String { "enrolment-\(entryName)" }
}

extension RemoteMDMProvider: DeletionAnnouncing {
    public var deletions: (any DeletionAnnouncing)? { self }

    /// Returns what a deletion will destroy in tokens.
    public func announcedDeletions() async throws(CertificateProviderError) -> [String] {
        do throws(CertificateProviderError) {
            var sentences: [String] = []
            for uri in try keysInTokens() {
                let home = try configured().1.tokens.destroyer(ofKey: uri)
                sentences += try await home.deletions?.announcedDeletions() ?? []
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
            let (settings, keys) = try configured()
            try await Enrolment(settings, keys, environment, interaction, retryPolicy).discardReplaced(
                by: identity.certificate)
        } catch {
            throw error.attributed(to: id)
        }
    }
}
