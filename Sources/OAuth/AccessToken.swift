public import CertificateProviding

/// An access token (RFC 6749, section 1.4), which a server accepts as a bearer token (RFC 6750) until it expires.
public struct AccessToken: Sendable {
    /// The token itself: printable ASCII without spaces.
    public let value: SecretBytes
    /// The granted scopes; `nil` if the server does not name them, which means that all requested scopes are granted
    /// (section 3.3).
    public let scopes: [String]?
    /// The ID token (OpenID Connect Core 1.0, section 3.1.3.3); `nil` if the server sends none. Nothing in it is verified: check its
    /// signature and claims as section 3.1.3.7 says.
    public let idToken: SecretBytes?
    /// The lifetime that the server has named, when the token was issued; `nil` if it names none. Not shortened, unlike the time after
    /// which ``AccessTokenSource`` requests another one.
    public let expiresIn: Duration?
    /// The refresh token (section 1.5) that its source has now, by which another source can go on (``OAuthGrant/refreshToken(_:)``) without
    /// the user; `nil` if the server has issued none. It often lives for months: keep it as safe as a password.
    public let refreshToken: SecretBytes?
    /// The sequence number among the tokens of its source.
    let number: UInt64

    /// The value of the `Authorization` field: `Bearer` and the token. It is as secret as the token.
    public var authorization: String { "Bearer " + value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
