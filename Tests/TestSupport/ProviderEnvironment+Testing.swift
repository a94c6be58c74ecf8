public import CertificateProviding
public import FoundationEssentials
import Logging

extension ProviderEnvironment {
    /// An environment that leaves nothing behind.
    public static func testing(
        storage: any IdentityStorage = InMemoryStorage(), variables: [String: String] = [:],
        now: @escaping @Sendable () -> Date = { Date() }
    ) -> ProviderEnvironment {
        ProviderEnvironment(
            storage: storage, secrets: SecretReader { variables[$0] },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            now: now, executor: BlockingExecutor.threads())
    }
}
