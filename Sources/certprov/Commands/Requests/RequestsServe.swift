import ArgumentParser
import CertificateProviding
import Logging
import SigningRequests

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
        try await CommandContext.run(options, executor: .threads()) { context throws(CertificateProviderError) in
            var logger = context.logger
            logger.logLevel = min(logger.logLevel, .notice)
            let listening: ListeningSocket
            if socket == nil, let passed = try ServiceManager.socket() {
                listening = passed
            } else {
                listening = try ListeningSocket(at: socket)
            }
            ProcessEnd.remove { listening.removeFile() }
            let listener = RequestListener(
                listening, .init(largestDocument: 32 << 20), logger: logger,
                handle: { [logger] request, peer in
                    let operation = RequestURL(request)?.host ?? ""
                    let reply = RequestURL(
                        scheme: "sima", host: SigningOperation(rawValue: operation)?.rawValue ?? "error",
                        items: [.init("status", "error"), .init("message", RequestWord.internalError.rawValue)]
                    ).text
                    logger.notice("\(Self.summary(of: reply)), for \(peer)")
                    return reply
                })
            ServiceManager.reportReadiness()
            try await listener.run()
            return .done
        }
    }

    /// The operation of a reply, and its word. No data: that is a later item.
    private static func summary(of reply: String) -> String {
        let items = reply.utf8.split(separator: UInt8(ascii: "&"), maxSplits: 2).prefix(2)
        let isRefusal = items.last?.starts(with: "message=".utf8) == true
        let url = RequestURL(Array(items.prefix(isRefusal ? 2 : 1).joined(separator: "&".utf8)))
        return "\(url?.host ?? "request"): \(url?["message"] ?? url?["status"] ?? "no reply")"
    }
}
