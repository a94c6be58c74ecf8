import ArgumentParser
import CertificateProviding
import CertificateTLS
import CertprovKit
import Foundation
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import Logging
import NIOCore
import NIOSSL
import ProviderTransport
import ServiceLifecycle
import UnixSignals

/// Runs the relying party until SIGTERM or SIGINT.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Run the relying party. It prints its port when it listens.",
        discussion: """
            TLS is served with the identity of the property file's CertificateProvider. Without one it is plain HTTP, on the \
            loopback address only.
            """)

    @OptionGroup var options: ConfigurationOptions

    @Option(help: ArgumentHelp("The address to listen on.", valueName: "address")) var address = "127.0.0.1"

    @Option(help: ArgumentHelp("The port; 0 for any free one.", valueName: "port")) var port = 8444

    @Option(help: ArgumentHelp("A file that the printed line is written to as well.", valueName: "file"))
    var portsFile: String?

    func validate() throws {
        guard (0...65535).contains(port) else { throw ValidationError("A port is a number from 0 to 65535.") }
    }

    func run() async throws {
        try await RelyingPartyCommand.run {
            let logger = ConfigurationOptions.logger()
            let logon = try options.logon(logger)
            let configuration = logon.manager.configuration
            let announcement = try Announcement(file: portsFile)
            let relyingParty = try RelyingParty(RelyingPartyConfiguration(configuration.settings), logger: logger)
            let hasIdentity = !configuration.providers.isEmpty
            guard hasIdentity || ["127.0.0.1", "::1", "localhost"].contains(address) else {
                throw ProviderError(
                    .configurationInvalid,
                    "\(options.config) has no CertificateProvider, and without TLS only the loopback address is served; configure one, or leave --address out."
                )
            }
            let base = try configuration.settings.required(RelyingPartySettings.baseURL)
            if base.isSecure, !hasIdentity {
                logger.warning(
                    "plain HTTP is served, and 'RelyingParty.base-url' is https:; configure a CertificateProvider, unless a proxy in front has the TLS identity"
                )
            }
            let application = Application(
                router: relyingParty.router(),
                server: hasIdentity
                    ? try .tls(.http1(configuration: .relyingParty), tlsConfiguration: try await Self.tls(logon))
                    : .http1(configuration: .relyingParty),
                configuration: .init(address: .hostname(address, port: port)),
                onServerRunning: { announcement.listens($0) }, logger: logger)
            let place = "--port \(port), --address \(DisplayText.visible(address))"
            var services: [any Service] = [Listener(application: application, place: place)]
            if hasIdentity { services = [logon.renewal, logon.reloading()] + services }
            var group = ServiceGroupConfiguration(
                // Cancelled, the others would log errors of their own after the one that counts.
                services: services.map { .init(service: $0, failureTerminationBehavior: .gracefullyShutdownGroup) },
                gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
            group.maximumGracefulShutdownDuration = .seconds(15)
            try await ServiceGroup(configuration: group).run()
            await logon.manager.shutdown()
        }
    }

    /// TLS without client certificates: users have tokens.
    private static func tls(_ logon: CertprovLogon) async throws(ProviderError) -> TLSConfiguration {
        let tls = try await logon.tls()
        // SwiftNIO SSL's maker of a server's configuration wants a key, which comes in each handshake.
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = .none
        configuration.minimumTLSVersion = .tlsv12
        configuration.sslContextCallback = { _, promise in promise.succeed(tls.sslContextConfigurationOverride) }
        return configuration
    }
}

/// The application; an error says which options it cannot listen at.
private struct Listener: Service {
    let application: Application<RouterResponder<BasicRequestContext>>
    let place: String

    func run() async throws {
        func failure(_ reason: String, _ code: Int32? = nil) -> ProviderError {
            ProviderError(
                .configurationInvalid, "\(place): the server cannot listen there: \(reason). Set another one.",
                nativeCode: code.map { Int($0) })
        }
        do { try await application.run() } catch let error as IOError {
            throw failure(String(cString: strerror(error.errnoCode)), error.errnoCode)
        } catch is SocketAddressError.UnknownHost {
            throw failure("The address is unknown")
        }
    }
}

extension HTTP1Channel.Configuration {
    fileprivate static let relyingParty = Self(
        additionalChannelHandlers: [ConnectionLimits()], idleTimeout: .seconds(60),
        // The field is also the URL: a document in the query, with three characters for a byte, fits in.
        httpDecoderConfiguration: .init(
            maxHeaderFieldSize: 32 * 1024, maxHeaderListSize: 48 * 1024, maxHeaderFieldCount: 100))
}
