import ArgumentParser
import CertificateProviding
import CertprovKit
import Contracts
import Logon
import Terminal

struct SyncCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sync", abstract: "Bring this host and the server together.",
        discussion: """
            First what was made here goes up, then what has changed on the server comes down. What is interrupted is done again by the \
            next run. A conflict and a refusal are warnings; a contract that cannot be read here is left out, and makes the status 74.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Read everything anew, and remove what the server no longer has.")
    var full = false

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            try await Self.synchronise(isFull: full, context)
        }
    }

    /// Synchronises, and shows the outcome. A conflict and a refusal are warnings.
    static func synchronise(isFull: Bool, _ context: Context) async throws(ProviderError) -> ExitStatus {
        let outcome = try await context.synchronised(isFull: isFull)
        try context.show(SynchronisationDocument(outcome)) {
            "sent \(outcome.sent.count), received \(outcome.received.count), removed \(outcome.removed.count)\n"
        }
        return outcome.unreadable.isEmpty ? .done : ExitStatus(.storeReadFailed)
    }
}

/// The result of `sync`: the ids of the contracts.
struct SynchronisationDocument: CommandDocument {
    static let kind = "ContractSynchronisation"

    let sent: [String]
    let received: [String]
    let removed: [String]
    let conflicts: [String]
    let refused: [Refused]
    let unreadable: [Refused]

    struct Refused: Encodable {
        let id: String
        let reason: String
    }

    init(_ outcome: Synchronisation.Outcome) {
        (sent, received, removed) = (outcome.sent, outcome.received, outcome.removed)
        conflicts = outcome.conflicts
        refused = outcome.refused.sorted { $0.key < $1.key }.map { Refused(id: $0.key, reason: $0.value) }
        unreadable = outcome.unreadable.sorted { $0.key < $1.key }.map { Refused(id: $0.key, reason: $0.value) }
    }
}

extension Context {
    /// Synchronises. Conflicts and refusals become warnings.
    func synchronised(isFull: Bool) async throws(ProviderError) -> Synchronisation.Outcome {
        let queue = try queue()
        let outcome = try await pairing { pairing throws(ProviderError) in
            try await Synchronisation(queue, with: try await pairing.contractServer()).run(isFull: isFull)
        }
        for id in outcome.conflicts {
            let server = try queue.contract(id)?.conflict?.server
            remark(
                "The contract \(id) was changed here, and on the server \(server.map { "is in the state \($0.version.state)" } ?? "is deleted"); look at both, and run: contracts resolve \(id)"
            )
        }
        for (id, reason) in outcome.refused.sorted(by: { $0.key < $1.key }) {
            remark("The contract \(id) was not taken: \(reason)")
        }
        for (id, reason) in outcome.unreadable.sorted(by: { $0.key < $1.key }) {
            remark("The contract \(id) cannot be read, and is left out: \(reason)")
        }
        return outcome
    }
}
