import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import NamedKeys
import Terminal

struct Register: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "register",
        abstract: "Register the application of the property file with its platform server.",
        discussion: """
            With UserCreationPolicy=certificate, the provider obtains an identity, and the server learns the user from its \
            certificate. Otherwise the user's name and password are sent. The data of the application is then in a \
            vault behind a passcode: that of Passcode.source, or one that the user chooses. An application that is \
            registered stays so.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Ask for the password and the activation code, though the property file has their sources.")
    var ask = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try context.application()
            try await context.unlock(vault, of: manager)
            defer { context.log(manager.decisions) }
            let connection = try await manager.register(context.interaction, asksForSecrets: ask)
            let document = RegistrationDocument(
                application: vault.applicationID, connectionID: connection.id.description, isNew: connection.isNew)
            try context.show(document) {
                "\(vault.applicationID) is \(connection.isNew ? "" : "already ")registered, with the connection "
                    + "\(connection.id)\n"
            }
            return .done
        }
    }
}

/// The result of `register`.
private struct RegistrationDocument: CommandDocument {
    static let kind = "Registration"

    let application: String
    let connectionID: String
    /// False if it was registered before.
    let isNew: Bool
}

struct Unregister: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unregister",
        abstract: "End the registration: the connection on the server, the identity and the vault.",
        discussion: """
            If the server cannot be asked, or refuses, nothing is deleted. With --force, identity and vault are deleted \
            all the same, also a vault whose passcode is unknown: providers then delete what they can without it, and keys in \
            key stores stay there.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Delete the identity and the vault though the server or the passcode is out of reach.")
    var force = false

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try context.application()
            let interaction = context.interaction
            do throws(ProviderError) {
                try await context.unlock(vault, of: manager, force ? nil : interaction)
            } catch {
                guard force, error.code != .vaultDestroyed else { throw error }
                context.remark("the vault stays locked: \(error.message)")
            }
            var state = LogonState.registeredLocked
            do throws(ProviderError) { state = try await manager.registrationState() } catch {
                // A vault whose key is damaged can still be destroyed.
                guard force, error.code == .storeReadFailed else { throw error }
            }
            if state != .notRegistered {
                try await context.confirm(
                    "Unregister \(vault.applicationID)? This deletes its identity"
                        + (state == .registeredLocked ? ", unread," : "") + " and everything in its vault.", yes)
            }
            defer { context.log(manager.decisions) }
            let pairs = state == .registeredUnlocked ? await context.pairsOutside(manager) : []
            if force {
                try await manager.unregisterByForce(interaction)
            } else {
                try await manager.unregister(interaction)
            }
            if state == .registeredLocked, !manager.remainingKeys.isEmpty {
                context.remark("the vault was not read.\(manager.remainingKeys)")
            }
            for pair in pairs {
                context.remark(
                    "the private key of the named pair '\(pair.name.description.withVisibleControls)' is still there; destroy it with "
                        + "the key store's tool: \(pair.uri.withVisibleControls)")
            }
            for decision in manager.decisions where decision.step == .delete && decision.outcome == .stopped {
                context.remark("a provider has not deleted its own data: \(decision)")
            }
            vault.forgetInSession()
            try context.show(EndDocument(application: vault.applicationID, wasRegistered: state != .notRegistered)) {
                "\(vault.applicationID) is \(state == .notRegistered ? "not" : "no longer") registered\n"
            }
            return .done
        }
    }
}

/// The result of `unregister`.
private struct EndDocument: CommandDocument {
    static let kind = "RegistrationEnd"

    let application: String
    let wasRegistered: Bool
}

struct Update: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "update",
        abstract: "Replace the certificate of the registered application: delete it, then obtain another one.",
        discussion: """
            If no new identity is obtained, there is none, and the next request asks the provider again. 'certprov renew' \
            keeps the identity until the new one works.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try context.application()
            let interaction = context.interaction
            try await context.unlock(vault, of: manager, interaction)
            if try await manager.registrationState() == .registeredUnlocked, !manager.providers.isEmpty {
                let objects = try await manager.announcedDeletions()
                let destroyed = objects.isEmpty ? "" : " This permanently destroys: \(objects.joined(separator: "; "))."
                try await context.confirm(
                    "Delete the identity of \(vault.applicationID) before there is a new one?\(destroyed)", yes)
            }
            defer { context.log(manager.decisions) }
            let identity = ListedIdentity(try await manager.updateCertificate(interaction), isStored: true)
            let now = Date()
            guard let document = IdentityDocument(identity, now: now) else {
                throw ProviderError(.internal, "The identity has no certificate.")
            }
            try context.show(UpdateDocument(identity: document)) { List.table([identity], now: now) }
            return .done
        }
    }
}

/// The result of `update`.
private struct UpdateDocument: CommandDocument {
    static let kind = "Identity"

    let identity: IdentityDocument
}

extension CommandContext {
    /// Asks for a consent, unless `isGiven`.
    ///
    /// - Throws: `interactionRequired` without a person, `userCancelled` for a no.
    fileprivate func confirm(_ question: String, _ isGiven: Bool) async throws(ProviderError) {
        guard !isGiven else { return }
        try requirePerson(for: "This")
        guard try await interaction.confirm(question) else {
            throw ProviderError(.userCancelled, "Nothing was changed.")
        }
    }
}
