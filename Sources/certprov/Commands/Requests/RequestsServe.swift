import ArgumentParser
import CertificateProviding
import HostSockets
import Logging
import Logon
import SigningRequests
import Terminal

struct RequestsServe: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Answer the requests of this user's applications at a socket, until SIGTERM.",
        discussion: """
            The socket is certprov/requests.sock in $XDG_RUNTIME_DIR, or the one that systemd passes: \
            systemctl --user enable --now certprov-requests.socket. Processes of other users get no answer. Each request is a line \
            on stderr.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(help: ArgumentHelp("Listen at this socket, and make it.", valueName: "path"), completion: .file())
    var socket: String?

    func run() async throws {
        try await CommandContext.run(options, executor: .threads(), hasQueue: true) { context throws(ProviderError) in
            var logger = context.logger
            logger.logLevel = min(logger.logLevel, .notice)
            let passed = socket == nil ? try ServiceManager.sockets() : []
            guard passed.count <= 1 else {
                throw ProviderError(
                    .configurationInvalid,
                    "The service manager passes \(passed.count) sockets, and requests have one; leave one ListenStream= in the "
                        + "socket unit.")
            }
            let listening = if let one = passed.first { one.socket } else { try RequestSocket.listen(at: socket) }
            ProcessEnd.atEnd { listening.removeFile() }
            let configuration = try context.configuration()
            let handler = try await context.requestHandler(configuration, logger)
            if handler.registry.asksPerson,
                let obstacle = await RequestsCheck(context, configuration.settings).obstacle()
            {
                // A warning would wait for the document of --json.
                logger.notice("no person can be asked: \(obstacle.detail)")
            }
            let listener = RequestListener(listening, .init(largest: handler.maximumLength), logger: logger) {
                request, peer, release in
                await handler.reply(to: request, from: peer, isHandler: false, whenExamined: release).url
            }
            ServiceManager.reportReadiness()
            try await listener.run()
            return .done
        }
    }
}
