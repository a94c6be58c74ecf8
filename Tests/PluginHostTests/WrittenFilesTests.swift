import CertificateProviderTesting
import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// Private keys in the files of a directory, with a flaw.
private struct FileKeyStore: KeyStore {
    let directory: String
    /// Whether a URI is looked at before it becomes a path.
    let checksURI: Bool
    let properties = KeyStoreProperties(scheme: "files", location: .file, makes: [.p256: .signing])

    private func file(_ uri: String) -> String? {
        let name = uri.dropFirst("files:".count)
        return holds(keyURI: uri) && (!checksURI || !name.contains("/")) ? "\(directory)/\(name)" : nil
    }
    private func read(_ uri: String) -> SoftwareKey? {
        guard let file = file(uri), let bytes = try? Data(contentsOf: URL(filePath: file)) else { return nil }
        var key = try? SoftwareKey(pkcs8: SecretBytes(copying: bytes), location: location)
        key?.uri = uri
        return key
    }
    private var uris: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).map { "files:\($0)" }
    }

    func holds(keyURI: String) -> Bool { keyURI.hasPrefix("files:") }
    func check(_ interaction: any UserInteraction) async throws(ProviderError) {}
    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        var key = try SoftwareKey(new, location: location)
        key.uri = "files:\(UUID()).key"
        try await remember(key)
        let bytes = try key.pkcs8Representation().withUnsafeBytes { Data($0) }
        _ = FileManager.default.createFile(
            atPath: file(key.uri ?? "") ?? "", contents: bytes, attributes: [.posixPermissions: 0o600])
        return key
    }
    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? { storedKey(for: key) }
    func storedKey(for key: KeyReference) -> (any IdentityKey)? {
        (key.uri.isEmpty ? uris : [key.uri]).compactMap(read).first { $0.publicKey == key.publicKey }
    }
    func list() async throws(ProviderError) -> [KeyDescription] {
        uris.compactMap(read).map { KeyDescription(reference(to: $0), location: location) }
    }
    func destroy(_ key: KeyReference, _ interaction: any UserInteraction) async throws(ProviderError) -> Bool {
        destroyStored(key)
    }
    func destroyStored(_ key: KeyReference) -> Bool { file(key.uri).map { unlink($0) == 0 } ?? false }
}

@Suite struct WrittenFilesTests {
    @Test(
        "A key store whose URIs lead out of its directory fails the check of files, and no other",
        arguments: [true, false])
    func uris(checksURI: Bool) async throws {
        let outer = try TemporaryDirectory()
        let directory = outer["keys"]
        mkdir(directory, 0o700)
        let report = await KeyStoreConformance { FileKeyStore(directory: directory, checksURI: checksURI) }
            .noting(files: WrittenFiles([directory])).run()
        #expect(report.failures.map(\.name) == (checksURI ? [] : ["files"]), "\(report)")
        #expect(outer.contents() == ["keys"], "\(outer.contents())")
    }
}
