public import CertificateProviding
import FoundationEssentials

/// How the client authenticates to the server, in addition to its certificate.
public struct ServerCredentials: Sendable {
    enum Kind: Sendable {
        case none
        case password(user: String, SecretBytes)
        case bearer(SecretBytes)
        case tokens(any BearerTokenSource)
    }
    let kind: Kind
    /// Called before a request is sent with the password for the first time. Such a request is not repeated by itself.
    private(set) var beforeSendingPassword: (@Sendable () async throws(ProviderError) -> Void)? = nil

    init(kind: Kind) { self.kind = kind }

    /// No credentials.
    public static let none = ServerCredentials(kind: .none)

    /// HTTP Digest (RFC 7616) or Basic (RFC 7617), as the server demands. The password is sent only after the server's
    /// challenge, and by Basic only over TLS.
    public static func password(user: String, _ password: SecretBytes) -> ServerCredentials {
        ServerCredentials(kind: .password(user: user, password))
    }

    /// As ``password(user:_:)``, for a password that the server has not accepted yet: an answer that is lost may have been a refusal.
    ///
    /// - Parameter note: Called before a request is sent with it. If it throws, nothing is sent. After it, no request of the session
    ///   is repeated by itself.
    package static func password(
        user: String, _ password: SecretBytes,
        beforeSending note: @escaping @Sendable () async throws(ProviderError) -> Void
    ) -> ServerCredentials {
        var credentials = ServerCredentials.password(user: user, password)
        credentials.beforeSendingPassword = note
        return credentials
    }

    /// Bearer tokens (RFC 6750) from a source that replaces them, such as `AccessTokenSource` of the product `OAuth`.
    public static func tokens(_ source: any BearerTokenSource) -> ServerCredentials {
        ServerCredentials(kind: .tokens(source))
    }

    var isNone: Bool {
        if case .none = kind { true } else { false }
    }

    /// Whether they are sent with each request, without a challenge of the server.
    var isToken: Bool {
        switch kind {
        case .none, .password: false
        case .bearer, .tokens: true
        }
    }

    /// A bearer token (RFC 6750), sent with each request.
    ///
    /// - Parameter parameter: The name of the parameter that the token is from, for errors.
    /// - Throws: `configurationInvalid`, which does not quote the token, for one that is not a token68: it could change
    ///   the header fields of a request.
    public static func bearer(
        _ token: SecretBytes, from parameter: String
    ) throws(ProviderError) -> ServerCredentials {
        let isToken = token.withUnsafeBytes { bytes in
            let padding = bytes.reversed().prefix { $0 == UInt8(ascii: "=") }.count
            return padding < bytes.count && bytes.dropLast(padding).allSatisfy(\.isInToken)
        }
        guard isToken else {
            throw ProviderError(
                .configurationInvalid,
                "The value of '\(parameter)' is not a valid bearer token: expected letters, digits and -._~+/ with = "
                    + "at the end (RFC 6750, section 2.1). Nothing was sent; correct the value.")
        }
        return ServerCredentials(kind: .bearer(token))
    }

    /// Returns the secrets that are sent, and those that they are made from.
    ///
    /// - Parameter token: The current token of a source.
    func secrets(with token: SecretBytes?) -> [SecretBytes] {
        switch kind {
        case .none: []
        case .password(let user, let password):
            [password, SecretBytes(utf8: Self.basicCredentials(user: user, password: password))]
        case .bearer(let token): [token]
        case .tokens: token.map { [$0] } ?? []
        }
    }

    /// Returns the `Authorization` field of HTTP Basic. It must never be logged.
    static func basicField(user: String, password: SecretBytes) -> String {
        "Basic " + basicCredentials(user: user, password: password)
    }

    private static func basicCredentials(user: String, password: SecretBytes) -> String {
        password.withUnsafeBytes { Data("\(user):".utf8) + Data($0) }.base64EncodedString()
    }
}

extension UInt8 {
    /// Whether a `token68` (RFC 9110, section 11.2) may contain the character before its padding.
    var isInToken: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-._~+/".utf8.contains(self)
        }
    }
}

/// A source of bearer tokens (RFC 6750) that expire.
public protocol BearerTokenSource: Sendable {
    /// Returns a valid token: the current one, or a new one.
    ///
    /// - Parameter timeout: How long it may take.
    /// - Throws: `rejected` if no token is granted, `unavailable`, `timedOut`, `protocolError`, `userCancelled`.
    func token(within timeout: Duration) async throws(ProviderError) -> SecretBytes
    /// Returns a replacement for a token that the server has refused. Called once for a request.
    ///
    /// - Parameters:
    ///   - refused: The token that the server has answered with 401 (RFC 6750, section 3.1).
    ///   - timeout: How long it may take.
    /// - Throws: As ``token(within:)``; `rejected` also if the server refuses new tokens as well.
    func token(
        insteadOf refused: SecretBytes, within timeout: Duration
    ) async throws(ProviderError) -> SecretBytes
}
