import CertificateProviding
import FoundationEssentials
import ServerTransport

/// How the requests of one run get to the server.
struct ServerAccess: Sendable {
    let server: ServerURL
    /// For all that is asked in the run.
    let allowance: Allowance
    let pace: Pace
    let now: @Sendable () -> Date

    init(_ settings: Settings, _ environment: ProviderEnvironment, _ pace: Pace) {
        server = settings.server
        allowance = Allowance(settings.timeout, pace)
        self.pace = pace
        now = environment.now
    }

    func session(_ security: ServerConnection.Security, _ credentials: ServerCredentials) -> PatientSession {
        PatientSession(
            session: ServerSession(server, security, credentials), allowance: allowance, pace: pace, now: now)
    }
}
