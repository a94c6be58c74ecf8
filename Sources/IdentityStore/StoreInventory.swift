package import CertificateProviding

/// An entry of the identity store, whichever configuration it is from.
package struct StoreEntry: Sendable {
    package let provider: ProviderID
    /// The name that the provider has given it.
    package let name: String
    /// The identity, or why it cannot be read.
    package let identity: Result<StoredIdentity, ProviderError>

    /// The provider and the name, which identify it.
    package var path: String { "\(provider)/\(name)" }
    /// The property file that the identity was stored with; `nil` for none.
    package var propertyFile: String? { (try? identity.get())?.attributes[Self.propertyFile] }

    /// An `@` and the name of a plugin's configuration, with which its host ends each name; `nil` for an entry of another provider.
    fileprivate var configuration: Substring? { name.lastIndex(of: "@").map { name[$0...] } }

    /// The attribute of a stored identity that has the property file.
    static let propertyFile = "property-file"
}

extension IdentityStore {
    /// Returns the entries of all providers, by provider and name.
    ///
    /// - Throws: `storeReadFailed` for a directory that cannot be read.
    package func entries() throws(ProviderError) -> [StoreEntry] {
        var entries: [StoreEntry] = []
        for directory in try providerNames() {
            guard let provider = ProviderID(rawValue: directory) else { continue }
            let storage = storage(for: provider)
            for name in try storage.entryNames() {
                do throws(ProviderError) {
                    guard let identity = try storage.entry(named: name) else { continue }
                    entries.append(StoreEntry(provider: provider, name: name, identity: .success(identity)))
                } catch {
                    entries.append(StoreEntry(provider: provider, name: name, identity: .failure(error)))
                }
            }
        }
        return entries
    }

    /// Removes an entry, and the records that the provider has named after it; with the last entry of a plugin's configuration, all
    /// records of that. Its key, where that is in a key store, is the caller's to destroy before.
    ///
    /// - Throws: As ``CertificateProviding/IdentityStorage/removeRecord(named:)`` and
    ///   ``CertificateProviding/IdentityStorage/removeEntry(named:)``.
    package func remove(_ entry: StoreEntry) throws(ProviderError) {
        let storage = storage(for: entry.provider)
        var ending = "-" + entry.name
        if let configuration = entry.configuration,
            try storage.entryNames().allSatisfy({ $0 == entry.name || !$0.hasSuffix(configuration) })
        {
            ending = String(configuration)
        }
        for record in try storage.recordNames() where record.hasSuffix(ending) {
            try storage.removeRecord(named: record)
        }
        try storage.removeEntry(named: entry.name)
    }

    /// The names of the providers' directories.
    private func providerNames() throws(ProviderError) -> [String] {
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.open(path)?.directory(ProviderStorage.parent)
            return try (directory?.entries() ?? []).filter { !$0.hasPrefix(".") }.sorted()
        } catch {
            throw ProviderError(.storeReadFailed, "The store cannot be read: \(error.reason).")
        }
    }
}
