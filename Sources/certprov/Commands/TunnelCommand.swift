import ArgumentParser
import CertificateProviding
import HostService
import Logging
import Logon
import Terminal
import UnixSignals

struct TunnelCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tunnel", abstract: "Mutual TLS for programs that have none.",
        subcommands: [TunnelServer.self, TunnelClient.self])
}

struct TunnelServer: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "server",
        abstract:
            "Take mutual TLS with the identity of a property file, and pass the bytes to a local program, until SIGTERM.",
        discussion: """
            The property file says who is admitted, by TrustAnchors and Peers.allow. SIGHUP reads it again. Identity, trust and \
            peers that change count for new connections.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var tunnel: TunnelOptions

    @Option(
        help: ArgumentHelp(
            "v2: tell the target, a Unix socket, who the peer is (PROXY protocol).", valueName: "version"))
    var proxyProtocol: String?

    func run() async throws {
        try await tunnel.run(options, .server, [(TunnelSettings.proxyProtocol.descriptor, proxyProtocol)], allow: [])
    }
}

struct TunnelClient: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "client",
        abstract:
            "Pass the bytes of granted local programs to a server by mutual TLS, with the identity of a property file, until SIGTERM.",
        discussion: """
            Callers of the Unix socket need a grant: --allow, or Serve.allow.1 in the property file. SIGHUP reads that again.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var tunnel: TunnelOptions

    @Option(
        parsing: .singleValue,
        help: ArgumentHelp(
            "A grant, such as 'user:postgres' or 'unit:web.service'; may be repeated. In place of those of the property file.",
            valueName: "selectors"))
    var allow: [String] = []

    @Option(help: ArgumentHelp("The name that the server's certificate must be valid for.", valueName: "name"))
    var serverName: String?

    @Option(help: ArgumentHelp("Mode of the Unix socket: 0666, the default, 0660 or 0600.", valueName: "mode"))
    var socketMode: String?

    @Option(help: ArgumentHelp("Group of the Unix socket.", valueName: "group"))
    var socketGroup: String?

    @Flag(help: "Listen at a TCP port of loopback, which every user of this host can use.")
    var anyLocalUser = false

    func run() async throws {
        let settings = [
            (TunnelSettings.serverName.descriptor, serverName), (TunnelSettings.socketMode.descriptor, socketMode),
            (TunnelSettings.socketGroup.descriptor, socketGroup),
            (TunnelSettings.anyLocalUser.descriptor, anyLocalUser ? "true" : nil),
        ]
        try await tunnel.run(options, .client, settings, allow: allow)
    }
}

/// The options of both kinds of tunnel.
struct TunnelOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The address to listen at: HOST:PORT or unix:PATH.", valueName: "address"))
    var listen: String

    @Option(
        help: ArgumentHelp("The address to connect to: HOST:PORT or unix:PATH.", valueName: "address"))
    var target: String

    @Option(help: ArgumentHelp("Close connections at this age, such as 8h.", valueName: "time"))
    var maxAge: SpanOfTime?

    @Option(
        help: ArgumentHelp(
            "The time for a handshake, and for the connection to the target. Default: 10s.", valueName: "time"))
    var connectTimeout: SpanOfTime?

    @Option(help: ArgumentHelp("The number of connections at one time. Default: 10000.", valueName: "number"))
    var maxConnections: String?

    @Option(
        help: ArgumentHelp("How long open connections may go on after SIGTERM. Default: 60s.", valueName: "time"))
    var shutdownTimeout: SpanOfTime?

    init() {}

    /// The number of the tunnel in messages, and in the log.
    private static let number = 1

    fileprivate func run(
        _ options: GlobalOptions, _ mode: TunnelSettings.Mode, _ more: [(ParameterDescriptor, String?)], allow: [String]
    ) async throws {
        func seconds(_ span: SpanOfTime?) -> String? { span.map { "\($0.duration.components.seconds)" } }
        let given =
            more + [
                (TunnelSettings.mode.descriptor, mode.rawValue), (TunnelSettings.listen.descriptor, listen),
                (TunnelSettings.target.descriptor, target), (TunnelSettings.maximumAge.descriptor, seconds(maxAge)),
                (TunnelSettings.connectTimeout.descriptor, seconds(connectTimeout)),
                (TunnelSettings.maximumConnections.descriptor, maxConnections),
            ]
        let grace = shutdownTimeout?.duration ?? .seconds(60)
        try await CommandContext.run(options, executor: .threads()) { context throws(ProviderError) in
            guard options.drivenProvider == nil else {
                throw ProviderError(
                    .usage, "A tunnel has the identity of a property file; name that with --config, without --provider."
                )
            }
            let configuration = try context.configuration()
            let settings = try Self.settings(given, allow)
            let tunnel = try TunnelSettings(Self.number, settings)
            var logger = context.logger
            logger.logLevel = min(logger.logLevel, .notice)
            let host = try HostService(
                context.composition(logging: logger), statusAt: nil, grace: grace, logger: logger
            ) { configuration throws(ProviderError) in
                let grants = try ServeSection.grants(allow.isEmpty ? configuration.settings : settings)
                try tunnel.check(configuration, grants, settings)
                return ([tunnel], grants)
            } read: { () throws(ProviderError) in
                HostConfiguration(only: configuration.path ?? "")
            }
            try await host.run(
                until: UnixSignalsSequence(trapping: .sighup, .sigterm, .sigint), limit: grace + .seconds(30))
            return .done
        }
    }

    /// Returns the options as the settings that a property file would have.
    private static func settings(
        _ given: [(ParameterDescriptor, String?)], _ allow: [String]
    ) throws(ProviderError) -> Parameters {
        var texts = ProviderParameters()
        let declared = ServeSection.settings.settings
        let grants = declared.filter { $0.name.hasPrefix("Serve.allow.") }
        let members =
            given.map { ($0.0.of(number), $0.1) }
            + allow.enumerated().flatMap { offset, text in grants.map { ($0.of(offset + 1), text) } }
        for (descriptor, text) in members {
            guard let text else { continue }
            let option = descriptor.name.split(separator: ".").last.map { "--\($0)" } ?? ""
            texts[descriptor.name] = .init(text, origin: descriptor.name.hasPrefix("Serve.allow.") ? "--allow" : option)
        }
        let all = declared.filter { !$0.name.hasPrefix("Serve.allow.") }.map { $0.of(number) }
        return try Parameters(
            texts, of: all + allow.indices.flatMap { index in grants.map { $0.of(index + 1) } }, .propertyFile,
            keyStores: .none)
    }
}
