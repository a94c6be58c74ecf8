import ArgumentParser
import CertificateProviding
import SigningRequests

struct RequestsServe: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Answer the requests of this user's applications at a socket, until SIGTERM.",
        discussion: """
            The socket is certprov/requests.sock in $XDG_RUNTIME_DIR, or the one that systemd passes: \
            systemctl --user enable --now certprov-requests.socket. Processes of other users get no answer.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(help: ArgumentHelp("The path of the socket to make.", valueName: "path"), completion: .file())
    var socket: String?

    func run() async throws {
        try await CommandContext.run(options) { _ throws(CertificateProviderError) in
            throw CertificateProviderError(.internal, "The command cannot answer requests yet.")
        }
    }
}
