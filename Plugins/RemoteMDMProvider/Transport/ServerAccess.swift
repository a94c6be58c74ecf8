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
    let allowance: Allowance
    let pace: Pace
    let now: @Sendable () -> Date

    /// - Throws: `configurationInvalid` for a proxy that cannot be used.
    init(
        _ settings: Settings, _ environment: ProviderEnvironment, _ pace: Pace, through proxies: ProxyChoice = .none
    ) throws(CertificateProviderError) {
        server = settings.server
        self.proxies = proxies
        proxy = try proxies.proxy(for: server)
        allowance = Allowance(settings.timeout, pace)
        self.pace = pace
        now = environment.now
    }

    func session(_ security: ServerConnection.Security, _ credentials: ServerCredentials) -> PatientSession {
        PatientSession(
            session: ServerSession(server, security, credentials, through: proxy), allowance: allowance, pace: pace,
            now: now)
    }
}
