import CertificateProviding
import FoundationEssentials
import ServerTransport

/// The proxies, the time budget and the clock for the requests of one run.
struct ServerAccess: Sendable {
    let server: ServerURL
    /// The rule that chooses the proxy for any server.
    let proxies: ProxyChoice
    /// The proxy for ``server``.
    private let proxy: HTTPProxy?
    /// For all requests of the run.
    let timeBudget: TimeBudget
    let retryPolicy: RetryPolicy
    let now: @Sendable () -> Date

    /// - Throws: `configurationInvalid` for a proxy that cannot be used.
    init(
        _ settings: EnrolmentSettings, _ environment: ProviderEnvironment, _ retryPolicy: RetryPolicy,
        through proxies: ProxyChoice = .none
    ) throws(CertificateProviderError) {
        server = settings.server
        self.proxies = proxies
        proxy = try proxies.proxy(for: server)
        timeBudget = TimeBudget(settings.timeout, retryPolicy)
        self.retryPolicy = retryPolicy
        now = environment.now
    }

    func session(_ security: ServerConnection.Security, _ credentials: ServerCredentials) -> RetryingSession {
        RetryingSession(
            session: AuthenticatingSession(server, security, credentials, through: proxy), timeBudget: timeBudget,
            retryPolicy: retryPolicy,
            now: now)
    }
}
