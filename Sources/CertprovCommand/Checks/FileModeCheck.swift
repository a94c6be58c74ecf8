import CertificateProviding
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
        guard isReadableByEverybody(path) else { return nil }
        return .warning(
            what, "\(path.withVisibleControls) can be read by everybody; run: chmod o-r \(path.shellQuoted)")
    }
}
