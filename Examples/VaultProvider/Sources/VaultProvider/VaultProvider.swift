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
            try VaultProvider(environment, parameters, transport)
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
        keys = OwnedKeys(parameters[VaultParameter.key], environment, record: settings.storageName)
    }

    /// Enrols, or renews with a new key.
    ///
    /// - Throws: `rejected` and `configurationInvalid` if the server refuses, `serverNotTrusted`, `unavailable`, `timedOut`,
    ///   `protocolError` for an answer that does not fit the request, `operationNotAllowed` while another process is
    ///   enrolling, and errors of the key store.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        let identity = try await environment.withLease(of: settings.storageName) {
            () throws(CertificateProviderError) in
            try await enrol(interaction)
        }
        guard let identity else { throw busy }
        return identity
    }

    /// Returns the identity in the identity store; `nil` if there is none.
    ///
    /// - Throws: The errors of both stores; `interactionRequired` if the user would have to be asked for a PIN.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        guard let entry = try environment.storage.entry(named: settings.storageName) else { return nil }
        guard let key = entry.key else {
            throw CertificateProviderError(.storeReadFailed, "The stored identity has no key; delete it.")
        }
        return try identity(entry.certificateChain, try keys.storedKey(key))
    }

    /// Destroys the keys and deletes the identity, without asking for a PIN. The certificate is not revoked.
    ///
    /// - Throws: `operationNotAllowed` while another process is enrolling, and the errors of both stores.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        let deleted: Void? = try environment.storage.withLease(of: settings.storageName) {
            () throws(CertificateProviderError) in
            try keys.destroyAllStored(and: readableKey(warns: true))
            try environment.storage.removeEntry(named: settings.storageName)
        }
        if deleted == nil { throw busy }
    }

    /// Logs out of the tokens that hold the keys.
    public func shutdown() async { await keys.shutdown() }

    /// Returns the key of the stored identity. An entry that is damaged names none, and is deleted all the same.
    private func readableKey(warns: Bool) throws(CertificateProviderError) -> KeyReference? {
        var key: KeyReference?
        try environment.toleratingDamage(warns: warns) { () throws(CertificateProviderError) in
            key = try environment.storage.entry(named: settings.storageName)?.key
        }
        return key
    }

    private var busy: CertificateProviderError {
        CertificateProviderError(
            .operationNotAllowed,
            "Another process is enrolling with \(settings.server.authority); wait until it has finished.",
            reason: .busy)
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
        try await keys.announceDestruction(and: readableKey(warns: false))
    }
}
