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

    /// The `Authorization` field of HTTP Basic. A part of what is sent, and so never in a log.
    static func basicField(user: String, password: SecretBytes) -> String {
        let pair = password.withUnsafeBytes { Data("\(user):".utf8) + Data($0) }
        return "Basic " + pair.base64EncodedString()
    }
}
