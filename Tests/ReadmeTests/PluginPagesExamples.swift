// The Swift blocks of HandlingSecrets.md and KeyStores.md, so that they compile. PluginPagesTests compares both.
import CertificateProviding
import Foundation

/// An account with a password.
struct Account {
    static let passwordSource = Parameter.requiredSecretSource("password-source", summary: "Password of the account.")
    private let environment: ProviderEnvironment
    private let source: SecretSource

    init(_ environment: ProviderEnvironment, _ parameters: Parameters) {
        (self.environment, source) = (environment, parameters[Self.passwordSource])
    }

    /// For `getCertificate`: asks the user if the source is `prompt`.
    func password(_ interaction: any UserInteraction) async throws(ProviderError) -> SecretBytes {
        try await environment.secret(from: source, prompt: "Password of the account", interaction: interaction)
    }

    /// For `getStoredCertificate`: throws `interactionRequired` if the source is `prompt`. Blocks.
    func storedPassword() throws(ProviderError) -> SecretBytes { try environment.secrets.read(source) }
}

/// The key store `directory:`. Each private key is an unencrypted file in a directory: use an encrypted drive.
struct DirectoryKeyStore: KeyStore {
    private static let path = Parameter.string("path", .path, summary: "The directory, which must exist.")
    static let descriptor = KeyStoreDescriptor(
        scheme: "directory", id: ProviderID("directory"), displayName: "Directory",
        summary: "Private keys in the files of a directory.", parameters: [path.descriptor]
    ) { environment, place, parameters throws(ProviderError) in
        guard let path = parameters[path], place.pinSource == nil else {
            throw ProviderError(.configurationInvalid, "Set KeyStore.directory.path, and no PIN source.")
        }
        return DirectoryKeyStore(path: path, executor: environment.executor)
    }

    let path: String, executor: BlockingExecutor
    let properties = KeyStoreProperties(
        scheme: "directory", location: .file, makes: [.p256: .signing, .p384: .signing, .ed25519: .signing])

    func check(_ interaction: any UserInteraction) async throws(ProviderError) { _ = try await list() }
    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        var key = try SoftwareKey(new, location: location)
        key.uri = "directory:\(UUID())"
        try await remember(key)
        try await executor.run { [key] () throws(ProviderError) in try write(key) }
        return key
    }
    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await executor.run { () throws(ProviderError) in try storedKey(for: key) }
    }
    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        // A certificate names no URI: its key is found by the public key alone.
        let named = try key.uri.isEmpty ? uris() : [key.uri]
        let keys = try named.map { uri throws(ProviderError) in try read(uri) }
        return keys.compactMap(\.self).first { $0.publicKey == key.publicKey }
    }
    func list() async throws(ProviderError) -> [KeyDescription] {
        try await executor.run { () throws(ProviderError) in
            let keys = try uris().map { uri throws(ProviderError) in try read(uri) }
            return keys.compactMap(\.self).map { KeyDescription(reference(to: $0), location: location) }
        }
    }
    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        try await executor.run { () throws(ProviderError) in try destroyStored(key) }
    }
    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        guard let file = try file(key.uri) else { return false }
        let wasThere = access(file, F_OK) == 0
        for name in [file, file + ".new"] where unlink(name) != 0 && errno != ENOENT {
            throw ProviderError(.deleteFailed, "The file \(name) cannot be deleted; make \(path) writable.")
        }
        return wasThere
    }
    func holds(keyURI: String) -> Bool {
        keyURI.hasPrefix("directory:") && UUID(uuidString: String(keyURI.dropFirst(10))) != nil
    }

    private func uris() throws(ProviderError) -> [String] {
        let names = try? FileManager.default.contentsOfDirectory(atPath: path)
        guard let names else { throw ProviderError(.unavailable, "\(path) cannot be read; mount it.") }
        return names.map { "directory:\($0)" }
    }

    /// Returns the file of a key. An absent directory is an error, since its keys would count as destroyed.
    private func file(_ uri: String) throws(ProviderError) -> String? {
        if access(path, F_OK) != 0 { throw ProviderError(.unavailable, "\(path) is absent; mount it.") }
        return holds(keyURI: uri) ? "\(path)/\(uri.dropFirst(10))" : nil
    }
    private func write(_ key: SoftwareKey) throws(ProviderError) {
        guard let file = try file(key.uri ?? "") else { return }
        let (bytes, directory) = (try key.pkcs8Representation(), open(path, O_RDONLY | O_CLOEXEC))
        let new = open(file + ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        defer { for descriptor in [directory, new] { close(descriptor) } }
        guard bytes.withUnsafeBytes({ Glibc.write(new, $0.baseAddress, $0.count) }) == bytes.count,
            fsync(new) == 0, rename(file + ".new", file) == 0, fsync(directory) == 0
        else { throw ProviderError(.storeWriteFailed, "The file \(file) cannot be written; free the disk.") }
    }
    private func read(_ uri: String) throws(ProviderError) -> SoftwareKey? {
        guard let file = try file(uri), access(file, F_OK) == 0 else { return nil }
        var key = try SoftwareKey(pkcs8: SecretReader().read(.file(file)), location: location)
        key.uri = uri
        return key
    }
}
