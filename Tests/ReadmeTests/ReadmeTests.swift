import CertificateProviding
import CertprovKit
import FoundationEssentials
import Logging
import TestSupport
import Testing

/// The documents' examples are files of this target, so that they compile.
@Suite struct ReadmeTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    @Test(arguments: [
        ("README.md", "ShortExample"), ("Documentation/Embedding.md", "ShortExample"),
        ("Documentation/Embedding.md", "EmbeddingExample"), ("Documentation/Embedding.md", "RenewalExample"),
        ("Documentation/Embedding.md", "HTTPClientExample"), ("Documentation/Embedding.md", "ProgramExample"),
        ("Documentation/Embedding.md", "ReloadExample"),
        ("Documentation/Embedding.md", "../Greeter/Greeter"),
        ("Documentation/WritingAProvider.md", "ProviderExample"),
        ("Documentation/WritingAProvider.md", "AddingExample"),
        ("Documentation/WritingAProvider.md", "EnrolmentExample"), ("Documentation/OAuth.md", "OAuthExample"),
        ("Documentation/Registration.md", "RegistrationExample"), ("Documentation/Signing.md", "NamedKeysExample"),
        ("Documentation/Signing.md", "SigningExample"), ("Documentation/SigningRequests.md", "SigningRequestsExample"),
        ("Documentation/WritingAPlugin.md", "ConformanceExample"),
        ("Documentation/WritingAPlugin.md", "../ExamplePlugin/ExamplePlugin"),
    ])
    func theExampleIsTheOneThatCompiles(document: String, example: String) throws {
        let document = try String(contentsOf: Self.root.appending(path: document), encoding: .utf8)
        let example = try String(
            contentsOf: Self.root.appending(path: "Tests/ReadmeTests/\(example).swift"), encoding: .utf8)
        #expect(document.contains("```swift\n" + example + "```\n"))
    }

    @Test func theProviderExampleServesAnIdentity() async throws {
        let directory = try TemporaryDirectory()
        let issued = try TestAuthority().issue("client")
        let key = try #require(issued.key.exporter)
        let certificate = try directory.write(issued.certificate.derRepresentation, to: "client.der")
        let secret = try directory.write(key.pkcs8Representation().withUnsafeBytes { Array($0) }, to: "client.p8")
        let registry = try ProviderRegistry([SplitProvider.descriptor])
        let descriptor = try #require(try registry.provider(SplitProvider.id))
        let provider = try descriptor.makeProvider(
            ProviderEnvironment(storage: InMemoryStorage(), logger: Logger(label: "test"), executor: .threads()),
            ProviderParameters(["certificate": .init(certificate), "key-source": .init("file:\(secret)")]))
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == issued.certificate)
        let other = try TestAuthority().issue("other").certificate
        try directory.write(other.derRepresentation, to: "client.der")
        #expect { _ = try provider.getStoredCertificate() } throws: {
            ($0 as? ProviderError)?.code == .keyMismatch
        }
    }

    @Test("A property file names the example's provider as one of the program that adds it")
    func theProviderExampleIsAdded() async throws {
        let directory = try TemporaryDirectory()
        let text = "CertificateProvider = split\nCertificateProvider.split.certificate = a.der\n"
        let file = try directory.write(
            (text + "CertificateProvider.split.key-source = file:b.p8\n").utf8, to: "app.properties")
        #expect(try makeLogon(configuredBy: file).manager.configuration.providers.map(\.id) == [SplitProvider.id])
        #expect(throws: ProviderError.self) { _ = try CertprovLogon(configuredBy: file) }
    }

    @Test func theEmbeddingExampleReportsAMissingFile() {
        #expect {
            _ = try makeManager(configuredBy: "/nowhere/clienthub.properties")
        } throws: {
            ($0 as? ProviderError)?.code == .configurationMissing
        }
    }
}
