import CertprovKit
import Logging
import NIOSSL
import ServiceLifecycle
import UnixSignals

func serve(
    configuredBy file: String, _ makeServer: @Sendable (TLSConfiguration) async throws -> any Service
) async throws {
    let logon = try CertprovLogon(configuredBy: file)
    let credentials = try await logon.credentials()
    let configuration = try TLSConfiguration.makeServerConfiguration(
        presenting: credentials, demandingClientCertificatesFrom: logon.trustAnchors)
    let server = try await makeServer(configuration)
    let services: [any Service] = [logon.renewal, logon.reloading(), server]
    let group = ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm], logger: Logger(label: "service"))
    try await group.run()
}
