import CertificateProviding
import Glibc
import Logging
import TestSupport
import Testing

@testable import Logon

/// A registry of providers called `pkcs12`, `mdm` and `bare` that are never asked anything.
func registry() throws -> ProviderRegistry {
    func descriptor(_ id: ProviderID, _ parameters: [String]) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: id.rawValue, summary: "Test.",
            parameters: parameters.map { Parameter.string($0, summary: "Test.").descriptor }
        ) { _, _ in ScriptedProvider(id) }
    }
    return try ProviderRegistry([
        descriptor(ProviderID("pkcs12"), ["path", "password-source", "alias"]), descriptor(ProviderID("mdm"), ["url"]),
        descriptor(ProviderID("bare"), []),
    ])
}

/// Expects that a configuration is refused: the message begins with a place, has a part, and shows no value of the tests, `sEcReT`.
func expectInvalid(
    _ error: ProviderError?, at place: String = "", _ part: String = "",
    sourceLocation: SourceLocation = #_sourceLocation
) {
    #expect(error?.code == .configurationInvalid, sourceLocation: sourceLocation)
    let message = error?.message ?? ""
    #expect(message.hasPrefix(place) && message.contains(part), "\(message)", sourceLocation: sourceLocation)
    #expect(error.map { String(reflecting: $0).contains("sEcReT") } == false, sourceLocation: sourceLocation)
}

/// An environment that blocks and remembers nothing.
func environment() -> ProviderEnvironment {
    ProviderEnvironment(
        storage: InMemoryStorage(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
        executor: BlockingExecutor { $0() })
}
