import CertificateProviding
import CertificateTLS
import OAuth

func makeTokens(secrets: SecretReader) throws -> AccessTokenSource {
    let endpoint = try TokenEndpoint(
        "https://login.example.com/oauth2/token", trust: ServerTrust(trustAnchors: .system))
    let client = try OAuthClient("inventory", secret: secrets.read(.systemdCredential("client-secret")))
    return try AccessTokenSource(endpoint, client: client, scopes: ["devices.read"])
}

/// Sends a request, and repeats it with another token if the server refuses the first one.
///
/// - Parameter send: Sends the request with that `Authorization` field, and tells whether the answer is 401 with
///   `error="invalid_token"`.
func send<Answer>(
    with tokens: AccessTokenSource,
    _ send: (_ authorization: String) async throws -> (answer: Answer, isRefused: Bool)
) async throws -> Answer {
    let token = try await tokens.token()
    let first = try await send(token.authorization)
    guard first.isRefused else { return first.answer }
    return try await send(tokens.token(insteadOf: token).authorization).answer
}
