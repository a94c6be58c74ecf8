import CertificateProviding
import Enrolment
import OAuth
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Credentials that would be another header field, or none, go nowhere.
@Suite(.timeLimit(.minutes(20))) struct CredentialFormTests {
    @Test(
        "A malformed bearer token is refused and does not appear in the error",
        arguments: [
            "abc\r\nX-Evil: 1", "abc\ndef", "a b", "a,b", "\"abc\"", "tökén", "", "==", "=abc", "a=b", "a\u{0}b",
        ])
    func aBearerTokenHasTheFormOfOne(text: String) throws {
        let error = #expect(throws: ProviderError.self) {
            try ServerCredentials.bearer(SecretBytes(utf8: text), from: "bearer-source")
        }
        #expect(error?.code == .configurationInvalid)
        #expect(text.count < 3 || error.map { "\($0)".contains(text) } == false)
    }

    @Test(
        "A well-formed bearer token is accepted",
        arguments: ["a", "-._~+/0Zz", "YWJj==", "eyJ0.eyJh.c2ln"])
    func othersDo(text: String) throws {
        let credentials = try ServerCredentials.bearer(SecretBytes(utf8: text), from: "bearer-source")
        guard case .bearer(let token) = credentials.kind else {
            return #expect(Bool(false))
        }
        #expect(token == SecretBytes(utf8: text))
    }

    @Test("A malformed bearer token fails before any request is sent")
    func noneOfItIsSent() async throws {
        let server = try ESTResponder(.bearer)
        let provider = try server.provider(
            ["username": "", "password-source": "", "bearer-source": "env:BAD"],
            variables: ["BAD": "esttoken\r\nX-Evil: 1"])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(server.requests.isEmpty)
    }

    @Test(arguments: ["a:b", "a\r\nX-Evil: 1", "a\u{7f}", "a\u{85}", "a\tb"], ["username", "proxy-username"])
    func aUserNameHasNoControlCharacter(name: String, parameter: String) async throws {
        let server = try ESTResponder()
        let more = [parameter: name, "proxy": "http://127.0.0.1:1"]
        #expect(await code { _ = try server.provider(more) } == .configurationInvalid)
        _ = try server.provider(more.merging([parameter: "Jürgen b"]) { $1 })
    }
}
