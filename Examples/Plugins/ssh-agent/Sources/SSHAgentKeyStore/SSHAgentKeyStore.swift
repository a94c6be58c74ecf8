public import CertificateProviding
import Glibc

/// The key store `ssh-agent:`: private keys in the memory of an `ssh-agent`.
///
/// The agent signs, and hands out no private key. It forgets all keys when it ends. It makes none itself: a new key is made
/// here, signs here while it is written down, and then goes to the agent. A process that ends at any moment so leaves no key
/// in the agent that was not written down.
///
/// Keys that other programs have added are listed and can be used too.
public struct SSHAgentKeyStore: KeyStore {
    private static let id = ProviderID("ssh-agent")
    private static let place = "\(id):"
    static let socket = Parameter.string(
        "socket", .path, defaultValue: "the value of SSH_AUTH_SOCK, which 'environment' must name",
        summary: "The agent's socket.")

    private let agent: Agent
    private let storage: any IdentityStorage
    private let executor: BlockingExecutor

    /// The entry of the key store for a plugin or a registry. The store has no PIN.
    public static var descriptor: KeyStoreDescriptor {
        KeyStoreDescriptor(
            scheme: id.rawValue, id: id, displayName: "ssh-agent",
            summary: "Private keys in the memory of an ssh-agent.", parameters: [socket.descriptor]
        ) { environment, location, parameters throws(ProviderError) in
            guard location.pinSource == nil else {
                throw ProviderError(
                    .configurationInvalid, "The key store 'ssh-agent:' has no PIN; remove the source of one.")
            }
            guard location.uri == place || SSHPublicKey.isURI(location.uri) else {
                throw ProviderError(
                    .configurationInvalid,
                    "The URI of the agent is 'ssh-agent:', and that of a key in it 'ssh-agent:SHA256:…', with the "
                        + "fingerprint that 'ssh-add -l' shows.")
            }
            return SSHAgentKeyStore(
                agent: Agent(path: try path(parameters)), storage: environment.storage, executor: environment.executor)
        }
    }

    private static func path(_ parameters: Parameters) throws(ProviderError) -> String {
        guard let path = parameters[socket] ?? getenv("SSH_AUTH_SOCK").map({ String(cString: $0) }), !path.isEmpty
        else {
            throw ProviderError(
                .configurationInvalid,
                "No ssh-agent is configured: set KeyStore.ssh-agent.socket to the path of its socket; or set "
                    + "KeyStore.ssh-agent.environment = SSH_AUTH_SOCK, and start this program where that variable is set."
            )
        }
        guard path.hasPrefix("/") else { throw parameters.invalid(socket, "must be an absolute path") }
        return path
    }

    /// No RSA: an agent signs with RSASSA-PKCS1-v1_5 only, which TLS 1.3 does not permit.
    public var properties: KeyStoreProperties {
        KeyStoreProperties(
            scheme: Self.id.rawValue, location: .plugin,
            makes: Dictionary(uniqueKeysWithValues: SSHKeyType.allCases.map { ($0.keyType, .signing) }))
    }

    public func holds(keyURI: String) -> Bool { SSHPublicKey.isURI(keyURI) }

