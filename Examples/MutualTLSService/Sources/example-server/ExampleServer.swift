import ArgumentParser
import CertificateProviding
import CertificateTLS
import Logging
import ServiceIdentity
import ServiceLifecycle
import UnixSignals

/// Answers every GET with the name on the client's certificate. SIGHUP renews its own before that is due, SIGTERM ends
/// it.
@main
struct ExampleServer: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "example-server", abstract: "A server that knows its clients by their certificates.")

    @Option(help: "The property file with the identity and the CAs of the peers.")
    var config: String

    @Option(help: "The address to listen on.")
    var address = "127.0.0.1"

    @Option(help: "The port to listen on; 0 for any free one.")
    var port = 8443

    func run() async throws {
        let logger = Logger(label: "example-server") { StreamLogHandler.standardError(label: $0) }
        let serviceManager = ServiceManager()
        let identity = try await ServiceIdentity(
            configuredBy: config, reportingTo: serviceManager, logger: logger)
        logger.notice("identity loaded", metadata: identity.certificate.logMetadata)

        let server = HTTPSServer(
            address: address, port: port, identity: identity, tls: try identity.tls.server(),
            onListening: { serviceManager.notify(.ready, status: "Presenting \(identity.certificate.summary)") },
            logger: logger)
        let onSignal = await RenewalOnSignal(of: identity, reportingTo: serviceManager)
        let group = ServiceGroup(
            services: [identity.renewal, onSignal, server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger
        )
        try await group.run()
    }
}
