import CertificateProviding
import FoundationEssentials
import OAuth

/// How a client proves to a server who it is, besides its certificate.
enum ServerCredentials: Sendable {
    case none
    /// By Basic (RFC 7617) or Digest, as the server wants.
    case password(user: String, SecretBytes)
    /// RFC 6750.
    case bearer(SecretBytes)
    /// RFC 6749.
    case oauth(AccessTokenSource)

    /// Whether they go with each request, without the server having asked for them.
    var isToken: Bool {
        switch self {
        case .none, .password: false
        case .bearer, .oauth: true
        }
    }

    /// Checks a bearer token: anything else than that would be another header field, or none.
    ///
    /// - Throws: `configurationInvalid`, without a word of it.
    static func bearer(token: SecretBytes) throws(CertificateProviderError) -> ServerCredentials {
        let isToken = token.withUnsafeBytes { bytes in
            let padding = bytes.reversed().prefix { $0 == UInt8(ascii: "=") }.count
            return padding < bytes.count && bytes.dropLast(padding).allSatisfy(\.isInToken)
        }
        guard isToken else {
            throw CertificateProviderError(
                .configurationInvalid,
                "What 'bearer-source' gives is no bearer token: that is letters, digits and -._~+/ with = at the end (RFC 6750, "
                    + "section 2.1). Nothing was sent; see what is there.")
        }
        return .bearer(token)
    }

    /// What of it is sent, and what makes that.
    ///
    /// - Parameter token: The one of OAuth that is in use.
    func secrets(with token: AccessToken?) -> [SecretBytes] {
        switch self {
        case .none: []
        case .password(let user, let password):
            [password, SecretBytes(utf8: Self.basicCredentials(user: user, password: password))]
        case .bearer(let token): [token]
        case .oauth: token.map { [$0.value] } ?? []
        }
    }

    /// The `Authorization` field of HTTP Basic. A part of what is sent, and so never in a log.
    static func basicField(user: String, password: SecretBytes) -> String {
        "Basic " + basicCredentials(user: user, password: password)
    }

    private static func basicCredentials(user: String, password: SecretBytes) -> String {
        password.withUnsafeBytes { Data("\(user):".utf8) + Data($0) }.base64EncodedString()
    }
}

extension UInt8 {
    /// Whether a `token68` (RFC 9110, section 11.2) may have it before its end.
    var isInToken: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-._~+/".utf8.contains(self)
        }
    }
}
