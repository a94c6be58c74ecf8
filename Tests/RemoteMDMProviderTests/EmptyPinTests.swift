import CertificateProviding
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// A pin that got lost on its way into the configuration is an error, and never no pin.
@Suite struct EmptyPinTests {
    private static let ordinary = [
        "protocol": "est", "url": "https://localhost:1", "trust-anchors": "ca.pem", "subject": "CN=client",
        "token-url": "https://localhost:1/token", "client-id": "me", "client-secret-source": "env:SECRET",
    ]

    private func failure(_ more: [String: String]) -> CertificateProviderError? {
        let provider = RemoteMDMProvider(environment: .testing())
        let all = Self.ordinary.merging(more) { $1 }.mapValues { ProviderParameters.Value($0, origin: "file:1") }
        do { try provider.setParameters(ProviderParameters(all)) } catch { return error }
        return nil
    }

    @Test(arguments: ["pin", "token-pin"], ["", " ", ",", " , ", "server.pem,", ",server.pem", "a.pem,,b.pem"])
    func aListOfPinsHasNoEmptyOne(name: String, list: String) throws {
        let error = try #require(failure([name: list]))
        #expect(error.code == .configurationInvalid && error.message.contains("'\(name)'"), "\(error)")
        #expect(error.message.hasPrefix("file:1: "))
    }

    @Test(arguments: ["", " "]) func anEmptyFingerprintIsNone(text: String) {
        #expect(failure(["ca-fingerprint": text])?.code == .configurationInvalid)
    }

    @Test func whatIsThereIsTaken() {
        #expect(failure([:]) == nil)
        #expect(failure(["pin": "a.pem, b.pem", "token-pin": "c.pem"]) == nil)
    }
}
