import ArgumentParser
import CertificateProviding
import FoundationEssentials
import IdentityStore
import Logon
import Terminal

struct Status: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show whether the application is registered, its connection, and the attempts that are left.",
        discussion: "Prompts for nothing. The content of a vault that stays locked is not shown.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try context.application()
            // Why it is locked is a part of the status.
            do throws(ProviderError) { try await context.unlock(vault, of: manager) } catch {
                guard error.code != .vaultDestroyed, error.reason != .busy else { throw error }
                context.remark("the vault stays locked: \(error.message)")
            }
            let state = try await manager.registrationState()
            var status = StatusDocument(
                application: vault.applicationID, state: state.rawValue,
                attemptsLeft: Nullable(state == .notRegistered ? nil : try vault.attemptsLeft()),
                isPasscodeExpired: try vault.isPasscodeExpired())
            if state == .registeredUnlocked {
                status.connectionID = Nullable(try await manager.registeredConnection().description)
                if let identity = try await manager.registeredIdentity() {
                    status.provider = Nullable(identity.provenance.provider.rawValue)
                    status.notAfter = Nullable(identity.expiry.rfc3339)
                }
            }
            if status.isPasscodeExpired { context.remark("the passcode has expired; change it: certprov passcode") }
            try context.show(status) { status.text }
            return .done
        }
    }
}

/// The result of `status`.
private struct StatusDocument: CommandDocument {
    static let kind = "Status"

    let application: String
    /// `notRegistered`, `registeredLocked` or `registeredUnlocked`: for this command, not for others.
    let state: String
    /// How many wrong passcodes may follow; null for any number, and without a vault.
    let attemptsLeft: Nullable<Int>
    let isPasscodeExpired: Bool
    /// Null unless the vault is unlocked.
    var connectionID = Nullable<String>(nil)
    var provider = Nullable<String>(nil)
    var notAfter = Nullable<String>(nil)

    var text: String {
        let words = ["notRegistered": "not registered", "registeredLocked": "registered, locked"]
        let rows: [(String, String?)] = [
            ("application", application), ("state", words[state] ?? "registered, unlocked"),
            ("connection", connectionID.value), ("provider", provider.value), ("certificate until", notAfter.value),
            ("attempts left", attemptsLeft.value.map(String.init)),
        ]
        return rows.compactMap { name, value in
            value.map { "\(name):" + String(repeating: " ", count: max(1, 19 - name.count)) + $0 + "\n" }
        }.joined()
    }
}
