public import CertificateProviding
public import ProviderTransport

/// A provider of identities that the PKI engine of Vault or OpenBao issues.
///
/// ``getCertificate(_:)`` makes a key in the configured key store, has a certificate issued for it, and stores the identity.
/// Each renewal has a new key. The stored identity stays until the new one has signed a probe.
public final class VaultProvider: CertificateProvider {
    /// The provider's identifier, `vault`.
    public static let id = ProviderID("vault")
    /// The entry of the provider for a registry.
    public static let descriptor = descriptor(transport: Transport())

    /// Returns the entry of the provider for a registry, with the transport for its connections.
    public static func descriptor(transport: Transport) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Vault", summary: "Requests an identity from the PKI engine of Vault or OpenBao.",
            parameters: VaultParameter.all
        ) { environment, parameters throws(CertificateProviderError) in
            do throws(CertificateProviderError) { return try VaultProvider(environment, parameters, transport) } catch {
                throw error.attributed(to: id)
            }
        }
    }

    public var id: ProviderID { Self.id }
    let environment: ProviderEnvironment
    let transport: Transport
    let settings: VaultSettings
    let keys: OwnedKeys

    private init(
        _ environment: ProviderEnvironment, _ parameters: Parameters, _ transport: Transport
    ) throws(CertificateProviderError) {
        self.environment = environment
        self.transport = transport
        settings = try VaultSettings(parameters)
        keys = OwnedKeys(
            stores: KeyStoreSet(parameters[VaultParameter.key], and: environment.keyStores), environment: environment,
            recordName: settings.storageName)
    }

    /// Enrols, or renews with a new key.
    ///
    /// - Throws: `rejected` and `configurationInvalid` if the server refuses, `serverNotTrusted`, `unavailable`, `timedOut`,
    ///   `protocolError` for an answer that does not fit the request, `operationNotAllowed` while another process is
    ///   enrolling, and errors of the key store.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) { return try await enrol(interaction) } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the identity in the identity store; `nil` if there is none.
    ///
    /// - Throws: The errors of both stores; `interactionRequired` if the user would have to be asked for a PIN.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            guard let entry = try environment.storage.entry(named: settings.storageName) else { return nil }
            guard let key = entry.key else {
                throw CertificateProviderError(.storeReadFailed, "The stored identity has no key; delete it.")
            }
            return try identity(entry.certificateChain, try keys.storedKey(key))
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Destroys the keys and deletes the identity, without asking for a PIN. The certificate is not revoked.
    ///
    /// - Throws: `operationNotAllowed` while another process is enrolling, and the errors of both stores.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let lease = try lease()
            defer { withExtendedLifetime(lease) {} }
            for key in ownedKeys() { try keys.destroyStored(key) }
            // Also a damaged one.
            try environment.storage.updateRecord(named: settings.storageName) { _ in SecretBytes(copying: []) }
            try environment.storage.removeEntry(named: settings.storageName)
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Logs out of the tokens that hold the keys.
    public func shutdown() async { await keys.stores.shutdown() }

    /// Returns the keys to delete. An entry or a record that cannot be read names no key, and is deleted all the same.
    private func ownedKeys() -> [KeyReference] {
        let current = (try? environment.storage.entry(named: settings.storageName))?.key
        let others = (try? keys.all()) ?? []
        return others.filter { current.map($0.isSame) != true } + [current].compactMap(\.self)
    }

    /// Takes the right to change keys and identity. It ends with the value, or with the process.
    func lease() throws(CertificateProviderError) -> RecordLease {
        if let lease = try environment.storage.leaseRecord(named: settings.storageName) { return lease }
        throw CertificateProviderError(
            .operationNotAllowed,
            "Another process is enrolling with \(settings.server.authority); wait until it has finished.")
    }

    func identity(
        _ chain: [X509Certificate], _ key: any IdentityKey
    ) throws(CertificateProviderError) -> Identity {
        try Identity(certificateChain: chain, key: key, provenance: .init(provider: id, source: settings.server.origin))
    }
}

extension VaultProvider: DeletionAnnouncing {
    public var deletions: (any DeletionAnnouncing)? { self }

    /// Returns a sentence for each object that ``deleteStoredCertificate()`` destroys outside this host's store.
    public func announcedDeletions() async throws(CertificateProviderError) -> [String] {
        do throws(CertificateProviderError) {
            var sentences: [String] = []
            for key in ownedKeys() { sentences += try await keys.stores.store(of: key).announceDestruction(of: key) }
            return sentences
        } catch {
            throw error.attributed(to: id)
        }
    }
}
