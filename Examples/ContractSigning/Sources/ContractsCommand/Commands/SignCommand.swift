public import ArgumentParser
import CertificateProviding
import CertprovSigning
public import Contracts
import Logon
import ProviderTransport
import Terminal

struct SignCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign", abstract: "Look at a contract, and sign it.",
        discussion: """
            Shows the contract and the path of its PDF, and asks. The signature is by the identity of the property file, else by that of \
            the pairing. Contracts of the modes 1 and 3 need a connection: the server sends the signatory a code, which is typed here.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            try await Self.sign(try context.queue().find(contract.id).id, context)
        }
    }

    /// Signs a contract, and synchronises, if the settings or the person say so. Then the calling program is told.
    static func sign(_ id: String, _ context: Context) async throws(ProviderError) -> ExitStatus {
        let queue = try context.queue()
        try ContractSigner.requireSignable(try queue.find(id))
        let callbacks = try context.callbacks()
        var callback = CallbackJournal.Noted()
        do throws(ProviderError) {
            _ = try await context.signed(id, in: queue) { contract in
                // Before the signature: the process may be killed at any time after it, such as at the next question.
                callback = callbacks.note(
                    .success, to: CallbackURLs(of: contract.content), once: .init(id, is: .toValidate))
            }
        } catch {
            callbacks.cancel(callback)
            throw error
        }
        do throws(ProviderError) {
            if try await context.isToSynchronise() { _ = try await context.synchronised(isFull: false) }
        } catch {
            // The signature is made, and goes with the next synchronisation.
            context.remark("The contract is signed, and is not sent yet: \(error.message) Run: contracts sync")
        }
        if let problem = await callbacks.open(callback) { context.remark(problem) }
        return try context.show(try queue.find(id), of: queue)
    }
}

struct ResolveCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "resolve", abstract: "Decide about a contract that was changed here and on the server.",
        discussion: """
            mine goes to the server with the next synchronisation, if the server may still take it. server takes over what is there; a \
            signature made here stays beside it. If the server has deleted the contract, server deletes it here, with the signature: that \
            needs a confirmation. So does a contract that cannot be read, which server deletes here.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    @Option(help: ArgumentHelp("The side to keep: mine or server. Default: ask.", valueName: "side"))
    var keep: ConflictSide?

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let queue = try context.queue()
            if keep == .server, let id = try queue.unreadable(contract.id) {
                return try await remove(id, queue, context)
            }
            let found = try queue.find(contract.id)
            guard let conflict = found.conflict else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The contract \(found.id) has no conflict; look at it: contracts show \(found.id)")
            }
            var side = keep
            if side == nil {
                guard context.interaction.canAsk else {
                    throw ProviderError(
                        .interactionRequired,
                        "Which side counts cannot be asked: there is no terminal. Use --keep mine or --keep server.")
                }
                let theirs = conflict.server.map { "server: \($0.version.state)" } ?? "server: it is gone"
                let choice = try await context.interaction.choose(
                    "Which one counts?", among: ["mine: \(found.state)", theirs])
                side = choice == 0 ? .mine : .server
            }
            if side == .server, conflict.server == nil, found.hasUnsentSignature, !yes {
                let question = "Delete the contract \(found.id) with its signature, which is nowhere else?"
                guard try await context.interactionOrYes.confirm(question) else {
                    throw ProviderError(
                        .userCancelled, "The contract \(found.id) stays, with its signature.")
                }
            }
            guard let resolved = try queue.resolve(found.id, keeping: side ?? .mine) else {
                try context.show(ContractListDocument(items: [])) { "The contract \(found.id) is removed.\n" }
                return .done
            }
            return try context.show(resolved, of: queue)
        }
    }
}

extension ResolveCommand {
    /// Deletes a contract that cannot be read, so that the server's takes its place.
    private func remove(
        _ id: String, _ queue: ContractQueue, _ context: Context
    ) async throws(ProviderError) -> ExitStatus {
        let question = "Delete the contract \(id), which cannot be read, with a signature that may be nowhere else?"
        if !yes {
            guard try await context.interactionOrYes.confirm(question) else {
                throw ProviderError(.userCancelled, "The contract \(id) stays as it is.")
            }
        }
        try queue.remove(id, evenUnsent: true)
        try context.show(ContractListDocument(items: [])) {
            "The contract \(id) is removed. What the server has comes back with: contracts sync --full\n"
        }
        return .done
    }
}

extension ConflictSide: ExpressibleByArgument {}

extension Context {
    /// - Parameter approved: Gets the contract that a person has approved.
    fileprivate func signed(
        _ id: String, in queue: ContractQueue, approved: (Contract) -> Void
    ) async throws(ProviderError) -> (Contract, [ContractEffect]) {
        let pairing = hasServer ? try Pairing(logon, queue) : nil
        let result: Result<(Contract, [ContractEffect]), ProviderError>
        do throws(ProviderError) {
            let identity =
                if logon.manager.configuration.providers.isEmpty, let pairing {
                    try await pairing.identity()
                } else {
                    try await logon.manager.identity(interaction)
                }
            var timeStamps = try TimeStampServer.configured(
                by: settings, try logon.manager.environment(of: ProviderID("time-stamps_")))
            timeStamps?.proxy = .environment(SecretReader())
            let signer = ContractSigner(queue, try Signer(identity, timeStamps: timeStamps)) {
                () async throws(ProviderError) in
                guard let pairing else {
                    throw ProviderError(
                        .unavailable,
                        "The signatory is identified by a code of the server, and no server is configured; set Contracts.url."
                    )
                }
                return try await pairing.contractServer()
            }
            result = .success(
                try await signer.sign(id) { question throws(ProviderError) in
                    let isApproved =
                        try await interaction.answer(to: "Sign this contract?", about: question.text) == "y"
                    if isApproved { approved(question.contract) }
                    return isApproved
                } requestCode: { prompt throws(ProviderError) in
                    try await interaction.requestText(prompt)
                })
        } catch { result = .failure(error) }
        await pairing?.shutdown()
        return try result.get()
    }

    /// Whether a signed contract goes to the server at once.
    fileprivate func isToSynchronise() async throws(ProviderError) -> Bool {
        guard hasServer else { return false }
        switch settings[ContractsSettings.synchronise] {
        case .now: return true
        case .later: return false
        case .ask: return interaction.canAsk ? try await interaction.confirm("Synchronise now?") : false
        }
    }
}
