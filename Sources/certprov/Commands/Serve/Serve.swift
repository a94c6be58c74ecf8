import ArgumentParser
import CertificateProviding
import Glibc
import HostService
import HostSockets
import Logging
import Terminal
import UnixSignals

struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Keep all identities of this host fresh, with their files for other programs, until SIGTERM.",
        discussion: """
            One service in place of a timer for each identity. It reads /etc/certprov/serve.properties if that is there, else all \
            *.properties of /etc/certprov. An identity that cannot be had is tried again, and keeps no other one waiting. SIGHUP \
            reads everything again; a wrong file leaves the last good state.
            """,
        subcommands: [ServeStatus.self, ServeExplain.self])

    @OptionGroup var options: GlobalOptions

    @OptionGroup var places: HostPlaces
    @OptionGroup var status: StatusSocketOption

    func run() async throws {
        // A reload that comes before the service can heed it is about files that are still to be read.
        signal(SIGHUP, SIG_IGN)
        try await CommandContext.run(options, executor: .threads()) { context throws(ProviderError) in
            try places.requireNoProvider(options)
            var logger = context.logger
            logger.logLevel = min(logger.logLevel, .notice)
            let socket = try StatusSocket.listen(at: status.socket)
            ProcessEnd.atEnd { socket.removeFile() }
            let host = try HostService(
                context.composition(logging: logger), statusAt: socket, logger: logger
            ) { [options, places] () throws(ProviderError) in
                try HostConfiguration.read(file: options.config, directory: places.directory)
            }
            ProcessEnd.atEnd { host.removeFiles() }
            try await host.run(
                until: UnixSignalsSequence(trapping: .sighup, .sigterm, .sigint), limit: .seconds(60))
            socket.removeFile()
            return .done
        }
    }
}

/// The places of the property files.
struct HostPlaces: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "Read serve.properties of this directory, else all of its *.properties.", valueName: "directory"),
        completion: .directory)
    var directory: String?

    /// Refuses the options of a single provider.
    func requireNoProvider(_ options: GlobalOptions) throws(ProviderError) {
        guard options.drivenProvider == nil else {
            throw ProviderError(
                .usage,
                "The service reads property files, and not --provider, --set and --uri; name a file with --config.")
        }
        guard options.config == nil || directory == nil else {
            throw ProviderError(.usage, "--config and --directory exclude each other; remove one.")
        }
    }
}

/// The place of the status socket.
struct StatusSocketOption: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The status socket of the service.",
            discussion:
                "Default: serve.sock in $RUNTIME_DIRECTORY, as systemd sets it, else in /run/certprov for root, else in certprov in $XDG_RUNTIME_DIR.",
            valueName: "path"),
        completion: .file())
    var socket: String?
}

struct ServeStatus: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show each identity of the running service, with its next attempt and its errors.",
        discussion: "For the user of the service, and root. The exit status is that of the first error.")

    @OptionGroup var options: GlobalOptions

    @OptionGroup var status: StatusSocketOption

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let document = HostStatusDocument(try StatusSocket.status(at: status.socket))
            try context.show(document) { document.text }
            return document.failure.map { ExitStatus($0.code) } ?? .done
        }
    }
}

/// The result of `serve status`.
private struct HostStatusDocument: CommandDocument {
    static let kind = "ServiceStatus"

    struct Item: Encodable {
        let name: String
        let file: String
        /// `ready`; `begins` until the first attempt has ended; `waits` for the next one; `ended` while the service ends.
        let state: String
        let provider: Nullable<String>
        let subject: Nullable<String>
        let expires: Nullable<String>
        let nextAttempt: Nullable<String>
        /// With the number of connections that are open.
        let tunnels: [HostStatus.Tunnel]
        let errors: [Enveloped<ErrorDocument>]
    }

    let process: Int32
    let items: [Item]
    let sockets: [HostStatus.Socket]
    /// The first of all errors.
    let failure: ProviderError?
    let errors: [Enveloped<ErrorDocument>]
    private let failures: [(place: String, error: ProviderError)]

    private enum CodingKeys: String, CodingKey { case process, items, sockets, errors }

    init(_ status: HostStatus) {
        process = status.process
        items = status.identities.map { one in
            Item(
                name: one.name, file: one.file, state: one.state.rawValue, provider: Nullable(one.provider),
                subject: Nullable(one.subject), expires: Nullable(one.expires?.rfc3339),
                nextAttempt: Nullable(one.nextAttempt?.rfc3339), tunnels: one.tunnels,
                errors: one.errors.map { Enveloped(ErrorDocument($0.error)) })
        }
        sockets = status.sockets
        errors = status.errors.map { Enveloped(ErrorDocument($0.error)) }
        failures =
            status.errors.map { ("the service", $0.error) }
            + status.identities.flatMap { one in one.errors.map { (one.name, $0.error) } }
        failure = failures.first?.error
    }

    var text: String {
        var table = TextTable(header: ["IDENTITY", "STATE", "PROVIDER", "SUBJECT", "EXPIRES", "NEXT ATTEMPT"])
        for item in items {
            table.append([
                item.name.withVisibleControls, item.state, item.provider.value ?? "-", item.subject.value ?? "-",
                item.expires.value ?? "-", item.nextAttempt.value ?? "-",
            ])
        }
        let tunnels = items.flatMap { item in
            item.tunnels.map { tunnel in
                "\(item.name.withVisibleControls): \(tunnel.mode) tunnel \(tunnel.listen) to \(tunnel.target), connections: \(tunnel.connections)\n"
            }
        }
        return table.text + tunnels.joined()
            + sockets.map { "the service: socket \($0.name), connections: \($0.connections)\n" }.joined()
            + failures.map { "\($0.place.withVisibleControls): \($0.error)\n" }.joined()
    }
}
