import CertificateProviding
import CertificateTLS
import Logging
import Logon
import Renewal
import ServiceLifecycle
import UnixSignals

func serve(_ servers: [any Service], with tls: RotatingTLS, of manager: LogonManager) async throws {
    let renewal = RenewingIdentity(tls.identity, of: manager, install: tls.update(to:))
    let services: [any Service] = [renewal] + servers
    let group = ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm], logger: Logger(label: "service"))
    try await group.run()
}
