import CertprovKit
import Logging
import ServiceLifecycle
import UnixSignals

func serve(
    configuredBy file: String, _ makeServer: @Sendable (TLSServer) async throws -> any Service
) async throws {
    let logon = try CertprovLogon(configuredBy: file)
    let server = try await makeServer(try await logon.tls().server())
    let services: [any Service] = [logon.renewal, logon.reloading(), server]
    let group = ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm], logger: Logger(label: "service"))
    try await group.run()
}
