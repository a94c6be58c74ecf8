import ArgumentParser
import CertificateProviding
import CertprovKit
import Contracts
import Logon
import Terminal

struct PairCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pair", abstract: "Pair this host with the server, by a token.",
        discussion: """
            The server issues an identity for the token: every later request goes over mutual TLS with it, and no password rests on \
            the host. Asks for the token without echo, unless --token-source names where it is.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(
        help: ArgumentHelp(
            "Where the token is: file:PATH, env:NAME, fd:N, systemd:NAME or prompt.", valueName: "source"))
    var tokenSource: String?

    func validate() throws {
        guard let tokenSource else { return }
        guard SecretSource(tokenSource) != nil else {
            throw ValidationError("--token-source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
        }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let source = tokenSource.flatMap { SecretSource($0) } ?? .prompt
            guard source != .prompt || context.interaction.canAsk else {
                throw ProviderError(
                    .interactionRequired,
                    "The token cannot be asked for: there is no terminal. Name where it is with --token-source.")
            }
            let token =
                source == .prompt
                ? try await context.interaction.requestSecret("Token of the server") : try SecretReader().read(source)
            return try await Self.pair(token, context)
        }
    }

    /// Pairs the host, and shows the account.
    ///
    /// - Parameter isCalled: Whether another program wants it, such as any web page: a person sees the server and the account, and confirms.
    static func pair(
        _ token: SecretBytes, isCalled: Bool = false, _ context: Context
    ) async throws(ProviderError) -> ExitStatus {
        guard !isCalled || context.interaction.canAsk else {
            throw ProviderError(
                .interactionRequired,
                "Another program wants to pair this host, and there is no terminal to ask at. If that is right, run at one: contracts pair"
            )
        }
        let (account, isTokenUsed) = try await context.pairing { pairing throws(ProviderError) in
            try await pairing.pair(token, context.interaction) { old, new throws(ProviderError) in
                if isCalled { try await context.confirmPairing(with: pairing.authority, from: old, to: new) }
            }
        }
        try context.show(PairingDocument(account: account)) {
            isTokenUsed
                ? "This host is paired for \(DisplayText.visible(account)).\n"
                : "This host is paired for \(DisplayText.visible(account)) already. The token was not used.\n"
        }
        return .done
    }
}

struct UnpairCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unpair",
        abstract: "End the pairing: tell the server, and delete the identity and the contracts here.")

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Delete signatures that were not sent, too, and do without the server's answer.")
    var force = false

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            if !yes {
                let question = "Delete the pairing and \(try context.queue().entries().count) contracts of this host?"
                guard try await context.interactionOrYes.confirm(question) else {
                    throw ProviderError(.userCancelled, "The host stays paired.")
                }
            }
            try await context.pairing { pairing throws(ProviderError) in
                try await pairing.unpair(isForced: force)
            }
            try context.show(PairingDocument(account: nil)) { "This host is not paired any more.\n" }
            return .done
        }
    }
}

/// The result of `pair` and `unpair`.
struct PairingDocument: CommandDocument {
    static let kind = "ContractPairing"

    let account: Nullable<String>

    init(account: String?) { self.account = Nullable(account) }
}

extension Context {
    fileprivate func confirmPairing(
        with server: String, from old: String?, to new: String?
    ) async throws(ProviderError) {
        guard let new else {
            throw ProviderError(
                .operationNotAllowed,
                "Another program wants to pair this host with \(server). Its account cannot be shown before the pairing, since "
                    + "the settings have no trust anchor or pin. If that is right, set Contracts.trust-anchors, or run: contracts pair"
            )
        }
        var question = "Another program wants to pair this host with \(server) for \(DisplayText.claim(new))."
        if let old, old != new {
            question += " Leave \(DisplayText.claim(old)), and delete its contracts here?"
        } else {
            question += " Pair it?"
        }
        guard try await interaction.confirm(question) else {
            throw ProviderError(
                .userCancelled,
                old.map { "The host stays paired for \(DisplayText.claim($0))." } ?? "The host is not paired.")
        }
    }

    /// Uses the pairing of this host, and closes its resources.
    func pairing<Result>(
        _ body: (Pairing) async throws(ProviderError) -> Result
    ) async throws(ProviderError) -> Result {
        let pairing = try Pairing(logon, try queue())
        do throws(ProviderError) {
            let result = try await body(pairing)
            await pairing.shutdown()
            return result
        } catch {
            await pairing.shutdown()
            throw error
        }
    }
}