    /// Asks the agent for its keys, which one that is locked or absent does not answer.
    public func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await executor.run { [agent] () throws(ProviderError) in _ = try agent.keys() }
    }

    public func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        let type = try properties.type(of: new)
        try await check(interaction)
        let made = try await executor.run { () throws(ProviderError) in try GeneratedKey(type) }
        let key = AgentKey(made.publicKey, in: agent, executor, signingWith: made.key)
        // Then only the agent signs.
        defer { key.forget() }
        try await remember(key)
        try await executor.run { [agent] () throws(ProviderError) in
            guard try agent.add(made, comment: new.label) else {
                throw ProviderError(
                    .rejected, "The ssh-agent at \(agent.path) refuses a key of type \(type); use another 'key-type'.")
            }
        }
        return key
    }

    public func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await executor.run { () throws(ProviderError) in try storedKey(for: key) }
    }

    public func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        guard let publicKey = SSHPublicKey(key.publicKey), try agent.key(publicKey) != nil else { return nil }
        return AgentKey(publicKey, in: agent, executor)
    }

    /// Returns the keys that the agent can sign with for TLS, also those that other programs have added.
    ///
    /// - Throws: `unavailable`, `timedOut`, `vaultLocked`.
    public func list() async throws(ProviderError) -> [KeyDescription] {
        try await executor.run { [agent, location] () throws(ProviderError) in
            try agent.keys().compactMap { key in
                guard let publicKey = SSHPublicKey(blob: key.blob) else { return nil }
                return KeyDescription(
                    KeyReference(publicKey: publicKey.info, uri: publicKey.uri), label: key.comment, location: location)
            }
        }
    }

    public var certificates: (any CertificateStoring)? { self }

    // MARK: - Destruction

    public func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        try await executor.run { () throws(ProviderError) in try destroyStored(key) }
    }

    /// Removes the key from the agent, also one that another program has added, and then its certificates.
    public func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        guard let publicKey = SSHPublicKey(key.publicKey) else { return false }
        let wasThere = try agent.remove(publicKey)
        try storage.removeEntry(named: Self.entryName(publicKey.uri))
        return wasThere
    }

    public func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] {
        try await executor.run { [agent] () throws(ProviderError) in
            guard let publicKey = SSHPublicKey(key.publicKey), let key = try agent.key(publicKey) else { return [] }
            return ["the key '\(key.comment)' (\(publicKey.info.displayName)) in the ssh-agent at \(agent.path)"]
        }
    }
}

extension SSHAgentKeyStore: CertificateStoring {
    /// Returns a key with the chain that ``storeChain(_:for:_:)`` has stored for it.
    ///
    /// - Parameter uri: The URI of the key.
    public func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        guard holds(keyURI: uri) else {
            throw ProviderError(
                .configurationInvalid,
                "Name the key in the ssh-agent: ssh-agent:SHA256:…, with the fingerprint that 'ssh-add -l' shows.")
        }
        let (chain, key) = try await executor.run { () throws(ProviderError) in
            guard let entry = try storage.entry(named: Self.entryName(uri)), let reference = entry.key else {
                throw ProviderError(
                    .notFound, "No certificate is stored for the key \(uri); enrol it first.")
            }
            guard let key = try storedKey(for: reference) else {
                throw ProviderError(
                    .notFound, "The key \(uri) is not in the ssh-agent any more; enrol a new one.")
            }
            return (entry.certificateChain, key)
        }
        let identity = try Identity(
            certificateChain: chain, key: key, provenance: .init(provider: Self.id, source: uri))
        try await identity.verifyPossession()
        return identity
    }

    /// Stores the chain in this host's identity store, in place of an earlier one for the key: agents have no certificates for
    /// TLS.
    public func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let identity = try Identity(certificateChain: chain, key: key, provenance: .init(provider: Self.id))
        try await identity.verifyPossession()
        let reference = reference(to: key)
        try await executor.run { [storage] () throws(ProviderError) in
            try storage.setEntry(
                StoredIdentity(certificateChain: chain, key: reference), named: Self.entryName(reference.uri))
        }
    }

    public func removeOtherCertificates(
        than leaf: X509Certificate, of key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        guard let name = SSHPublicKey(key.publicKey).map({ Self.entryName($0.uri) }) else { return }
        try await executor.run { [storage] () throws(ProviderError) in
            guard let entry = try storage.entry(named: name),
                entry.certificateChain.first?.derRepresentation != leaf.derRepresentation
            else { return }
            try storage.removeEntry(named: name)
        }
    }

    /// A fingerprint can have a `/`, and the name of an entry cannot.
    private static func entryName(_ uri: String) -> String { StoredIdentity.name(distinguishedBy: [uri]) }
}
