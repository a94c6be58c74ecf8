import CertificateProviding
import CertificateTLS
import Crypto
import Foundation
import OAuth
import TestSupport
import Testing

/// The code flow, from the URL for the browser to the tokens.
@Suite(.timeLimit(.minutes(20))) struct AuthorizationRequestTests {
    private static let redirectURI = "https://app.example.com/login?from=here&more=a b"

    @Test func theURLHasWhatTheStandardsWant() throws {
        let client = try OAuthClient("my client&=+ü", secret: nil)
        let requests = try (0..<2).map { _ in
            try AuthorizationRequest(
                at: "https://login.example.com:8443/authorize?tenant=1", client: client, redirectURI: Self.redirectURI,
                scopes: ["openid", "email"])
        }
        let request = requests[0]
        #expect(request.url.hasPrefix("https://login.example.com:8443/authorize?tenant=1&response_type=code&"))
        let query = try Self.query(request.url)
        #expect(query["client_id"] == "my client&=+ü" && query["redirect_uri"] == Self.redirectURI)
        #expect(query["scope"] == "openid email" && query["code_challenge_method"] == "S256")
        #expect(query["state"] == request.state && query["nonce"] == request.nonce)
        let names = ["state", "nonce", "code_challenge"]
        let other = try Self.query(requests[1].url)
        for value in try names.flatMap({ try [#require(query[$0]), #require(other[$0])] }) {
            #expect(
                value.count == 43
                    && value.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_".contains($0)) })
        }
        #expect(Set(names.flatMap { [query[$0], other[$0]] }).count == 6)
    }

    @Test(arguments: [
        "http://localhost/a", "localhost/a", "", "https://user:secret@localhost/a", "https://localhost/a#b",
    ])
    func onlyHTTPSIsTaken(url: String) throws {
        let client = try OAuthClient("client", secret: nil)
        let error = failure { _ = try AuthorizationRequest(at: url, client: client, redirectURI: Self.redirectURI) }
        #expect(error?.code == .configurationInvalid && error?.message.contains("secret") == false)
        let wrong = failure {
            _ = try AuthorizationRequest(
                at: "https://localhost/", client: client, redirectURI: Self.redirectURI, scopes: ["two words"])
        }
        #expect(wrong?.code == .configurationInvalid)
    }

    @Test("A code gets the tokens of its request, with a secret or without", arguments: [nil, ESTServer.secret])
    func aCodeGetsTokens(secret: SecretBytes?) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", "keep")
        let client = try OAuthClient(ESTServer.clientID, secret: secret)
        let request = try server.authorization(client)
        let clock = Clock()
        let tokens = try AccessTokenSource(
            server.endpoint(), client: client, grant: .authorizationCode(try server.code(of: request), for: request),
            now: clock.now)
        let token = try await tokens.token()
        #expect(try server.takes(token))
        let parts = try #require(token.idToken).withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.split(
            separator: ".")
        let claims = try #require(
            Data(base64Encoded: parts[1] + String(repeating: "=", count: (4 - parts[1].count % 4) % 4)))
        #expect(String(decoding: claims, as: UTF8.self).contains(request.nonce))
        #expect(!"\(token)".contains(parts[1]))
        // The rest is about the refresh token.
        clock.advance(.seconds(3500))
        #expect(try await tokens.token().idToken == nil)
        #expect(try server.grants() == ["authorization_code granted", "refresh_token granted"])
    }

    @Test("A code is sent once", arguments: ["", "close-after-request", "error-temporarily_unavailable"])
    func aCodeIsSentOnce(fault: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let client = try OAuthClient(ESTServer.clientID, secret: ESTServer.secret)
        let request = try server.authorization(client)
        let clock = Clock()
        let tokens = try AccessTokenSource(
            server.endpoint(fault: fault), client: client,
            grant: .authorizationCode(try server.code(of: request), for: request), now: clock.now)
        #expect(await failure { _ = try await tokens.token() }?.code == (fault.isEmpty ? nil : .unavailable))
        clock.advance(.seconds(4000))
        for _ in 0..<2 { #expect(await failure { _ = try await tokens.token() }?.code == .rejected) }
        #expect(try server.requests().count { $0["operation"] as? String == "token" } == 1)
    }

    @Test("A code of another request is refused, and no error shows it")
    func aCodeIsOfItsRequest() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--scope", "openid")
        let client = try OAuthClient(ESTServer.clientID, secret: ESTServer.secret)
        let (one, other) = (try server.authorization(client), try server.authorization(client))
        let code = try server.code(of: one)
        let tokens = try AccessTokenSource(
            server.endpoint(), client: client, grant: .authorizationCode(code, for: other))
        for _ in 0..<2 {
            let error = try #require(await failure { _ = try await tokens.token() })
            #expect(error.code == .rejected && (error.underlying as? OAuthRefusal)?.error == "invalid_grant")
            #expect(error.message.contains("authorise again"))
        }
        let echo = try AccessTokenSource(
            server.endpoint(fault: "echo-body"), client: client,
            grant: .authorizationCode(SecretBytes(utf8: "c0de-c0de"), for: one))
        let error = try #require(await failure { _ = try await echo.token() })
        #expect(error.message.contains("What is this:") && !"\(error)".contains("c0de-c0de"))
        #expect(try server.grants().first == "authorization_code invalid_grant")
    }

    fileprivate static func query(_ url: String) throws -> [String: String] {
        let text = url.split(separator: "?", maxSplits: 1).last ?? ""
        return Dictionary(
            try text.split(separator: "&").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                let value = parts[1].replacingOccurrences(of: "+", with: " ")
                return (String(parts[0]), try #require(value.removingPercentEncoding))
            }, uniquingKeysWith: { one, _ in one })
    }
}

extension ESTServer {
    fileprivate func authorization(_ client: OAuthClient) throws -> AuthorizationRequest {
        try AuthorizationRequest(
            at: "https://localhost:\(port)/authorize", client: client, redirectURI: "https://app.example.com/login",
            scopes: ["openid"])
    }

    /// The state and the code that come back with the browser of a user who agrees.
    fileprivate func code(of request: AuthorizationRequest) throws -> SecretBytes {
        let place = try Subprocess.run([
            "curl", "--silent", "--show-error", "--cacert", directory["ca.pem"], "--output", "/dev/null", "--write-out",
            "%{redirect_url}", request.url,
        ])
        let query = try AuthorizationRequestTests.query(String(decoding: place, as: UTF8.self))
        #expect(query["state"] == request.state)
        return SecretBytes(utf8: try #require(query["code"]))
    }
}
