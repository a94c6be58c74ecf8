import CertificateProviding
import CertificateTLS
import Foundation
import NIOHTTP1
import ProviderTransport
import Testing

/// The errors for responses of protocols that have their own.
@Suite struct RefusalTests {
    @Test func theServersReasonIsShownWithoutSecrets() throws {
        let url = try #require(ServerURL("https://vault.example.com:8200"))
        var response = HTTPResponse(status: 403, headers: [:], body: [])
        response.redaction = Redaction([SecretBytes(utf8: "s.tellNobody")])
        let error = response.refusal(
            of: "the request", by: url, reason: "no\n s.tellNobody.", advice: "check 'token-source'", at: Date())
        #expect(error.code == .rejected && error.nativeCode == 403)
        #expect(
            error.message == "vault.example.com:8200 answers the request with the status 403: no  <secret>; "
                + "check 'token-source'.")
        #expect(
            response.refusal(of: "the request", by: url, at: Date()).message
                == "vault.example.com:8200 answers the request with the status 403; it does not permit this; ask its "
                + "administrator.")
    }

    @Test func aSecureURLIsHTTPS() throws {
        let url = ServerParameter.url(isSecure: true, summary: "")
        func parse(_ text: String) throws -> ServerURL {
            try Parameters(
                ProviderParameters(["url": .init(text)]), of: [url.descriptor], owner: ProviderID("test"),
                keyStores: .none)[url]
        }
        #expect(try parse("https://vault.example.com").host == "vault.example.com")
        let error = #expect(throws: ProviderError.self) { try parse("http://vault.example.com") }
        #expect(error?.code == .configurationInvalid && error?.message.contains("must begin with https:") == true)
    }

    /// A bearer token would be readable on the way.
    @Test func credentialsNeedTLS() async throws {
        let server = try #require(ServerURL("http://127.0.0.1:1"))
        for credentials in [
            ServerCredentials.password(user: "me", .init(utf8: "p")),
            try .bearer(.init(utf8: "t"), from: "token-source"),
        ] {
            let session = ServerSession(
                server, ServerSecurity(trust: ServerTrust(trustAnchors: .system)), credentials,
                timeBudget: TimeBudget(.seconds(5), RetryPolicy()))
            let error = await #expect(throws: ProviderError.self) {
                try await session.response(to: HTTPRequest(target: "/"))
            }
            #expect(error?.code == .configurationInvalid && error?.message.contains("only over TLS") == true)
        }
    }
}
