import ArgumentParser
import AsyncHTTPClient
import CertificateProviding
import Logging
import NIOCore
import ServiceIdentity
import ServiceLifecycle
import UnixSignals

/// Sends a GET again and again and prints the answers. SIGHUP renews its identity before that is due, SIGTERM ends it.
@main
struct ExampleClient: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "example-client", abstract: "A client that is known to servers by its certificate.")

    @Option(help: "The property file with the identity and the CAs of the peers.")
    var config: String

    @Option(help: "What to ask for.")
    var url: String

    @Option(help: "How many requests to send. Without it: until stopped.")
    var requests: Int?

    @Option(help: "How long to wait between two requests.")
    var intervalMS = 1000

    @Option(help: "How many requests a connection serves, and so how soon a renewed identity is seen.")
    var requestsPerConnection = 100

    func validate() throws {
        guard (requests ?? 1) > 0, intervalMS >= 0, requestsPerConnection > 0 else {
            throw ValidationError("Numbers of requests must be positive, and the interval must not be negative.")
        }
    }

    func run() async throws {
        let logger = Logger(label: "example-client") { StreamLogHandler.standardError(label: $0) }
        let serviceManager = ServiceManager()
        let identity = try await ServiceIdentity(
            configuredBy: config, reportingTo: serviceManager, logger: logger)
        logger.notice("identity loaded", metadata: identity.certificate.logMetadata)

        var configuration = HTTPClient.Configuration()
        // A pooled connection keeps the identity of its handshake, so none may last for ever.
        configuration.maximumUsesPerConnection = requestsPerConnection
        // Shorter than the server's timeout: a connection that the server is about to close is not used any more.
        configuration.connectionPool.idleTimeout = .seconds(30)
        configuration.logServerCertificates(to: logger)

        let requester = Requester(
            url: url, count: requests, interval: .milliseconds(intervalMS), configuration: configuration,
            tls: identity.tls, logger: logger)
        let onSignal = await RenewalOnSignal(of: identity, reportingTo: serviceManager)
        serviceManager.notify(.ready, status: "Presenting \(identity.certificate.summary)")
        try await ServiceGroup(
            configuration: .init(
                services: [
                    .init(service: identity.renewal), .init(service: onSignal),
                    .init(service: requester, successTerminationBehavior: .gracefullyShutdownGroup),
                ],
                gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        ).run()
    }
}
