import CertificateProviding
import FoundationEssentials
import IdentityStore
import LogonCore

/// Looks at the files that a provider's parameters name: can they be read, and by whom.
struct FileModeCheck {
    private let context: CommandContext
    private let configured: ConfiguredProvider

    init(_ context: CommandContext, _ configured: ConfiguredProvider) {
        self.context = context
        self.configured = configured
    }

    func run() -> [Finding] {
        let parameters = context.registry[configured.id]?.parameters ?? []
        return parameters.compactMap { parameter in
            guard let text = configured.parameters.string(parameter.name) else { return nil }
            let what = "\(configured.id) \(parameter.name)"
            switch parameter.kind {
            case .secretSource: return SecretSource(text).flatMap { secret($0, what) }
            case .path: return path(text, what)
            default: return nil
            }
        }
    }

    /// Reads the secret, and forgets it. One that a person or a descriptor gives is left alone.
    private func secret(_ source: SecretSource, _ what: String) -> Finding? {
        switch source {
        case .prompt, .fileDescriptor: return nil
        default: break
        }
        do throws(CertificateProviderError) {
            _ = try context.secrets.read(source)
            return .ok(what, "\(source) can be read")
        } catch {
            return .error(what, error)
        }
    }

    private func path(_ path: String, _ what: String) -> Finding? {
        // What is missing or unreadable the provider itself reports.
        let open = keyFiles(at: path).filter(isReadableByEverybody)
        guard let first = open.first else { return nil }
        let others = open.count > 1 ? " (and \(open.count - 1) more)" : ""
        return .warning(
            what,
            "\(first.withVisibleControls)\(others) can be read by everybody; run: chmod o-r \(first.shellQuoted)")
    }

    /// The file itself, or those in a directory that hold keys by their name; not more of them than anybody reads
    /// about.
    private func keyFiles(at path: String) -> [String] {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path) else { return [path] }
        let endings = [".p12", ".pfx", ".key", ".pem"]
        return names.filter { name in endings.contains { name.lowercased().hasSuffix($0) } }.sorted().prefix(4096)
            .map { "\(path)/\($0)" }
    }
}
