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
