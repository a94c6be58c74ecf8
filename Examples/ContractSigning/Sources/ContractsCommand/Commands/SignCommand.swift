public import ArgumentParser
import CertificateProviding
import CertprovKit
import CertprovSigning
public import Contracts
import Logon
import ProviderTransport
import Terminal

struct SignCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign", abstract: "Look at a contract, and sign it.",
        discussion: """
            Shows the contract and the path of its PDF, and asks one signatory: each approves for himself. The signature is by the identity \
            of the property file, else by that of the pairing, and says for whom it is; or by one of the person's own, such as a card. \
            Signatories of the modes 1 and 3 need a connection, unless --identity names one of their own: the server sends each a code, in mode \
            3 two, which are typed here. A person who declines does so with contracts abandon.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    @OptionGroup var signatory: SignatoryOption

    @Option(
        help: ArgumentHelp(
            "A property file with the identity of the person who approves: CertificateProvider, such as pkcs11 for a card.",
            valueName: "file"), completion: .file(extensions: ["properties", "plist"]))
    var identity: String?

    func validate() throws {
        if identity?.isEmpty == true { throw ValidationError("--identity needs the name of a property file.") }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let id = try context.queue().find(contract.id).id
            return try await Self.sign(id, for: signatory.signatory, with: identity, context)
        }
    }

    /// Has a signatory sign a contract, and synchronises, if the settings or the person say so. After the last one the calling program is
    /// told.
    ///
    /// - Parameters:
    ///   - signatory: A number or a name; `nil` to ask, where several may approve.
    ///   - identity: A property file with the identity of the person; `nil` for the host's.
    static func sign(
        _ id: String, for signatory: String? = nil, with identity: String? = nil, _ context: Context
    ) async throws(ProviderError) -> ExitStatus {
        let queue = try context.queue()
        let found = try await context.current(id, in: queue)
        try ContractSigner.requireSignable(found)
        let index = try await context.signatory(signatory, of: found)
        let callbacks = try context.callbacks()
        var callback = CallbackJournal.Noted()
        do throws(ProviderError) {
            _ = try await context.signed(id, for: index, with: identity, in: queue) { question in
                // Before the signature: the process may be killed at any time after it, such as at the next question.
                guard question.isLast else { return }
                callback = callbacks.note(
                    .success, to: CallbackURLs(of: question.contract.content), once: .init(id, is: .toValidate))
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

/// The signatory that a subcommand is about.
struct SignatoryOption: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The number or the name of the signatory: the customer, or a contractor.", valueName: "number|name"))
    var signatory: String?

    init() {}
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
    /// Returns a contract with what others have done to it, as far as the server can be asked: two updates of one document cannot be merged.
    func current(_ id: String, in queue: ContractQueue) async throws(ProviderError) -> Contract {
        let found = try queue.find(id)
        guard hasServer, found.content.signatories.count > 1 else { return found }
        do throws(ProviderError) { _ = try await synchronised(isFull: false) } catch {
            remark(
                "What others have signed is not known: \(error.message) If they sign at another host meanwhile, one of the signatures has to be given again."
            )
        }
        return try queue.find(found.id)
    }

    /// Returns the index of the signatory who approves: the one that is named, the only one, or the one whom a person chooses.
    fileprivate func signatory(_ text: String?, of contract: Contract) async throws(ProviderError) -> Int {
        let pending = contract.version.pending
        if let text { return try contract.content.signatory(text, among: pending) }
        guard pending.count > 1 else { return pending[0] }
        let names = pending.map { DisplayText.claim(contract.content.signatories[$0].name) }
        guard interaction.canAsk else {
            throw ProviderError(
                .interactionRequired,
                "Who approves cannot be asked: there is no terminal. Use --signatory with one of: \(names.joined(separator: ", "))."
            )
        }
        return pending[try await interaction.choose("Who approves now?", among: names)]
    }

    /// - Parameter approved: Gets the question that a person has approved.
    fileprivate func signed(
        _ id: String, for signatory: Int, with file: String?, in queue: ContractQueue,
        approved: (ContractQuestion) -> Void
    ) async throws(ProviderError) -> (Contract, [ContractEffect]) {
        let pairing = hasServer ? try Pairing(logon, queue) : nil
        let own = try file.map { file throws(ProviderError) in
            try CertprovLogon(
                configuredBy: file, sections: [ContractsSettings.section, .signingRequests], logger: logger)
        }
        let result: Result<(Contract, [ContractEffect]), ProviderError>
        do throws(ProviderError) {
            let identity =
                if let own {
                    try await own.manager.identity(interaction)
                } else if logon.manager.configuration.providers.isEmpty, let pairing {
                    try await pairing.identity()
                } else {
                    try await logon.manager.identity(interaction)
                }
            var timeStamps = try TimeStampServer.configured(
                by: settings, try logon.manager.environment(of: ProviderID("time-stamps_")))
            timeStamps?.proxy = .environment(SecretReader())
            let signer = ContractSigner(
                queue, try Signer(identity, timeStamps: timeStamps), isByOwnIdentity: own != nil
            ) {
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
                try await signer.sign(id, for: signatory) { question throws(ProviderError) in
                    let isApproved =
                        try await interaction.answer(to: "Sign this contract?", about: question.text) == "y"
                    if isApproved { approved(question) }
                    return isApproved
                } requestCode: { prompt throws(ProviderError) in
                    try await interaction.requestText(prompt)
                })
        } catch { result = .failure(error) }
        await own?.manager.shutdown()
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
