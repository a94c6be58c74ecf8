import ArgumentParser
import CertificateProviding
import Contracts
import Terminal

struct AbandonCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "abandon", abstract: "Give a contract up: it is not signed here any more.",
        discussion: """
            Asks first. The calling program is told, and the server with the next synchronisation. A signatory who declines gives a \
            reason, and ends the contract so; what others have signed before stays with it.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    @OptionGroup var signatory: SignatoryOption

    @Option(help: ArgumentHelp("Why, for the back office. A signatory who declines needs one.", valueName: "text"))
    var reason: String?

    func validate() throws {
        if signatory.signatory != nil, reason == nil {
            throw ValidationError("--signatory needs --reason: why the person declines.")
        }
        if let flaw = reason.flatMap(ContractAbandonment.flaw) { throw ValidationError("--reason \(flaw).") }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let queue = try context.queue()
            let found = try await context.current(contract.id, in: queue)
            let decliner = try signatory.signatory.map { text throws(ProviderError) in
                try found.content.signatory(text, among: found.version.remaining)
            }
            if found.state.after(.abandoned) != nil, !yes {
                let question = signatory.signatory == nil ? "Abandon this contract?" : "Decline this contract?"
                let lines = found.lines(hasServer: context.hasServer, in: queue)
                guard try await context.interactionOrYes.confirm(question, after: lines) else {
                    throw ProviderError(
                        .userCancelled,
                        "The contract \(found.id) is not abandoned; sign it with: contracts sign \(found.id)")
                }
            }
            let abandonment = reason.map { ContractAbandonment(signatory: decliner, reason: $0) }
            let callbacks = try context.callbacks()
            let callback = callbacks.note(
                .failure("The contract is abandoned at the host\(reason.map { ": \($0)" } ?? ".")"),
                to: CallbackURLs(of: found.content),
                once: .init(found.id, is: .abandoned))
            let contract: Contract
            do throws(ProviderError) {
                contract = try queue.event(.abandoned, on: found.id) { $0.version.abandonment = abandonment }.0
            } catch {
                callbacks.cancel(callback)
                throw error
            }
            if let problem = await callbacks.open(callback) { context.remark(problem) }
            return try context.show(contract, of: queue)
        }
    }
}
