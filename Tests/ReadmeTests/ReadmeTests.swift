import CertificateProviding
import FoundationEssentials
import Testing

/// The README's example is this target's `EmbeddingExample.swift`, so that it compiles.
@Suite struct ReadmeTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    @Test func theEmbeddingExampleIsTheOneThatCompiles() throws {
        let readme = try String(contentsOf: Self.root.appending(path: "README.md"), encoding: .utf8)
        let example = try String(
            contentsOf: Self.root.appending(path: "Tests/ReadmeTests/EmbeddingExample.swift"), encoding: .utf8)
        #expect(readme.contains("```swift\n" + example + "```\n"))
    }

    @Test func theEmbeddingExampleReportsAMissingFile() async {
        await #expect {
            _ = try await makeTLSCredentials(configuredBy: "/nowhere/clienthub.properties")
        } throws: {
            ($0 as? CertificateProviderError)?.code == .configurationMissing
        }
    }
}
