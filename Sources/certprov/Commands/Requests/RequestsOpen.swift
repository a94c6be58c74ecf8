import ArgumentParser
import CertificateProviding
import SigningRequests
import Terminal

struct RequestsOpen: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "open",
        abstract: "Answer one request, which an application has handed over as a URL or a file.",
        discussion: """
            With --input the reply is on stdout. With a URL, as the desktop passes it, the reply is opened with xdg-open, if its \
            scheme is one of the application's. Other users of the host can read a URL on a command line, and so the document \
            or challenge in it.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(help: ArgumentHelp("The URL of the request.", valueName: "url"))
    var url: String?

    @Option(
        help: ArgumentHelp("Read the request from this file; - for stdin.", valueName: "file"), completion: .file())
    var input: String?

    func validate() throws {
        guard (url == nil) != (input == nil) else {
            throw ValidationError("Name a URL, or a file with --input: one of them.")
        }
    }

    func run() async throws {
        try await CommandContext.run(options, hasQueue: true) { context throws(ProviderError) in
            let handler = try await context.requestHandler(try context.configuration())
            let request: [UInt8]
            if let input {
                // With one byte more than it may have, the handler refuses it.
                request = try InputFile(input, named: "--input").prefix(handler.maximumLength + 1)
            } else {
                request = Array((url ?? "").utf8)
            }
            let reply = await handler.reply(
                to: request, from: input.map { $0 == "-" ? "stdin" : "file" } ?? "url", isHandler: url != nil)
            if url == nil {
                try Console.print(reply.url + "\n")
            } else if reply.isRegistered {
                do throws(ProviderError) { try await ReplyOpener.open(reply.location) } catch {
                    // The reason of a refusal says more.
                    throw reply.error ?? error
                }
            } else if reply.code == nil {
                // Step 11 has looked.
                throw ProviderError(.internal, "The reply has a scheme that is not the client's.")
            }
            if let error = reply.error { throw error }
            return .done
        }
    }
}
