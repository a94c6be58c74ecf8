public import CertificateProviding
import FoundationEssentials
import NIOHTTP1
public import ProviderTransport

/// The relying party, which has documents to sign.
public struct RelyingParty: Sendable {
    private let json: JSONServer

    public init(_ server: ServerURL, _ exchange: any Exchange) { json = JSONServer(server, exchange) }

    var server: ServerURL { json.server }
    /// Distinguishes it from others.
    var url: String { json.url }

    /// Whether a URL is where this relying party has logins end.
    func isLogin(_ url: String) -> Bool {
        guard let login = ServerURL(url) else { return false }
        return login.isOfSameOrigin(as: server) && login.path == json.target("/login")
    }

    private struct Nothing: Encodable {}
    private struct AuthorizeURL: Decodable { let authorizeURL: String }

    /// Asks where to log in.
    func authorizeURL() async throws(ProviderError) -> String {
        let response = try await json.post("/authzurl", Nothing(), isRepeatable: true)
        guard response.status == 200 else { throw json.refusal(response, of: "the request for a login") }
        return try response.json(AuthorizeURL.self, from: server).authorizeURL
    }

    private struct CodeRequest: Encodable {
        let code: String
        let userID: String
        let state: String?
    }

    struct Token: Decodable {
        let access_token: String
        let expires_in: Double?
    }

    /// Gets an access token for the code of a login.
    func token(
        code: String, state: String?, of userID: String
    ) async throws(ProviderError) -> Token {
        let content = CodeRequest(code: code, userID: userID, state: state)
        let response = try await json.post("/authtoken", content, isRepeatable: false)
        guard response.status == 200 else {
            throw json.refusal(
                response, of: "the login",
                [401: (.rejected, "\(server.authority) does not accept the login of \(DisplayText.visible(userID))")])
        }
        let token = try response.json(Token.self, from: server)
        _ = try json.token(token.access_token, of: "the login")
        return token
    }

    /// What a relying party says of a document.
    struct DocumentAnswer: Decodable {
        let hash: String
        let timestamp: UInt32
        let authToken: String?
    }

    /// Sends a document.
    ///
    /// - Returns: `nil` if the access token is not accepted.
    func document(
        _ content: [UInt8], access: SecretBytes
    ) async throws(ProviderError) -> DocumentAnswer? {
        var request = HTTPRequest(
            method: .post, target: json.target("/document"), body: content, isRepeatable: true)
        request.headers.add(name: "Content-Type", value: "application/octet-stream")
        let response = try await json.send(request, token: access)
        if response.status == 401 { return nil }
        guard response.status == 200 else { throw json.refusal(response, of: "the document") }
        return try response.json(DocumentAnswer.self, from: server)
    }

    private struct Verification: Encodable {
        let verificationData: SignatureObject
        let timestamp: UInt32
        let authToken: String?
    }

    /// The relying party's answer to a signature.
    struct Verdict: Decodable {
        let verified: Bool
        let status: String
    }

    /// The part of a refusal that says that the verifier was not asked: `"verifier": "not asked"`.
    private struct Refusal: Decodable { let verifier: String }

    /// Sends a signature, and the same one again if the answer is lost.
    ///
    /// - Parameter mayBeCounted: Becomes true where an answer is lost: the verifier may have the signature, whatever is said later.
    /// - Returns: `nil` if the access token is not accepted: the signature was not looked at.
    /// - Throws: Also with the reason `nothingSent` if this request has not reached the verifier.
    func verify(
        _ signed: TimedSignature, _ authToken: String?, access: SecretBytes, _ mayBeCounted: inout Bool
    ) async throws(ProviderError) -> Verdict? {
        let content = Verification(
            verificationData: signed.signature, timestamp: signed.timestamp, authToken: authToken)
        let path = "/verify-signature"
        let first: HTTPResponse?
        do throws(ProviderError) {
            first = try await json.post(path, content, isRepeatable: false, token: access)
        } catch {
            guard error.code == .unavailable, error.reason != .nothingSent else { throw error }
            first = nil
        }
        if let first, first.status == 503, (try? first.json(Refusal.self, from: server))?.verifier == "not asked" {
            var refusal = json.refusal(first, of: "the signature")
            refusal.reason = .nothingSent
            throw refusal
        }
        let response: HTTPResponse
        // The repetition waits as long as 408 and 429 say.
        if let first, first.status < 500, ![408, 429].contains(first.status) {
            response = first
        } else {
            if (first?.status ?? 500) >= 500 { mayBeCounted = true }
            response = try await json.post(path, content, isRepeatable: true, token: access)
        }
        if response.status == 401 { return nil }
        // Some answer a signature that is not valid with 400, and the same document.
        if let verdict = try? response.json(Verdict.self, from: server) { return verdict }
        throw json.refusal(response, of: "the signature")
    }
}
