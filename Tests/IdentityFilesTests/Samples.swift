import CertificateProviding
import TestSupport
import Testing

/// One authority for the whole target: making RSA keys takes long.
enum Samples {
    private static let authority = Result { try TestAuthority() }

    static func identity(_ name: String, kind: TestAuthority.KeyKind = .p256) throws -> Identity {
        try authority.get().issue(name, kind: kind)
    }
}

/// Returns the error that `body` throws, which must be the framework's own.
func error(_ body: () throws -> Void, _ location: SourceLocation = #_sourceLocation) throws -> ProviderError {
    try #require(throws: ProviderError.self, sourceLocation: location, performing: body)
}
