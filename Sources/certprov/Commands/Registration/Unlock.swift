import ArgumentParser
import CertificateProviding
import IdentityStore
import Logon
import Terminal

struct Unlock: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock",
        abstract: "Try the passcode of the application's vault, and keep it unlocked for a time.",
        discussion: """
            Each command unlocks the vault for itself. With --for, the kernel's session keyring keeps its key for all \
            commands of this login session. A right passcode sets the number of attempts back.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(name: .customLong("for"), help: ArgumentHelp("How long, such as 90s, 15m or 8h.", valueName: "time"))
    var time: SpanOfTime?

    @Flag(help: "Ask for the passcode, though Passcode.source has one.")
    var ask = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try await context.registeredApplication()
            // By a passcode, and not by what the session keeps.
            let interaction = context.interaction
            if ask {
                let passcode = try await interaction.requestSecret("Passcode of \(vault.applicationID)")
                try await manager.unlock(passcode: passcode, interaction)
            } else {
                try await manager.unlock(interaction)
            }
            if let time { try vault.keepUnlockedInSession(for: time.duration) }
            try context.show(LockDocument(application: vault.applicationID, isUnlocked: time != nil)) {
                time.map { "\(vault.applicationID) is unlocked for \($0)\n" }
                    ?? "the passcode is right; to keep the vault unlocked, use --for\n"
            }
            return .done
        }
    }
}

struct Lock: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Lock the application's vault, which 'certprov unlock --for' keeps unlocked.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (_, vault) = try context.application()
            vault.forgetInSession()
            if options.json {
                try context.show(LockDocument(application: vault.applicationID, isUnlocked: false)) { "" }
            }
            return .done
        }
    }
}

/// The result of `unlock` and `lock`.
private struct LockDocument: CommandDocument {
    static let kind = "VaultLock"

    let application: String
    /// Whether the login session keeps the vault unlocked.
    let isUnlocked: Bool
}

struct Passcode: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "passcode",
        abstract: "Change the passcode of the application's vault.",
        discussion: """
            The present passcode is that of Passcode.source, if the property file has it; else it is asked for. So is the \
            new one, unless --new-source names it. Change the secret of Passcode.source afterwards.
            """)

    @OptionGroup var options: GlobalOptions

    @OptionGroup var new: NewSecret

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try await context.registeredApplication()
            let interaction = context.interaction
            let source = manager.configuration.registration.passcodeSource ?? .prompt
            var old: SecretBytes?
            if try !vault.hasNoPasscode() {
                old = try await context.secret(source, "Passcode of \(vault.applicationID)", interaction)
            }
            let passcode = try await context.secret(
                new.source, "New passcode of \(vault.applicationID)", interaction)
            if new.source == .prompt, try await interaction.requestSecret("The same passcode again") != passcode {
                throw ProviderError(.userCancelled, "The two passcodes differ; nothing was changed.")
            }
            try await manager.changePasscode(
                from: old, to: passcode, isAutomatic: source != .prompt, interaction)
            if options.json { try context.show(PasscodeDocument(application: vault.applicationID)) { "" } }
            return .done
        }
    }
}

/// The result of `passcode`.
private struct PasscodeDocument: CommandDocument {
    static let kind = "PasscodeChange"

    let application: String
}

extension CommandContext {
    /// Reads a secret, or asks for it.
    func secret(
        _ source: SecretSource, _ prompt: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> SecretBytes {
        source == .prompt ? try await interaction.requestSecret(prompt) : try secrets.read(source)
    }
}
