import CertificateProviding
import FoundationEssentials
import ServerTransport

/// How the requests of one run get to the server.
struct ServerAccess: Sendable {
    let server: ServerURL
    /// On the way to whichever server.
    let proxies: ProxyChoice
    /// On the way to this one.
    private let proxy: HTTPProxy?
    /// For all that is asked in the run.
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
