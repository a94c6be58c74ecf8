import CertprovKit
import Logging
import NIOSSL
import ServiceLifecycle

func serve(
    configuredBy file: String, _ makeServer: @Sendable (TLSConfiguration) async throws -> any Service
) async throws {
    let logon = try CertprovLogon(configuredBy: file)
    let credentials = try await logon.credentials()
    let configuration = try TLSConfiguration.makeServerConfiguration(
        presenting: credentials, demandingClientCertificatesFrom: logon.trustAnchors)
    let server = try await makeServer(configuration)
    try await ServiceGroup(services: [logon.renewal, server], logger: Logger(label: "service")).run()
}
