public import CertificateProviding
import ProviderTransport

/// The error response of a token endpoint (RFC 6749, section 5.2): the underlying error of the errors that
/// ``AccessTokenSource`` throws.
///
/// Control characters are made visible, long texts are cut, and secrets that the server repeats are replaced by
/// `<secret>`.
package struct OAuthRefusal: Error, Sendable, Hashable {
    /// `error`, such as `invalid_client`.
    package let error: String
    /// `error_description`.
    package let errorDescription: String?
    /// `error_uri`, a page about the error.
    package let errorURI: String?
    /// The HTTP status.
    package let status: Int
}

extension OAuthRefusal: CustomStringConvertible {
    /// The error with its description and URI, in one line.
    package var description: String {
        error + (errorDescription.map { " (\($0))" } ?? "") + (errorURI.map { ", see \($0)" } ?? "")
    }
}

extension OAuthRefusal {
    /// The refused party: the client or the grant; `nil` if it is neither. Some servers say 401 of either.
    var reason: ProviderError.Reason? {
        switch error {
        case "invalid_client": .rejectedClient
        case "invalid_grant": .rejectedGrant
        case "invalid_token" where status == 401: .rejectedGrant
        default: status == 401 ? .rejectedPassword : nil
        }
    }
}

extension ProviderError.Reason {
    /// A token endpoint has refused the client: its identifier or its secret is wrong (`invalid_client` of RFC 6749, section 5.2).
    public static let rejectedClient = Self(rawValue: "rejectedClient")
    /// A token endpoint has refused the password, the authorisation code or the refresh token (`invalid_grant`).
    public static let rejectedGrant = Self(rawValue: "rejectedGrant")
}
