import ArgumentParser
import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logon
import Terminal

struct Connect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Make a TLS handshake with the identity, and show the result.",
        discussion: """
            Uses the stored identity, else gets one from the provider. Verifies the server's chain and name. Sends no \
            application data without --http. Many servers refuse a client certificate only when they answer a request: \
            nginx completes the handshake, and answers 400.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(
        help: ArgumentHelp("The server to connect to. Write an IPv6 address in brackets.", valueName: "host:port"))
    var server: ServerAddress

    @Option(
        help: ArgumentHelp(
            "Trust only the certificates in this PEM file, or in those of this directory.",
            discussion: "Default: TrustAnchors of the property file, then the system trust store.", valueName: "file"),
        completion: .file())
    var trustAnchors: String?

    @Option(
        help: ArgumentHelp(
            "Trust only a server with one of these keys: sha256/BASE64 as shown here, separated by commas.",
            discussion: "In addition to its CA and its name. Default: Peers.pin of the property file.",
            valueName: "pin"))
    var pin: String?

    @Option(
        help: ArgumentHelp(
            "pin-and-pki, or pin-only: the pin of the server's own key instead of its CA.", valueName: "mode"))
    var pinMode: PinMode = .both

    enum PinMode: String, ExpressibleByArgument { case both = "pin-and-pki", only = "pin-only" }

    @Option(help: ArgumentHelp("The name that the server's certificate must be for.", valueName: "name"))
    var serverName: String?

    @Option(help: ArgumentHelp("Offer this protocol through ALPN, such as h2; repeat for more.", valueName: "protocol"))
    var alpn: [String] = []

    @Flag(help: "Send one request, GET / over HTTP/1.1, and show the status of the answer.")
    var http = false

    @Option(
        help: ArgumentHelp(
            "Timeout of the connection. Getting the identity and signing with its key do not count.",
            valueName: "seconds"))
    var timeout: UInt16 = 10

    func validate() throws {
        guard !http || alpn.allSatisfy({ $0 == "http/1.1" }) else {
            throw ValidationError("--http speaks HTTP/1.1; leave out --alpn, or set it to http/1.1.")
        }
        if pin == nil, pinMode == .only { throw ValidationError("--pin-mode pin-only needs --pin.") }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            defer { context.log(manager.decisions) }
            // Also one that has expired: what the server says about it is of interest.
            let stored = try await manager.storedIdentity()
            let identity =
                if let stored { stored } else { try await manager.obtainIdentity(context.interaction) }
            if stored == nil { context.remarkOnCopy(of: identity, configuration) }
            let chain = identity.certificateChain
            if let obstacle = CertificateChain.obstacle(in: chain, for: .client, at: Date()) {
                // It may do so only when it answers a request.
                context.remark(
                    "The server may refuse the client certificate '\(identity.certificate.subject)': \(obstacle).")
            }
            var trust = PeerTrust(trustAnchors: configuration.trustAnchors, configuration.settings)
            if let trustAnchors { trust.anchors = .pemFile(trustAnchors) }
            if let pin {
                (trust.peers.pins, trust.peers.isPinOnly) = (try CertificatePin.keys(pin), pinMode == .only)
            }
            try trust.requireListsThatCount()
            trust.anchors = try trust.anchors.resolved(with: identity)
            if !trust.peers.isPinOnly {
                AnchorCheck(now: Date(), limit: nil).run(try trust.anchors.contents(), "trust anchors")
                    .filter { $0.severity != .ok }.forEach { context.remark("\($0.what): \($0.detail)") }
            }
            var probe = ConnectionProbe(
                host: server.host, port: Int(server.port), presenting: try TLSCredentials(identity),
                trusting: trust.anchors)
            probe.revocationLists = trust.revocationLists
            probe.peers = trust.peers
            probe.serverName = serverName
            probe.applicationProtocols = http && alpn.isEmpty ? ["http/1.1"] : alpn
            probe.sendsHTTPRequest = http
            probe.trustSettingName = "--trust-anchors, or TrustAnchors of the property file"
            probe.deadline = .seconds(Int64(timeout))
            let report = try await probe.run()
            guard let document = ConnectionDocument(server, identity, report, now: Date()) else {
                throw ProviderError(.internal, "The identity has no certificate.")
            }
            try context.show(document) { Self.text(server, identity, report) }
            if let status = report.httpStatus, [400, 401, 403].contains(status) {
                throw ProviderError(
                    .rejected, "\(server) answers GET / with the status \(status)\(Self.hint(status)).",
                    provider: identity.provenance.provider, nativeCode: status)
            }
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
            server pin   \(CertificatePin.publicKeyText(of: certificate))
            server names \(names.isEmpty ? "none" : names.map(\.description).joined(separator: " "))
            client cert  \(identity.certificate.subject) (\(identity.certificate.publicKey.displayName))
            result       \(answer(report.clientAuthentication))\(answer(report.httpStatus))

            """
    }

    private static func answer(_ httpStatus: Int?) -> String {
        guard let httpStatus else { return "" }
        return "\nhttp         GET / is answered with the status \(httpStatus)"
    }

    private static func hint(_ httpStatus: Int) -> String {
        httpStatus == 400
            ? ": nginx answers so to a client certificate that it does not accept; see the server's log"
            : ": the server refuses this client, or this path; see the server's log"
    }

    private static func answer(_ clientAuthentication: ConnectionReport.ClientAuthentication) -> String {
        switch clientAuthentication {
        case .notRequested: "the server did not ask for a client certificate"
        case .completed: "asked for, and the handshake was completed"
        case .unopposed: "asked for, and not rejected in the handshake"
        default: clientAuthentication.rawValue
        }
    }
}
