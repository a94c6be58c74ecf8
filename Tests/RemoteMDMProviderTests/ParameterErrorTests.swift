import CertificateProviding
import Enrolment
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// The messages about parameters that cannot be used.
@Suite(.timeLimit(.minutes(20))) struct ParameterErrorTests {
    private static let ordinary = [
        "protocol": "est", "url": "https://localhost:1", "trust-anchors": "/nonexistent.pem", "subject": "CN=client",
        "token-url": "https://localhost:1/token", "client-id": "me", "client-secret-source": "env:SECRET",
    ]

    private func failure(_ more: [String: String]) -> ProviderError? {
        let all = Self.ordinary.merging(more) { $1 }.mapValues { ProviderParameters.Value($0, origin: "file:1") }
        do { _ = try RemoteMDMProvider.make(environment: .testing(), parameters: ProviderParameters(all)) } catch {
            return error
        }
        return nil
    }

    /// A pin that got lost on its way into the configuration is an error, and never no pin.
    @Test(arguments: ["pin", "token-pin"], ["", " ", ",", " , ", "server.pem,", ",server.pem", "a.pem,,b.pem"])
    func aListOfPinsHasNoEmptyOne(name: String, list: String) throws {
        let error = try #require(failure([name: list]))
        #expect(error.code == .configurationInvalid && error.message.contains("'\(name)'"), "\(error)")
        #expect(error.message.hasPrefix("file:1: "))
    }

    @Test(
        "An empty value in the place of a fingerprint or of trust anchors is refused",
        arguments: ["ca-fingerprint", "trust-anchors", "token-trust-anchors"])
    func noEmptyValueWidensATrust(name: String) throws {
        let error = try #require(failure([name: ""]))
        #expect(error.code == .configurationInvalid && error.message.contains("'\(name)'"), "\(error)")
    }

    @Test(
        "The error names file, line and parameter of a malformed value",
        arguments: [
            ("subject", "client"), ("subject", "CN="), ("subject-alternative-names", "dns:a, host:b"),
            ("subject-alternative-names", "\"uri:https://a.example/x,y"), ("subject-alternative-names", "upn:alice"),
            ("ca-fingerprint", "12"),
        ])
    func whatIsMalformedIsFoundByItsLine(name: String, value: String) throws {
        let error = try #require(failure([name: value]))
        #expect(error.code == .configurationInvalid && error.provider == ProviderID("mdm"))
        #expect(error.message.hasPrefix("file:1: The parameter '\(name)': "), "\(error)")
    }

    /// Files are read when they are needed.
    @Test(
        "The error names file, line and parameter of an unusable file or pin",
        arguments: [
            (["pin": "sha256/x", "trust-anchors": ""], "pin", ProviderError.Code.configurationInvalid),
            (["pin": "/nonexistent.pem", "trust-anchors": ""], "pin", .fileNotFound),
            ([:], "trust-anchors", .fileNotFound),
            (["trust-anchors": "/etc/passwd"], "trust-anchors", .configurationInvalid),
        ])
    func soIsAFileThatCannotBeRead(
        more: [String: String], name: String, code: ProviderError.Code
    ) async throws {
        let environment = ProviderEnvironment.testing(variables: ["SECRET": "s"])
        let all = Self.ordinary.merging(more) { $1 }.filter { !$0.value.isEmpty }
            .mapValues { ProviderParameters.Value($0, origin: "file:1") }
        let provider = try RemoteMDMProvider.make(environment: environment, parameters: ProviderParameters(all))
        let error = await #expect(throws: ProviderError.self) {
            _ = try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == code)
        #expect(error?.message.hasPrefix("file:1: The parameter '\(name)': ") == true, "\(String(describing: error))")
    }

    @Test("Valid parameters, including a list of pins, are accepted")
    func whatIsThereIsTaken() {
        #expect(failure([:]) == nil)
        #expect(failure(["pin": "a.pem, b.pem", "token-pin": "c.pem"]) == nil)
    }
}
