import ArgumentParser
import CertificateProviding
import Contracts
import Terminal

struct OpenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "open", abstract: "Take a call from another program: a URL, or a file with a contract.",
        discussion: """
            This is what the desktop runs: see contracts install-handler. A URL is sellsign://auth?token=…, sellsign://sync/incremental \
            or sellsign://sync/full. Other users of the host can read a URL on a command line, and the token in it; - reads the URL, or \
            the file, from stdin.
            At a terminal, a contract that is complete goes on to the question whether it is signed. Else it is queued.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(help: ArgumentHelp("The URL, the file, or - for stdin.", valueName: "url|file|-"), completion: .file())
    var target: String

    func validate() throws {
        if target.isEmpty { throw ValidationError("Name a URL, a file, or - for stdin.") }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            switch try CallTarget(target) {
            case .call(let call): return try await Self.answer(call, context)
            case .file(let bytes): return try await Self.take(bytes, context)
            }
        }
    }

    /// Pairs or synchronises, and tells the calling program the outcome.
    private static func answer(
        _ call: SellSignURL, _ context: Context
    ) async throws(ProviderError) -> ExitStatus {
        do throws(ProviderError) {
            let status =
                switch call.kind {
                case .auth(let token): try await PairCommand.pair(token, isCalled: true, context)
                case .syncIncremental: try await SyncCommand.synchronise(isFull: false, context)
                case .syncFull: try await SyncCommand.synchronise(isFull: true, context)
                }
            let outcome =
                status == .done ? .success : CallOutcome.failure("Some contracts of this host cannot be read.")
            await context.tell(outcome, to: call.callbacks)
            return status
        } catch {
            let error = call.hidingToken(in: error)
            await context.tell(.failure(error.message), to: call.callbacks)
            throw error
        }
    }

    /// Queues a contract, and goes on to its signature where a person can be asked.
    private static func take(
        _ bytes: [UInt8], _ context: Context
    ) async throws(ProviderError) -> ExitStatus {
        let queue = try context.queue()
        let contract: Contract
        do throws(ProviderError) {
            contract = try queue.add(try await ContractFile.read(bytes, renderer: context.renderer()))
        } catch {
            let callback = ContractFile.callbacks(of: bytes).error.flatMap { Callback($0) }
            await context.tell(.failure(error.message), to: CallbackURLs(error: callback))
            throw error
        }
        let unknown = contract.content.unknownMembers
        if !unknown.isEmpty {
            context.remark(
                "The file has members that are not known, and are kept as they are: \(unknown.joined(separator: ", "))")
        }
        let isComplete = contract.state == .inProgress
        if isComplete, context.interaction.canAsk, Console.isStandardErrorTerminal {
            return try await SignCommand.sign(contract.id, context)
        }
        try context.show(ContractDocument(contract)) {
            let next =
                isComplete
                ? "Sign it at a terminal with: contracts sign \(contract.id)"
                : "It lacks \(DisplayText.visible(contract.content.missing.joined(separator: ", "))). "
                    + "Fill that in with: contracts complete \(contract.id) KEY=VALUE"
            return "The contract \(contract.id) is queued. \(next)\n"
        }
        return .done
    }
}

extension SellSignURL {
    /// Returns the error without the token, which a server may have put into its answer.
    func hidingToken(in error: ProviderError) -> ProviderError {
        guard case .auth(let token) = kind else { return error }
        let text = token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        var error = error
        for form in [text, DisplayText.visible(text), ByteText.percentEncoded(text.utf8)] {
            error.message = error.message.replacing(form, with: "…")
        }
        error.underlying = nil
        return error
    }
}
