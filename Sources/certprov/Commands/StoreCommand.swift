import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import NamedKeys
import Synchronization
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
                USED says whether the present property file leads to the identity. A key of store: without a stored identity is \
                shown by its URI and label: its certificate is in a file (provider pem), or not issued yet. Named pairs are \
                shown by 'certprov keys list'. Those in the vault of an application are not shown.
                """)

        @OptionGroup var options: GlobalOptions

        func run() async throws {
            try await CommandContext.run(options) { context throws(ProviderError) in
                let used = try await context.usedIdentities(try context.presentConfiguration())
                let entries = try context.identityStore().entries()
                let keys = try await context.keysWithoutIdentity(besides: entries)
                let items =
                    entries.map { entry in StoreItem(entry, isUsed: used.map { $0.contains(entry) }, now: Date()) }
                    + keys.map { key in StoreItem(key, isUsed: used.map { $0.keys.contains(key.reference.publicKey) }) }
                try context.show(StoreDocument(items: items)) {
                    guard !items.isEmpty else { return "" }
                    var table = TextTable(header: ["ENTRY", "SUBJECT", "EXPIRES", "USED", "PROPERTY FILE"])
                    for item in items {
                        table.append([
                            item.entry.withVisibleControls,
                            item.subject.value ?? item.label.map { "(key '\($0.withVisibleControls)')" }
                                ?? "(cannot be read)",
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
            try await CommandContext.run(options) { context throws(ProviderError) in
                let store = try context.identityStore()
                let entries = try store.entries()
                guard let found = entries.first(where: { $0.path == entry }) else {
                    let keys = try await context.keysWithoutIdentity(besides: entries)
                    guard !keys.contains(where: { $0.reference.uri == entry }) else {
                        throw ProviderError(
                            .operationNotAllowed,
                            "'\(entry)' is a key without a stored identity, and is not destroyed: a certificate in a file may "
                                + "need it.")
                    }
                    throw ProviderError(
                        .notFound, "The store has no entry '\(entry.withVisibleControls)'; see: certprov store list")
                }
                let configuration = try context.presentConfiguration()
                let used = try await context.usedIdentities(configuration)
                if used?.contains(found) == true {
                    throw ProviderError(
                        .operationNotAllowed,
                        "The property file leads to the identity '\(found.path)'; delete it with: certprov delete")
                }
                // An identity that could not be listed may be this one.
                if let failure = used?.failures.first(where: { $0.provider == found.provider }) { throw failure }
                // The store has absolute paths.
                let present = configuration?.path.map(RegularFile.absolute)
                if let other = found.propertyFile, other != present, access(other, F_OK) == 0 {
                    let file = other.shellQuoted
                    throw ProviderError(
                        .operationNotAllowed,
                        "The identity '\(found.path)' was stored with another property file, which may still lead to it; delete it "
                            + "with: certprov store delete --config \(file) \(found.path)")
                }
                let interaction = context.interaction
                let other = entries.first { $0.path != found.path && $0.hasSameKey(as: found) }
                let leavesKey = keepKey || other != nil
                if let other, !keepKey {
                    context.remark("the key stays, since the identity '\(other.path)' has it too.")
                }
                if !yes {
                    try context.requirePerson(for: "Deleting '\(found.path)'")
                    let file = found.propertyFile.map { ", stored with \($0.withVisibleControls)," } ?? ""
                    let subject = (try? found.identity.get())?.certificateChain.first?.subject ?? found.path
                    let key = leavesKey ? "" : " and its key"
                    guard try await interaction.confirm("Delete the identity '\(subject)'\(file)\(key)?") else {
                        throw ProviderError(.userCancelled, "Nothing was deleted.")
                    }
                }
                do throws(ProviderError) {
                    if !leavesKey, let key = try found.identity.get().key {
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

extension StoreEntry {
    /// Whether both have a key in a key store, and it is the same one.
    fileprivate func hasSameKey(as other: StoreEntry) -> Bool {
        guard let key = (try? identity.get())?.key else { return false }
        return (try? other.identity.get())?.key?.publicKey == key.publicKey
    }
}

/// The stored identities that a configuration leads to.
private struct UsedIdentities {
    /// The paths of the entries that its providers have asked for.
    let entries: Set<String>
    /// The keys of their stored identities.
    let keys: Set<PublicKeyInfo>
    /// The failures of providers that could not be listed.
    let failures: [ProviderError]

    func contains(_ entry: StoreEntry) -> Bool { entries.contains(entry.path) }
}

extension CommandContext {
    /// Returns the configuration; `nil` if there is none.
    fileprivate func presentConfiguration() throws(ProviderError) -> LogonConfiguration? {
        do throws(ProviderError) { return try configuration() } catch {
            guard error.code == .configurationMissing, options.config == nil else { throw error }
            return nil
        }
    }

    /// Returns the stored identities that a configuration leads to; `nil` without one.
    fileprivate func usedIdentities(
        _ configuration: LogonConfiguration?
    ) async throws(ProviderError) -> UsedIdentities? {
        guard let configuration else { return nil }
        // Two entries may have the same chain, after the file of an identity was moved: only the configuration's own is used.
        let entries = Mutex<Set<String>>([])
        let manager = try await manager(configuration) { path in _ = entries.withLock { $0.insert(path) } }
        var (keys, failures) = (Set<PublicKeyInfo>(), [ProviderError]())
        for provider in try await manager.activeProviders() {
            if let listing = provider.listing {
                let list = await listing.listIdentities()
                keys.formUnion(list.identities.filter(\.isStored).compactMap { $0.certificateChain.first?.publicKey })
                failures += list.failures.map { $0.attributed(to: provider.id) }
            } else if let identity = try provider.getStoredCertificate() {
                keys.insert(identity.certificate.publicKey)
            }
        }
        return UsedIdentities(entries: entries.withLock(\.self), keys: keys, failures: failures)
    }

    /// Returns the keys of `store:` that belong to no stored identity and no named pair.
    fileprivate func keysWithoutIdentity(besides entries: [StoreEntry]) async throws(ProviderError) -> [KeyDescription]
    {
        let store = try identityStore()
        let named = try await NamedKeys(environment(store.storage(for: NamedKeys.storageID))).keyURIs()
        let others = Set(entries.compactMap { try? $0.identity.get().key?.publicKey })
        return try await SealedKeyStore(environment: environment(store.storage(for: SealedKeyStore.storageID)))
            .list().filter { !others.contains($0.reference.publicKey) && !named.contains($0.reference.uri) }
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
    /// Of a key without an identity alone.
    var label: String?

    init(_ key: KeyDescription, isUsed: Bool?) {
        (entry, provider) = (key.reference.uri, SealedKeyStore.storageID.rawValue)
        (subject, expires, status, propertyFile) = (Nullable(nil), Nullable(nil), Nullable(nil), Nullable(nil))
        (used, error, label) = (Nullable(isUsed), Nullable(nil), key.label ?? "")
    }

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
