public import CertificateProviding
import Crypto
import FoundationEssentials
import ProviderTransport

/// A request for a user's authorisation: the code flow (RFC 6749, section 4.1) with PKCE (RFC 7636) and the nonce of OpenID
/// Connect (Core 1.0, section 3.1.2.1).
///
/// The user's browser opens ``url``. The server sends it to ``redirectURI``, with ``state`` and a code there. If the state is
/// this one, ``OAuthGrant/authorizationCode(_:for:)`` gets the tokens for the code. Use each request for one authorisation.
public struct AuthorizationRequest: Sendable {
    /// The URL for the user's browser.
    public let url: String
    /// The URL that the server sends the browser to, as it is registered there (section 3.1.2).
    public let redirectURI: String
    /// The redirection must have this `state`: another one is not the answer to this request (section 10.12).
    public let state: String
    /// The claim `nonce` that an ID token must have (Core 1.0, section 3.1.3.7).
    public let nonce: String
    /// Proves to the token endpoint that the code comes from this request (RFC 7636, section 4.1).
    let codeVerifier: SecretBytes

    /// Creates a request with random values. Nothing is sent.
    ///
    /// - Parameters:
    ///   - endpoint: `https://…`, the authorization endpoint (section 3.1). Its query stays in the URL.
    ///   - scopes: The scopes to request; with `openid` among them, an ID token comes with the access token.
    /// - Throws: `configurationInvalid` for an endpoint that is not an `https:` URL, and for an invalid scope.
    public init(
        at endpoint: String, client: OAuthClient, redirectURI: String, scopes: [String] = []
    ) throws(ProviderError) {
        guard let server = ServerURL(endpoint), server.isSecure else {
            throw ProviderError(
                .configurationInvalid,
                "The URL of the authorization endpoint is not valid: expected https://HOST[:PORT]/PATH, without a user "
                    + "or a fragment.")
        }
        let scope = try AccessTokenSource.scope(scopes)
        self.redirectURI = redirectURI
        (state, nonce) = (Self.random(), Self.random())
        let verifier = Self.random()
        codeVerifier = SecretBytes(utf8: verifier)
        var query = FormBody()
        query.append("response_type", "code")
        query.append("client_id", client.id)
        query.append("redirect_uri", redirectURI)
        if !scope.isEmpty { query.append("scope", scope) }
        query.append("state", state)
        query.append("nonce", nonce)
        query.append("code_challenge", ByteText.base64URL(SHA256.hash(data: Data(verifier.utf8))))
        query.append("code_challenge_method", "S256")
        url =
            server.origin + server.target + (server.query == nil ? "?" : "&")
            + String(decoding: query.bytes, as: UTF8.self)
    }

    /// 256 random bits, as RFC 7636, section 7.1, recommends.
    private static func random() -> String { SymmetricKey(size: .bits256).withUnsafeBytes { ByteText.base64URL($0) } }
}
