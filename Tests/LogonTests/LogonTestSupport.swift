import CertificateProviding
import Glibc
import Logging
import TestSupport
import Testing

@testable import Logon

/// A file of settings in one of the two forms.
enum FileForm: String, CaseIterable, Sendable {
    case properties, plist

    var fileName: String { "clienthub.\(rawValue)" }

    /// The first key is in ``firstLine``, each next one in the line after.
    func text(_ pairs: [(String, String)]) -> String {
        switch self {
        case .properties: return pairs.map { "\($0)=\($1)\n" }.joined()
        case .plist:
            let body = pairs.map { "<key>\($0)</key><string>\($1)</string>\n" }.joined()
            return
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\">\n<dict>\n\(body)</dict>\n</plist>\n"
        }
    }

    var firstLine: Int { self == .properties ? 1 : 4 }
}

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

/// An environment that blocks and remembers nothing.
func environment() -> ProviderEnvironment {
    ProviderEnvironment(
        storage: InMemoryStorage(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
        executor: BlockingExecutor { $0() })
}
