import ArgumentParser
import CertificateProviding
import Crypto
import Foundation
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import Logging
import ServiceLifecycle
import UnixSignals

/// Runs the server until SIGTERM or SIGINT.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Run the server. It prints its ports when it listens.",
        discussion: """
            The files of --seeds and --accounts are UTF-8 with one entry in each line. Empty lines, and those that begin with #, are \
            none. They are read at the start only: start the server again after a change.

            A host trusts the server by its CA: the file ca.pem in the directory of --state, if there is no --certificate. The same \
            CA issues the certificates of hosts. Keep a copy of ca.pem and ca-key.pem.

            The page of --page-port shows contracts and their states at http://127.0.0.1:PORT/, without a password, to all users of \
            this machine.

            The notifier gets one line: {"by":"text message","address":"+33612345678","code":"012345","contract":"UUID"}; by is text \
            message or mail. An exit status other than 0, or none within 30 seconds, is a failure; the last line of \
            stderr goes into the log then.

            The log goes to stderr. LOG_LEVEL is trace, debug, info, notice (default), warning, error or critical. Requests, \
            contracts and codes are logged at info, pairings at notice, refused tokens and certificates at warning.
            """)

    @Option(
        help: ArgumentHelp(
            "The directory of the database and the CA. It is made if it does not exist. Only one server uses it.",
            valueName: "directory")
    )
    var state: String

    @Option(
        help: ArgumentHelp(
            "The secrets of back offices (j_token), one in each line, of 16 ASCII characters at least.",
            valueName: "file"))
    var seeds: String

    @Option(help: ArgumentHelp("The accounts' email addresses, one in each line.", valueName: "file"))
    var accounts: String

    @Option(
        help: ArgumentHelp(
            "The server's certificate chain in PEM. Without it, the server's own CA issues one.", valueName: "file"))
    var certificate: String?

    @Option(help: ArgumentHelp("The server's private key in PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Without --certificate: a DNS name or IPv4 address of the server; repeatable. (default: localhost, 127.0.0.1)",
            valueName: "name"))
    var name: [String] = []

    @Option(help: ArgumentHelp("The address to listen on.", valueName: "address"))
    var address = "127.0.0.1"

    @Option(help: ArgumentHelp("The port; 0 for any free one.", valueName: "port"))
    var port = 8443

    @Option(
        help: ArgumentHelp(
            "The port of the page for a person at this machine, on 127.0.0.1; 0 for any free one. Without it, there is no page.",
            valueName: "port"))
    var pagePort: Int?

    @Option(
        help: ArgumentHelp(
            "The program that sends codes. It gets by, address, code and contract as JSON on standard input.",
            valueName: "program"))
    var notifier: String?

    @Option(
        help: ArgumentHelp(
            "The CA certificates, in PEM, of identities that people sign with instead of a code. Without it, all need their codes.",
            valueName: "file"))
    var signatoryAnchors: String?

    @Option(help: ArgumentHelp("The lifetime of a host's certificate.", valueName: "days"))
    var certificateDays = 90

    @Option(help: ArgumentHelp("The same in seconds, for tests.", valueName: "seconds"))
    var certificateSeconds: Int?

    @Option(help: ArgumentHelp("A file that the printed line is written to as well.", valueName: "file"))
    var portsFile: String?

    func validate() throws {
        guard (0...65535).contains(port), (0...65535).contains(pagePort ?? 0) else {
            throw ValidationError("A port is a number from 0 to 65535.")
        }
        guard (certificate == nil) == (key == nil) else {
            throw ValidationError("--certificate and --key need each other.")
        }
        guard certificate == nil || name.isEmpty else {
            throw ValidationError("--name is for a server without --certificate.")
        }
        if let name = name.first(where: { !CertificateAuthority.isServerName($0) }) {
            throw ValidationError(
                "--name '\(DisplayText.visible(name))' is neither a DNS name nor an IPv4 address. Set the one that hosts use."
            )
        }
        if let notifier, !NotifierProgram.exists(notifier) {
            throw ValidationError(
                "--notifier '\(DisplayText.visible(notifier))' is no program. Set the path of a file that this user may execute."
            )
        }
        guard (1...3650).contains(certificateDays), certificateSeconds.map({ $0 > 0 }) ?? true else {
            throw ValidationError("--certificate-days is a number from 1 to 3650, --certificate-seconds one above 0.")
        }
    }

    func run() async throws {
        // The database and its journals hold contracts.
        umask(0o077)
        var logger = Logger(label: "contract-server") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = try Self.logLevel()
        let (seeds, accounts) = (try Seeds(file: seeds), try Accounts(file: accounts))
        let directory = try StateDirectory(state)
        let announcement = try Announcement(hasPage: pagePort != nil, file: portsFile)
        let database = try ServerDatabase(directory)
        let registry = HostRegistry(database, accounts: accounts)
        let authority = try CertificateAuthority.load(directory: state, hasHosts: try await registry.hasHosts)
        let codeKey = try PrivateFile.load("\(state)/code-key") {
            SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) }
        }
        let server = ContractServer(
            book: try ContractBook(
                database, codeKey: SymmetricKey(data: codeKey),
                evidence: EvidenceCheck(
                    signatoryAnchors: try signatoryAnchors.map { try CertificateFile.read($0) } ?? [])),
            registry: registry, authority: authority, seeds: seeds,
            notifier: notifier.map { NotifierProgram($0, logger: logger) },
            certificateLifetime: TimeInterval(certificateSeconds ?? certificateDays * 86_400), logger: logger)
        var services = [
            try listener(server, announcement), Sweeper(book: server.book, logger: logger) as any Service,
        ]
        if let pagePort {
            let page = server.application(
                try server.pageRouter(), at: .hostname("127.0.0.1", port: pagePort),
                server: .http1(configuration: .contracts), onRunning: { announcement.pageListens($0) })
            services.append(Listener(application: page, option: "--page-port \(pagePort)"))
        }
        var configuration = ServiceGroupConfiguration(
            // Cancelled, the services would log errors of their own after the one that counts.
            services: services.map { .init(service: $0, failureTerminationBehavior: .gracefullyShutdownGroup) },
            gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        configuration.maximumGracefulShutdownDuration = .seconds(10)
        try await ServiceGroup(configuration: configuration).run()
    }

    private static func logLevel() throws -> Logger.Level {
        guard let text = ProcessInfo.processInfo.environment["LOG_LEVEL"], !text.isEmpty else { return .notice }
        guard let level = Logger.Level(rawValue: text) else {
            throw ConfigurationError(
                "LOG_LEVEL '\(DisplayText.visible(text))' is unknown. Set one of \(Logger.Level.allCases.map(\.rawValue).joined(separator: ", "))."
            )
        }
        return level
    }

    private func listener(_ server: ContractServer, _ announcement: Announcement) throws -> Listener {
        let configuration =
            if let certificate, let key {
                try ServerCertificate.files(certificate, key: key, clientsOf: server.authority)
            } else {
                try ServerCertificate.issued(by: server.authority, names: name)
            }
        let application = server.application(
            server.router(), at: .hostname(address, port: port),
            server: try .tls(
                .http1(configuration: .contracts),
                configuration: TLSChannelConfiguration(
                    tlsConfiguration: configuration,
                    // The client has shown that it has the key. Whose certificate it is each request finds out.
                    customAsyncVerificationCallback: { _ in .certificateVerified })),
            onRunning: { announcement.listens($0) })
        return Listener(application: application, option: "--port \(port), --address \(DisplayText.visible(address))")
    }
}
