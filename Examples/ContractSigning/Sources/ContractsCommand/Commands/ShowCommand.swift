import ArgumentParser
import CertificateProviding
import Contracts
import Terminal

struct ShowCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show a contract, with the paths of its documents.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    func run() async throws {
        try await Context.run(options, isReading: true) { context throws(ProviderError) in
            let queue = try context.queue()
            return try context.show(try queue.find(contract.id), of: queue)
        }
    }
}

/// The contract that a subcommand is about.
struct ContractArgument: ParsableArguments, Sendable {
    @Argument(
        help: ArgumentHelp(
            "The contract: the beginning of its id, its number in the program that it is from, or its customer's number.",
            valueName: "id"))
    var id: String

    init() {}

    func validate() throws {
        if id.isEmpty { throw ValidationError("The id of a contract must not be empty; look with: contracts list") }
    }
}

extension Context {
    /// Shows a contract as the result.
    func show(_ contract: Contract, of queue: ContractQueue) throws(ProviderError) -> ExitStatus {
        try show(ContractDocument(contract)) {
            contract.lines(hasServer: hasServer, in: queue).joined(separator: "\n") + "\n"
        }
        return .done
    }
}
