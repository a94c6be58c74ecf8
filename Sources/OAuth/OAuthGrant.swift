public import CertificateProviding

/// The authorisation grant with which a client requests tokens (RFC 6749, section 1.3).
public struct OAuthGrant: Sendable {
    enum Kind: Sendable {
        case clientCredentials
        case password(user: String, SecretBytes)
        case code(SecretBytes, AuthorizationRequest)
        case refreshToken(SecretBytes)
    }
    let kind: Kind

    /// The client-credentials grant: the client's secret alone (section 4.4).
    public static let clientCredentials = Self(kind: .clientCredentials)

    /// The legacy password grant (section 4.3), for servers that offer no other one. OAuth 2.1 has removed it. A
    /// password that the server refuses is not sent again.
    public static func legacyPassword(user: String, password: SecretBytes) -> Self {
        Self(kind: .password(user: user, password))
    }

    /// The code that a user's authorisation has brought (section 4.1.3), with the proof that it is this client's (RFC 7636, section
    /// 4.5). It is sent once, whatever becomes of it: a code that comes twice may cost the tokens of the first time.
    ///
    /// - Parameter request: The request whose ``AuthorizationRequest/state`` has come with the code.
    public static func authorizationCode(_ code: SecretBytes, for request: AuthorizationRequest) -> Self {
        Self(kind: .code(code, request))
    }

    /// The refresh token of another source (section 6), such as one that a service has stored before it ended: ``AccessToken/refreshToken``. One
    /// that the server refuses is not sent again, and the error has the reason `rejectedGrant`: ask the user to log in.
    ///
    /// Some servers issue another refresh token with each use, and withdraw all when one comes twice. Keep the last one, and let one
    /// source use it at a time.
    public static func refreshToken(_ token: SecretBytes) -> Self { Self(kind: .refreshToken(token)) }

    func write(to form: inout FormBody) {
        switch kind {
        case .clientCredentials: form.append("grant_type", "client_credentials")
        case .password(let user, let password):
            form.append("grant_type", "password")
            form.append("username", user)
            form.append("password", password)
        case .code(let code, let request):
            form.append("grant_type", "authorization_code")
            form.append("code", code)
            form.append("redirect_uri", request.redirectURI)
            form.append("code_verifier", request.codeVerifier)
        case .refreshToken(let token):
            form.append("grant_type", "refresh_token")
            form.append("refresh_token", token)
        }
    }

    /// The secrets that the grant sends.
    var secrets: [SecretBytes] {
        switch kind {
        case .clientCredentials: []
        case .password(_, let password): [password]
        case .code(let code, let request): [code, request.codeVerifier]
        case .refreshToken(let token): [token]
        }
    }

    /// The next step after `invalid_grant`.
    var advice: String {
        switch kind {
        case .clientCredentials, .password: "check the user name and password"
        case .code: "ask the user to authorise again, since a code is good once"
        case .refreshToken: "ask the user to log in again"
        }
    }

    var isCode: Bool {
        guard case .code = kind else { return false }
        return true
    }
}
