public import CertificateProviding
import Logging

extension ProviderEnvironment {
    /// An environment that leaves nothing behind.
    public static func testing(
        storage: any IdentityStorage = InMemoryStorage(), variables: [String: String] = [:]
    ) -> ProviderEnvironment {
        ProviderEnvironment(
            storage: storage, secrets: SecretReader { variables[$0] },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            executor: BlockingExecutor.threads())
    }
}
