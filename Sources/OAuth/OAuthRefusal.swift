/// Why a token endpoint issues no token, in its own words (RFC 6749, section 5.2): the underlying error of what
/// ``AccessTokenSource`` throws.
///
/// Control characters are made visible, what is too long is cut, and where the server repeats a secret that it was
/// sent, there is `<secret>`.
public struct OAuthRefusal: Error, Sendable, Hashable {
    /// `error`, such as `invalid_client`.
    public let error: String
    /// `error_description`.
    public let errorDescription: String?
    /// `error_uri`, where there is more about it.
    public let errorURI: String?
    /// Of HTTP.
    public let status: Int
}

extension OAuthRefusal: CustomStringConvertible {
    public var description: String {
        error + (errorDescription.map { " (\($0))" } ?? "") + (errorURI.map { ", see \($0)" } ?? "")
    }
}
