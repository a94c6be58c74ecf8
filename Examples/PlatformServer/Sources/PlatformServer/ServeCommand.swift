import ArgumentParser
import Foundation
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import Logging
import NIOSSL
import ServiceLifecycle
import SwiftASN1
import UnixSignals
import X509

/// Runs the server until SIGTERM or SIGINT.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Run the server. It prints its ports when it listens.")

    @Option(help: ArgumentHelp("An application that clients can register for; repeatable.", valueName: "id"))
    var application: [String]

    @Option(help: ArgumentHelp("The directory of the database. Only one server uses it.", valueName: "directory"))
    var state: String

    @Option(help: ArgumentHelp("The server's certificate chain in PEM.", valueName: "file"))
    var certificate: String

    @Option(help: ArgumentHelp("The server's private key in PEM.", valueName: "file"))
    var key: String

    @Option(
        name: .customLong("client-ca"), help: ArgumentHelp("The CAs of client certificates in PEM.", valueName: "file"))
    var clientCA: String

    @Option(
        help: ArgumentHelp("Revocation lists of the client CAs in PEM. SIGHUP reads them again.", valueName: "file"))
    var revocationList: String?

    @Option(help: ArgumentHelp("The users with passwords and activation codes. See 'user'.", valueName: "file"))
    var users: String?

    @Option(help: ArgumentHelp("The address to listen on.", valueName: "address"))
    var address = "127.0.0.1"

    @Option(help: ArgumentHelp("The port for client certificates; 0 for any free one.", valueName: "port"))
    var certificatePort = 8082

    @Option(help: ArgumentHelp("The port for passwords; 0 for any free one.", valueName: "port"))
    var passwordPort = 8081

    @Option(help: ArgumentHelp("A path in front of all others, such as /suffix/farm.", valueName: "path"))
    var pathPrefix = ""

    @Option(
        help: ArgumentHelp(
            "The subject of an administrator's certificate, for /connections; repeatable.", valueName: "subject"))
    var administrator: [String] = []

    @Option(
        help: ArgumentHelp(
            "A setting of all connections, such as PasswordPolicyMinLength=10; repeatable.", valueName: "name=value"))
    var setting: [String] = []

    @Flag(help: "Take client certificates from the headers of a reverse proxy, and speak plain HTTP with it.")
    var behindProxy = false

    @Option(
        help: ArgumentHelp(
            "With --behind-proxy: a Unix socket in place of the port for certificates.", valueName: "path"))
    var certificateSocket: String?

    func validate() throws {
        guard certificateSocket == nil || behindProxy else {
            throw ValidationError("--certificate-socket needs --behind-proxy.")
        }
        guard (0...65535).contains(certificatePort), (0...65535).contains(passwordPort) else {
            throw ValidationError("A port is a number from 0 to 65535.")
        }
        // Anything that reaches the listener can claim to be any principal.
        guard !behindProxy || certificateSocket != nil || ["127.0.0.1", "::1"].contains(address) else {
            throw ValidationError("--behind-proxy needs a loopback address or --certificate-socket.")
        }
        guard pathPrefix.isEmpty || pathPrefix.hasPrefix("/") else {
            throw ValidationError("--path-prefix begins with '/'.")
        }
    }

    func run() async throws {
        var logger = Logger(label: "platform-server") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel =
            ProcessInfo.processInfo.environment["LOG_LEVEL"].flatMap { Logger.Level(rawValue: $0) } ?? .notice

        var policy = PasswordPolicy()
        for assignment in setting where !policy.set(assignment) {
            throw ValidationError("--setting \(assignment): the name is unknown, or the value has the wrong type.")
        }
        let store = try ConnectionStore(directory: state)
        let server = PlatformServer(
            applications: Set(application), pathPrefix: pathPrefix, store: store,
            writer: try AtomEntryWriter(policy: policy), logger: logger)
        let authorities = try authorities()
        let revocations = try Revocations(file: revocationList, authorities: authorities, logger: logger)
        let verifier = ClientCertificateVerifier(authorities: authorities, revocations: revocations, logger: logger)
        let announcement = Announcement()

        let page = try ConnectionsPage(administrators: Set(administrator), store: store)
        let authenticator: any Authenticator =
            behindProxy
            ? ProxiedClientCertificate(revocations: revocations) : TLSClientCertificate(revocations: revocations)
        let certificateListener = server.application(
            server.router(authenticatedBy: authenticator, page: page),
            at: certificateSocket.map { .unixDomainSocket(path: $0) } ?? .hostname(address, port: certificatePort),
            server: behindProxy
                ? .http1(configuration: .platform)
                : try .tls(
                    .http1(configuration: .platform),
                    configuration: TLSChannelConfiguration(
                        tlsConfiguration: clientCertificateConfiguration(),
                        customAsyncVerificationCallback: { try await verifier.verify($0) })),
            onRunning: { announcement.certificateListener($0) })

        let users = try users.map(Users.init(file:)) ?? Users(parsing: "")
        let passwordListener = server.application(
            server.router(authenticatedBy: try BasicCredentials(users: users, store: store)),
            at: .hostname(address, port: passwordPort),
            server: try .tls(.http1(configuration: .platform), tlsConfiguration: tlsConfiguration()),
            onRunning: { announcement.passwordListener($0) })

        var configuration = ServiceGroupConfiguration(
            services: [certificateListener, passwordListener, revocations],
            gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        configuration.maximumGracefulShutdownDuration = .seconds(10)
        try await ServiceGroup(configuration: configuration).run()
    }

    private func authorities() throws -> [Certificate] {
        let authorities = try PEMDocument.parseMultiple(pemString: ConfigurationError.text(ofFile: clientCA))
            .map { try Certificate(pemDocument: $0) }
        guard !authorities.isEmpty else { throw ConfigurationError("\(clientCA) contains no certificate in PEM.") }
        return authorities
    }

    private func tlsConfiguration() throws -> TLSConfiguration {
        TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile(certificate).map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: key, format: .pem)))
    }

    private func clientCertificateConfiguration() throws -> TLSConfiguration {
        var configuration = try tlsConfiguration()
        // The list is sent to the client; ClientCertificateVerifier decides.
        configuration.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(clientCA))
        configuration.certificateVerification = .noHostnameVerification
        configuration.sendCANameList = true
        return configuration
    }
}
