import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import Terminal

/// The subcommands for all that rests in the identity store.
struct StoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store",
        abstract: "Show the identities in this user's store, of whichever property file, and delete those without one.",
        subcommands: [Entries.self, Remove.self])

    struct Entries: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "list",
            abstract: "Show all stored identities, with the property file that each was stored with.",
            discussion: """
                USED says whether the present property file leads to the identity. Those in the vault of an application are \
                not shown, nor is one that stays in its files (provider pem): see 'certprov list'.
                """)

        @OptionGroup var options: GlobalOptions

        func run() async throws {
            try await CommandContext.run(options) { context throws(CertificateProviderError) in
                let used = try await context.usedIdentities(try context.presentConfiguration())
                let items = try context.identityStore().entries().map { entry in
                    StoreItem(entry, isUsed: used.map { $0.contains(entry) }, now: Date())
                }
                try context.show(StoreDocument(items: items)) {
                    guard !items.isEmpty else { return "" }
                    var table = TextTable(header: ["ENTRY", "SUBJECT", "EXPIRES", "USED", "PROPERTY FILE"])
                    for item in items {
                        table.append([
                            item.entry.withVisibleControls, item.subject.value ?? "(cannot be read)",
                            item.expires.value ?? "-", item.used.value.map { $0 ? "yes" : "no" } ?? "-",
                            item.propertyFile.value?.withVisibleControls ?? "-",
                        ])
                    }
                    return table.text
                }
                return .done
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "delete",
            abstract: "Delete one stored identity by its entry, with its key.",
            discussion: """
                For an identity that no property file leads to any more; 'certprov delete' is for the others. A key on a token is \
                destroyed permanently.
                """)

        @OptionGroup var options: GlobalOptions

        @Argument(help: "The entry, as 'certprov store list' shows it.") var entry: String

        @Flag(help: "Leave the key where it is: for one on a token that is gone.")
        var keepKey = false

        @Flag(help: "Do not ask for confirmation.")
        var yes = false

        func run() async throws {
            try await CommandContext.run(options) { context throws(CertificateProviderError) in
                let store = try context.identityStore()
                guard let found = try store.entries().first(where: { $0.path == entry }) else {
                    throw CertificateProviderError(
                        .notFound, "The store has no entry '\(entry.withVisibleControls)'; see: certprov store list")
                }
                let configuration = try context.presentConfiguration()
                let used = try await context.usedIdentities(configuration)
                if used?.contains(found) == true {
                    throw CertificateProviderError(
                        .operationNotAllowed,
                        "The property file leads to the identity '\(found.path)'; delete it with: certprov delete")
                }
                // An identity that could not be listed may be this one.
                if let failure = used?.failures.first(where: { $0.provider == found.provider }) { throw failure }
                if let other = found.propertyFile, other != configuration?.path, access(other, F_OK) == 0 {
                    let file = other.shellQuoted
                    throw CertificateProviderError(
                        .operationNotAllowed,
                        "The identity '\(found.path)' was stored with another property file, which may still lead to it; delete it "
                            + "with: certprov store delete --config \(file) \(found.path)")
                }
                let interaction = context.interaction
                if !yes {
                    try context.requirePerson(for: "Deleting '\(found.path)'")
                    let file = found.propertyFile.map { ", stored with \($0.withVisibleControls)," } ?? ""
                    let subject = (try? found.identity.get())?.certificateChain.first?.subject ?? found.path
                    let key = keepKey ? "" : " and its key"
                    guard try await interaction.confirm("Delete the identity '\(subject)'\(file)\(key)?") else {
                        throw CertificateProviderError(.userCancelled, "Nothing was deleted.")
                    }
                }
                do throws(CertificateProviderError) {
                    if !keepKey, let key = try found.identity.get().key {
                        let keyStores = try context.registry.keyStores(configuration?.keyStores ?? [:]) { id in
                            context.environment(store.storage(for: id))
                        }
                        try await keyStores.store(key.uri).destroy(key, interaction)
                    }
                } catch {
                    var error = error
                    error.message +=
                        " Nothing was deleted. To delete the entry and leave its key where it is, use --keep-key."
                    throw error
                }
                try store.remove(found)
                if options.json {
                    try context.show(StoreDocument(items: [StoreItem(found, isUsed: false, now: Date())])) { "" }
                }
                return .done
            }
        }
    }
}

/// The stored identities that a configuration leads to.
private struct UsedIdentities {
    let identities: [ListedIdentity]
    /// The failures of providers that could not be listed.
    let failures: [CertificateProviderError]

    func contains(_ entry: StoreEntry) -> Bool {
        guard let chain = (try? entry.identity.get())?.certificateChain else { return false }
        return identities.contains { $0.provider == entry.provider && $0.certificateChain == chain }
    }
}

extension CommandContext {
    /// Returns the configuration; `nil` if there is none.
    fileprivate func presentConfiguration() throws(CertificateProviderError) -> LogonConfiguration? {
        do throws(CertificateProviderError) { return try configuration() } catch {
            guard error.code == .configurationMissing, options.config == nil else { throw error }
            return nil
        }
    }

    /// Returns the stored identities that a configuration leads to; `nil` without one.
    fileprivate func usedIdentities(
        _ configuration: LogonConfiguration?
    ) async throws(CertificateProviderError) -> UsedIdentities? {
        guard let configuration else { return nil }
        var (identities, failures): ([ListedIdentity], [CertificateProviderError]) = ([], [])
        for provider in try await manager(configuration).activeProviders() {
            if let listing = provider.listing {
                let list = await listing.listIdentities()
                identities += list.identities.filter(\.isStored)
                failures += list.failures.map { $0.attributed(to: provider.id) }
            } else if let identity = try provider.getStoredCertificate() {
                identities.append(ListedIdentity(identity, isStored: true))
            }
        }
        return UsedIdentities(identities: identities, failures: failures)
    }
}

/// The result of `store list` and `store delete`.
private struct StoreDocument: CommandDocument {
    static let kind = "StoredIdentities"

    let items: [StoreItem]
}

private struct StoreItem: Encodable {
    let entry: String
    let provider: String
    /// Null for an entry that cannot be read.
    let subject: Nullable<String>
    let expires: Nullable<String>
    let status: Nullable<String>
    let propertyFile: Nullable<String>
    /// Null without a property file.
    let used: Nullable<Bool>
    let error: Nullable<Enveloped<ErrorDocument>>

    init(_ entry: StoreEntry, isUsed: Bool?, now: Date) {
        let chain = (try? entry.identity.get())?.certificateChain
        self.entry = entry.path
        provider = entry.provider.rawValue
        subject = Nullable(chain?.first?.subject)
        expires = Nullable(chain.map { CertificateChain.expiry(of: $0).rfc3339 })
        status = Nullable(chain.map { CertificateChain.status(of: $0, at: now).rawValue })
        propertyFile = Nullable(entry.propertyFile)
        used = Nullable(isUsed)
        if case .failure(let failure) = entry.identity {
            error = Nullable(Enveloped(ErrorDocument(failure)))
        } else {
            error = Nullable(nil)
        }
    }
}
