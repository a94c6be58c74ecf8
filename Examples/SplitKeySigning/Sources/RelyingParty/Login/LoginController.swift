import CertificateProviding
import HTTPTypes
import Hummingbird
import Logging
import OAuth

/// Logins: the URL where one begins, and the token for its code.
struct LoginController: Sendable {
    let provider: OpenIDProvider
    let authorizations: OutstandingAuthorizations
    let tokens: AccessTokens
    let logger: Logger

    private struct AuthorizeURL: Encodable {
        let authorizeURL: String
    }

    private struct CodeRequest: Decodable {
        let code: String
        let userID: String
        let state: String?
    }

    private struct Token: Encodable {
        let access_token: String
        let token_type = "Bearer"
        let expires_in = Int(AccessTokens.lifetime)
    }

    func addRoutes(to router: some RouterMethods<BasicRequestContext>) {
        router.post("authzurl") { _, _ in
            let request = try await provider.authorization()
            authorizations.add(request)
            return try Response.json(.ok, AuthorizeURL(authorizeURL: request.url))
        }
        router.post("authtoken") { request, _ in try await token(for: try await request.json(CodeRequest.self)) }
    }

    private func token(for request: CodeRequest) async throws -> Response {
        guard (1...4096).contains(request.code.utf8.count), (1...320).contains(request.userID.utf8.count) else {
            throw HTTPError(.badRequest, message: "The code or the userID is empty or too long.")
        }
        let authorization =
            switch authorizations.take(state: request.state) {
            case .one(let authorization): authorization
            case .none:
                throw HTTPError(.unauthorized, message: "The login has not begun here, or is over. Log in again.")
            case .several:
                throw HTTPError(.badRequest, message: "Several logins are going on: the member state is needed.")
            }
        do {
            try await provider.verify(SecretBytes(utf8: request.code), of: authorization, for: request.userID)
        } catch let refusal as OpenIDProvider.Refusal {
            logger.notice("login refused", metadata: ["reason": "\(refusal.message)"])
            throw HTTPError(.unauthorized, message: refusal.message)
        }
        authorizations.finish(authorization)
        return try .json(.ok, Token(access_token: tokens.make(for: request.userID)))
    }
}
