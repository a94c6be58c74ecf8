import CertificateProviding
import CertificateTLS
import Logging
import Logon
import Renewal
import ServiceLifecycle

func serve(_ servers: [any Service], with credentials: RotatingTLSCredentials, of manager: LogonManager) async throws {
    let renewal = RenewingIdentity(credentials.current.identity, of: manager, install: credentials.update(to:))
    try await ServiceGroup(services: [renewal] + servers, logger: Logger(label: "service")).run()
}
