import CertificateProviding
import ProviderTransport

/// The proxies, the time budget and the transport for the requests of one run.
struct ServerAccess: Sendable {
    let server: ServerURL
    /// The rule that chooses the proxy for any server.
    let proxies: ProxyChoice
    /// The proxy for ``server``.
    private let proxy: HTTPProxy?
    /// For all requests of the run.
    let timeBudget: TimeBudget
    let transport: Transport

    /// - Throws: `configurationInvalid` for a proxy that cannot be used.
    init(
        _ settings: EnrolmentSettings, _ transport: Transport, through proxies: ProxyChoice = .direct
    ) throws(ProviderError) {
        server = settings.server
        self.proxies = proxies
        proxy = try proxies.proxy(for: server)
        timeBudget = TimeBudget(settings.timeout, transport.retryPolicy)
        self.transport = transport
    }

    func session(_ security: ServerSecurity, _ credentials: ServerCredentials) -> ServerSession {
        ServerSession(
            server, security, credentials, through: proxy, timeBudget: timeBudget, transport: transport)
    }
}
