import ArgumentParser
import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logon

struct Connect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Make a TLS handshake with the identity, and show the result.",
        discussion: """
            Uses the stored identity, else gets one from the provider, and verifies the server as a service would. \
            Sends no application data.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(
        help: ArgumentHelp("The server to connect to. Write an IPv6 address in brackets.", valueName: "host:port"))
    var server: ServerAddress

    @Option(
        help: ArgumentHelp(
            "Trust only the certificates in this PEM file.",
            discussion: "Default: TrustAnchors of the property file, then the system trust store.", valueName: "file"),
        completion: .file())
    var trustAnchors: String?

    @Option(help: ArgumentHelp("The name that the server's certificate must be for.", valueName: "name"))
    var serverName: String?

    @Option(help: ArgumentHelp("Offer this protocol through ALPN, such as h2; repeat for more.", valueName: "protocol"))
    var alpn: [String] = []

    @Option(
        help: ArgumentHelp(
            "Timeout of the connection. Getting the identity and signing with its key do not count.",
            valueName: "seconds"))
    var timeout: UInt16 = 10

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            defer { context.log(manager.decisions) }
            let identity = try await manager.identity(TerminalInteraction())
            var probe = ConnectionProbe(
                host: server.host, port: Int(server.port), presenting: try TLSCredentials(identity),
                trusting: (trustAnchors ?? configuration.trustAnchors).map(TrustAnchors.pemFile) ?? .system)
            probe.serverName = serverName
            probe.applicationProtocols = alpn
            probe.deadline = .seconds(Int64(timeout))
            let report = try await probe.run()
            guard let document = ConnectionDocument(server, identity, report, now: Date()) else {
                throw CertificateProviderError(.internal, "The identity has no certificate.")
            }
            try context.show(document) { Self.text(server, identity, report) }
            return .done
        }
    }

    private static func text(_ server: ServerAddress, _ identity: Identity, _ report: ConnectionReport) -> String {
        let certificate = report.serverCertificate
        let names = certificate.subjectAlternativeNames
        return """
            server       \(server)
            protocol     \(report.tlsVersion.displayName)
            application  \(report.applicationProtocol?.withVisibleControls ?? "no protocol agreed")
            server cert  \(certificate.subject) (\(certificate.publicKey.displayName)), issued by \(certificate.issuer), \
            until \(certificate.notValidAfter.rfc3339)
            server names \(names.isEmpty ? "none" : names.joined(separator: " "))
            client cert  \(identity.certificate.subject) (\(identity.certificate.publicKey.displayName))
            result       \(answer(report.clientAuthentication))

            """
    }

    private static func answer(_ clientAuthentication: ConnectionReport.ClientAuthentication) -> String {
        switch clientAuthentication {
        case .notRequested: "the server did not ask for a client certificate"
        case .accepted: "asked for, and accepted"
        case .unopposed: "asked for, and not rejected"
        default: clientAuthentication.rawValue
        }
    }
}
