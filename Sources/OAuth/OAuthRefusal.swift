/// The error response of a token endpoint (RFC 6749, section 5.2): the underlying error of the errors that
/// ``AccessTokenSource`` throws.
///
/// Control characters are made visible, long texts are cut, and secrets that the server repeats are replaced by
/// `<secret>`.
public struct OAuthRefusal: Error, Sendable, Hashable {
    /// `error`, such as `invalid_client`.
    public let error: String
    /// `error_description`.
    public let errorDescription: String?
    /// `error_uri`, a page about the error.
    public let errorURI: String?
    /// The HTTP status.
    public let status: Int
}

extension OAuthRefusal: CustomStringConvertible {
    /// The error with its description and URI, in one line.
    public var description: String {
        error + (errorDescription.map { " (\($0))" } ?? "") + (errorURI.map { ", see \($0)" } ?? "")
    }
}
