import ArgumentParser
import CertificateProviding
import IdentityStore
import Logon
import Terminal

struct Password: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "password",
        abstract:
            "Set the user's new password at the platform server, for an application that has registered with one.",
        discussion: """
            The password itself is changed at the server. This command asks the server whether it accepts the new one, and keeps \
            it in the vault then. A password that the server has rejected is not sent again, unless a user types it.
            """)

    @OptionGroup var options: GlobalOptions

    @OptionGroup var new: NewSecret

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try context.application()
            let interaction = context.interaction
            try await context.unlock(vault, of: manager, interaction)
            try await manager.requirePassword()
            let password = try await context.secret(
                new.source, "New password of the user of \(vault.applicationID) at the server", interaction)
            try await manager.changePassword(to: password, isAutomatic: new.source != .prompt)
            if options.json { try context.show(PasswordDocument(application: vault.applicationID)) { "" } }
            return .done
        }
    }
}

/// The result of `password`.
private struct PasswordDocument: CommandDocument {
    static let kind = "PasswordChange"

    let application: String
}
