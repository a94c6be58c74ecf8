import FoundationEssentials
import ArgumentParser
import CertificateProviding
import Contracts
import Terminal

struct ListCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show the contracts of this host, the oldest first.",
        discussion: "Needs no connection. What is missing in a contract is filled in with contracts complete.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await Context.run(options, isReading: true) { context throws(ProviderError) in
            var contracts: [Contract] = []
            var status = ExitStatus.done
            for entry in try context.queue().entries() {
                switch entry.contract {
                case .success(let contract): contracts.append(contract)
                case .failure(let error):
                    if status == .done { status = ExitStatus(error.code) }
                    context.remark(
                        "The contract \(entry.id) cannot be read: \(error.message) \(Contract.deletingAdvice(entry.id))"
                    )
                }
            }
            try context.show(ContractListDocument(items: contracts.map { ContractItem($0) })) {
                guard !contracts.isEmpty else { return "" }
                var table = TextTable(header: ["ID", "STATE", "RECEIVED", "CUSTOMER", "NAME", "PDF", "MISSING"])
                for contract in contracts {
                    let content = contract.content
                    table.append([
                        contract.id, contract.stateText(hasServer: context.hasServer),
                        contract.received.formatted(.iso8601), content.customerNumber,
                        content.customer.name, content.pdf.name, content.missing.joined(separator: ", "),
                    ])
                }
                return table.text
            }
            return status
        }
    }
}
