import CertificateProviding
import FoundationEssentials
import NIOCore
import NIOHTTP1
import ProviderTransport

/// One request to a token endpoint. Each has a connection of its own, since hours lie between two requests.
struct TokenRequest: Sendable {
    let endpoint: TokenEndpoint
    let client: OAuthClient
    private let grant: OAuthGrant
    var form = FormBody()

    init(_ endpoint: TokenEndpoint, _ client: OAuthClient, _ grant: OAuthGrant) {
        (self.endpoint, self.client, self.grant) = (endpoint, client, grant)
        grant.write(to: &form)
    }

    /// Sends the request once. Redirections are not followed, since the secrets are for this server only.
    ///
    /// - Throws: The errors of ``refusal(_:_:_:)``, and those of the connection.
    func send(before deadline: NIODeadline) async throws(ProviderError) -> TokenResponse {
        let server = endpoint.server
        var form = form
        var headers: HTTPHeaders = [
            "Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "Connection": "close",
        ]
        client.authenticate(&form, &headers)
        var security = ServerSecurity(trust: endpoint.trust, now: endpoint.date, executor: endpoint.executor)
        security.settingNames = endpoint.settingNames
        let connection = try await ServerConnection.open(
            server, security,
            through: endpoint.proxy, over: endpoint.network, deadline: deadline)
        defer { connection.close() }
        var response = try await connection.response(
            to: HTTPRequest(method: .post, target: server.target, headers: headers, body: form.bytes),
            limit: TokenMembers.maximumSize, deadline: deadline)
        response.redaction = Redaction(
            grant.secrets + (client.secret.map { [$0, client.basicCredentials(with: $0)] } ?? []))
        let members = response.mediaType == "application/json" ? TokenMembers(response.body) : nil
        // Some servers report an error with the status 200.
        if let members, members.error != nil || response.status == 200 {
            guard let error = members.error else { return try TokenResponse(members, from: server.authority) }
            throw refusal(response, error, members)
        }
        throw strange(response)
    }

    // MARK: - Refusals

    private func refusal(
        _ response: HTTPResponse, _ error: String, _ members: TokenMembers
    ) -> ProviderError {
        let refusal = OAuthRefusal(
            error: response.excerpt(of: error, limit: 100),
            errorDescription: members.errorDescription.map { response.excerpt(of: $0, limit: 500) },
            errorURI: members.errorURI.map { response.excerpt(of: $0, limit: 300) }, status: response.status)
        let (code, advice): (ProviderError.Code, String) =
            switch refusal.error {
            case "invalid_client": (.rejected, "check the client's identifier and secret")
            case "invalid_grant": (.rejected, grant.advice)
            // Also said of a wrong secret.
            case "unauthorized_client" where response.status == 401:
                (.rejected, "check the client's identifier and secret, and whether it is registered for this grant")
            // Servers have many names for it.
            case _ where response.status == 401: (.rejected, "check the client's identifier and secret")
            case "unauthorized_client": (.rejected, "the client is not registered for this grant")
            case "access_denied": (.rejected, "ask the server's administrator")
            case "invalid_scope": (.configurationInvalid, "check the scope")
            case "unsupported_grant_type": (.configurationInvalid, "choose another grant")
            case "temporarily_unavailable", "server_error", "slow_down":
                (.unavailable, response.adviceToWait(now: endpoint.date()))
            case _ where response.status >= 500 || response.status == 429:
                (.unavailable, response.adviceToWait(now: endpoint.date()))
            default: (.rejected, "ask the server's administrator")
            }
        return ProviderError(
            code, "The token endpoint at \(endpoint.server.authority) issues no token: \(refusal); \(advice).",
            nativeCode: response.status, retryAfter: response.retryAfter(now: endpoint.date()), reason: refusal.reason,
            underlying: refusal)
    }

    /// Returns the error for a response that is not one of OAuth.
    private func strange(_ response: HTTPResponse) -> ProviderError {
        let (code, advice): (ProviderError.Code, String) =
            switch response.status {
            case 200: (.protocolError, "the answer is not a JSON token response (RFC 6749, section 5.1); check its URL")
            case 300..<400: (.configurationInvalid, "credentials are sent only to the configured URL")
            case 401, 403, 407: (.rejected, "check the client's identifier and secret")
            case 404, 405, 410: (.configurationInvalid, "check its URL")
            case 408, 429, 500...599: (.unavailable, response.adviceToWait(now: endpoint.date()))
            default: (.protocolError, "OAuth does not define this status; check its URL")
            }
        return ProviderError(
            code,
            "The token endpoint at \(endpoint.server.authority) answers with the status "
                + "\(response.status)\(place(response)); \(advice).",
            nativeCode: response.status, retryAfter: response.retryAfter(now: endpoint.date()),
            reason: response.status == 401 ? .rejectedPassword : nil)
    }

    private func place(_ response: HTTPResponse) -> String {
        guard (300..<400).contains(response.status), let place = response.headers.first(name: "Location") else {
            return ""
        }
        return " to '\(response.excerpt(of: place, limit: 200))'"
    }
}
