import CertificateProviding
import NIOHTTP1
import ProviderTransport
import Testing

/// The transport's API for providers by other authors.
@Suite struct ProviderAuthorTests {
    private struct Answer: Codable, Equatable { let text: String }

    private let server = ServerURL("https://vault.example.com:8200")

    @Test func aRequestAndAnAnswerAreJSON() throws {
        let request = try HTTPRequest(target: "/v1/sign", json: Answer(text: "a"))
        #expect(request.method == .post && request.target == "/v1/sign" && !request.isRepeatable)
        #expect(request.headers.first(name: "Content-Type") == "application/json")
        let response = HTTPResponse(status: 200, headers: request.headers, body: request.body)
        #expect(try response.json(Answer.self, from: #require(server)) == Answer(text: "a"))
        #expect(response.mediaType == "application/json")
    }

    @Test(
        "An answer that is not the expected JSON gives an error that does not quote the answer",
        arguments: ["", "{}", "<html>s3cret", #"{"text":{"s3cret":1}}"#])
    func anotherAnswerIsAnErrorThatDoesNotShowIt(body: String) throws {
        let response = HTTPResponse(
            status: 200, headers: ["Content-Type": " Text/HTML; charset=utf-8"], body: Array(body.utf8))
        #expect(response.mediaType == "text/html")
        let error = #expect(throws: ProviderError.self) {
            try response.json(Answer.self, from: #require(server))
        }
        #expect(
            error?.code == .protocolError && error?.message.hasPrefix("The answer of vault.example.com:8200") == true)
        #expect(error.map { !String(describing: $0).contains("s3cret") && $0.underlying == nil } == true)
    }

    @Test("A server that receives a secret must have configured trust anchors or pins")
    func whatGetsASecretIsNotKnownByTheSystemTrustStoreAlone() throws {
        let (anchors, pins) = (ServerParameter.trustAnchors(), ServerParameter.pins())
        func trust(_ texts: [String: String]) throws -> ConfiguredTrust {
            ConfiguredTrust(
                anchors: anchors, pins: pins,
                in: try Parameters(
                    ProviderParameters(texts.mapValues { .init($0) }), of: [anchors.descriptor, pins.descriptor],
                    owner: ProviderID("test"), keyStores: .none))
        }
        for texts in [["trust-anchors": "/ca.pem"], ["pin": "/ca.pem"]] {
            #expect(try trust(texts).isConfigured)
            try trust(texts).requireConfigured(for: #require(server))
        }
        #expect(try !trust([:]).isConfigured)
        let error = #expect(throws: ProviderError.self) {
            try trust([:]).requireConfigured(for: #require(server))
        }
        #expect(error?.code == .configurationInvalid)
        for part in ["'trust-anchors'", "'pin'", "vault.example.com:8200"] {
            #expect(error?.message.contains(part) == true)
        }
    }
}
