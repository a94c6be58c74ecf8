public import CertificateProviding
import TestSupport
import Testing

@testable import IdentityStore

/// One authority for the whole target: making RSA keys takes long.
enum Samples {
    private static let authority = Result { try TestAuthority() }

    static func stored(_ name: String, kind: TestAuthority.KeyKind = .p256) throws -> StoredIdentity {
        try stored(try authority.get().issue(name, kind: kind))
    }

    static func identity(_ name: String, kind: TestAuthority.KeyKind = .p256) throws -> Identity {
        try authority.get().issue(name, kind: kind)
    }

    static func stored(_ identity: Identity) throws -> StoredIdentity {
        let key = try #require(identity.key.exporter)
        return StoredIdentity(
            certificateChain: identity.certificateChain, privateKey: try key.pkcs8Representation(),
            trust: TrustBundle([try authority.get().root, try authority.get().intermediate]),
            attributes: ["alias": identity.provenance.alias ?? "", "empty": "", "ünï": "a\u{1F600}\nb"])
    }
}

extension StoredIdentity: Equatable {
    public static func == (left: Self, right: Self) -> Bool {
        left.certificateChain == right.certificateChain && left.privateKey == right.privateKey
            && left.trust == right.trust && left.attributes == right.attributes
    }
}

/// A store in a directory of its own.
struct StoreFixture {
    let directory: TemporaryDirectory
    let disk = FaultyDisk()
    var path: String { directory["state"] }
    static let entryFile = "state/identities/test/entry"

    init() throws { directory = try TemporaryDirectory() }

    func store(keySource: (any SealingKeySource)? = nil) -> IdentityStore {
        IdentityStore(path: path, keySource: keySource, files: disk.fileSystem)
    }

    /// The storage of a process that has just started.
    func storage(_ provider: ProviderID = ProviderID("test")) -> any IdentityStorage { store().storage(for: provider) }

    var leftovers: [String] { directory.contents().filter { $0.contains(SafeDirectory.temporaryPrefix) } }
}

/// Returns the error that `body` throws, which must be the framework's own.
func error(_ body: () throws -> Void, _ location: SourceLocation = #_sourceLocation) throws -> ProviderError {
    do { try body() } catch { return try #require(error as? ProviderError, sourceLocation: location) }
    Issue.record("nothing was thrown", sourceLocation: location)
    throw ProviderError(.internal, "nothing was thrown")
}
