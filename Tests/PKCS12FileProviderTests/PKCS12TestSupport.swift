import CertificateProviding
import PKCS12FileProvider
import TestSupport
import Testing

/// The shared samples of the tests of this target.
enum Samples {
    static let authority = Result { try TestAuthority() }

    static func identity(_ name: String, kind: TestAuthority.KeyKind = .p256) throws -> Identity {
        try authority.get().issue(name, kind: kind)
    }
}

extension Identity {
    /// The private key, in the clear.
    var pkcs8: [UInt8] {
        get throws {
            let key = try #require(key.exporter)
            return try key.pkcs8Representation().withUnsafeBytes { Array($0) }
        }
    }
}

extension PKCS12FileProvider {
    /// A provider for the file or directory at `path`.
    static func testing(
        _ path: String, password: String? = nil, alias: String? = nil, usage: IdentityUsage = .client,
        storage: any IdentityStorage = InMemoryStorage()
    ) throws -> PKCS12FileProvider {
        let variables = password.map { ["PASSWORD": $0] } ?? [:]
        var parameters = ProviderParameters(["path": .init(path), "usage": .init(usage.rawValue)])
        if password != nil { parameters["password-source"] = .init("env:PASSWORD") }
        if let alias { parameters["alias"] = .init(alias) }
        let provider = try PKCS12FileProvider(
            environment: .testing(storage: storage, variables: variables), parameters: parameters)
        return provider
    }

    /// Fetches, expecting it to work.
    func fetch() async throws -> Identity { try await getCertificate(NoUserInteraction()) }

    /// Fetches, expecting it not to.
    func failure(
        _ location: SourceLocation = #_sourceLocation
    ) async throws -> ProviderError {
        let result = await Result { () async throws(ProviderError) in
            try await getCertificate(NoUserInteraction())
        }
        return try #require(result.error, sourceLocation: location)
    }
}

/// A file in a directory of its own.
struct FileFixture {
    let directory: TemporaryDirectory
    var path: String { directory["identity.p12"] }

    init(_ bytes: [UInt8]) throws {
        directory = try TemporaryDirectory()
        try directory.write(bytes, to: "identity.p12")
    }
}
