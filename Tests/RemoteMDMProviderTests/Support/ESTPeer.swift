import CertificateProviding
import Enrolment
import IdentityStore
import TestSupport

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// An EST server: the process, or the one in memory.
protocol ESTPeer {
    /// `ca.pem` is the anchor.
    var directory: TemporaryDirectory { get }
    var port: Int { get }
    var reach: any Network { get }
}

extension ESTServer: ESTPeer {
    var reach: any Network { TCPNetwork() }
}

extension ESTResponder: ESTPeer {
    var reach: any Network { network }
}

/// One for all providers, as in a service. Threads stay for a while after their work, and some tests make a thousand.
private let executor = BlockingExecutor.threads()

extension ESTPeer {
    /// Makes a provider that trusts the server and has the password.
    func provider(
        storage: any IdentityStorage = InMemoryStorage(), label: String = "", _ settings: [String: String] = [:],
        clock: TurnedClock = TurnedClock(), retryPolicy: RetryPolicy? = nil, variables: [String: String] = [:],
        log: TestLog = TestLog(), keyStores: [(KeyStoreDescriptor, any IdentityStorage)] = []
    ) throws -> EnrollingProvider {
        var environment = ProviderEnvironment.testing(
            storage: storage,
            variables: ["PASSWORD": ESTServer.password, "TOKEN": "esttoken", "SECRET": "estsecret"]
                .merging(variables) { $1 }, keyStores: keyStores)
        environment.executor = executor
        environment.logger = log.logger
        environment.transport = Transport(network: reach, retryPolicy: retryPolicy ?? clock.retryPolicy)
        var parameters = [
            "protocol": "est", "url": "https://localhost:\(port)/\(label)", "trust-anchors": directory["ca.pem"],
            "username": ESTServer.user, "password-source": "env:PASSWORD", "subject": "CN=client,O=Example",
            "timeout": "600",
        ]
        parameters.merge(settings) { $1 }
        return try RemoteMDMProvider.make(
            environment: environment,
            parameters: ProviderParameters(parameters.filter { !$0.value.isEmpty }.mapValues { .init($0) }))
    }
}

extension EnrollingProvider {
    var settings: EnrolmentSettings { mdm.settings }
    private var mdm: any MDMProtocol {
        guard let mdm = server as? any MDMProtocol else { preconditionFailure("EST or SCEP") }
        return mdm
    }
}
