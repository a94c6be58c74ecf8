import CertificateProviding
import FoundationEssentials
import OAuth

/// How the client authenticates to the server, in addition to its certificate.
enum ServerCredentials: Sendable {
    case none
    /// HTTP Basic (RFC 7617) or Digest (RFC 7616), as the server demands.
    case password(user: String, SecretBytes)
    /// A bearer token (RFC 6750).
    case bearer(SecretBytes)
    /// Bearer tokens from an OAuth 2 server (RFC 6749).
    case oauth(AccessTokenSource)

    /// Whether they are sent with each request, without a challenge of the server.
    var isToken: Bool {
        switch self {
        case .none, .password: false
        case .bearer, .oauth: true
        }
    }

    /// Checks the syntax of a bearer token, which must not change the header fields of a request.
    ///
    /// - Throws: `configurationInvalid`, which does not quote the token.
    static func bearer(token: SecretBytes) throws(CertificateProviderError) -> ServerCredentials {
        let isToken = token.withUnsafeBytes { bytes in
            let padding = bytes.reversed().prefix { $0 == UInt8(ascii: "=") }.count
            return padding < bytes.count && bytes.dropLast(padding).allSatisfy(\.isInToken)
        }
        guard isToken else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The value of 'bearer-source' is not a valid bearer token: expected letters, digits and -._~+/ with = "
                    + "at the end (RFC 6750, section 2.1). Nothing was sent; correct the value.")
        }
        return .bearer(token)
    }

    /// Returns the secrets that are sent, and those that they are made from.
    ///
    /// - Parameter token: The current OAuth token.
    func secrets(with token: AccessToken?) -> [SecretBytes] {
        switch self {
        case .none: []
        case .password(let user, let password):
            [password, SecretBytes(utf8: Self.basicCredentials(user: user, password: password))]
        case .bearer(let token): [token]
        case .oauth: token.map { [$0.value] } ?? []
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
