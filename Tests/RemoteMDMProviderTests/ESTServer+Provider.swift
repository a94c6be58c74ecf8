import CertificateProviding
import IdentityStore
import TestSupport

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// One for all providers, as in a service. Threads stay for a while after their work, and some tests make a thousand.
private let executor = BlockingExecutor.threads()

extension ESTServer {
    /// Makes a provider that trusts the server and has the password.
    func provider(
        storage: any IdentityStorage = InMemoryStorage(), label: String = "", _ settings: [String: String] = [:],
        clock: TurnedClock = TurnedClock(), retryPolicy: RetryPolicy? = nil, variables: [String: String] = [:],
        log: WarningLog = WarningLog()
    ) throws -> RemoteMDMProvider {
        var environment = ProviderEnvironment.testing(
            storage: storage,
            variables: ["PASSWORD": Self.password, "TOKEN": "esttoken", "SECRET": "estsecret"].merging(variables) { $1 }
        )
        environment.executor = executor
        environment.logger = log.logger
        var parameters = [
            "protocol": "est", "url": "https://localhost:\(port)/\(label)", "trust-anchors": directory["ca.pem"],
            "username": Self.user, "password-source": "env:PASSWORD", "subject": "CN=client,O=Example", "timeout": "20",
        ]
        parameters.merge(settings) { $1 }
        let provider = try RemoteMDMProvider(
            environment: environment,
            parameters: ProviderParameters(parameters.filter { !$0.value.isEmpty }.mapValues { .init($0) }),
            transport: Transport(retryPolicy: retryPolicy ?? clock.retryPolicy))
        return provider
    }
}

func code(_ body: () async throws -> Void) async -> CertificateProviderError.Code? {
    do { try await body() } catch { return (error as? CertificateProviderError)?.code ?? .internal }
    return nil
}
