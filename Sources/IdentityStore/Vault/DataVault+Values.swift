package import CertificateProviding

extension DataVault {
    /// The greatest size of a value in bytes.
    package static let maximumValue = 1_000_000

    /// Returns whether a text may be the name of a value: 1 to 128 bytes, no `/` or NUL, and no dot at its beginning.
    package static func isValid(valueName: String) -> Bool { ProviderStorage.isPermitted(valueName) }

    private static let values = "values"
    private var values: ProviderStorage {
        ProviderStorage(store: sealed, provider: ProviderID("application"), hasOwner: false)
    }

    /// Returns a named value; `nil` if there is none.
    ///
    /// - Throws: `vaultLocked`, also without a vault; `storeReadFailed`, also for a name that has not 1 to 128 bytes, has a
    ///   `/` or NUL, or begins with a dot.
    package func value(named name: String) throws(ProviderError) -> SecretBytes? {
        // A name without a file must not look like an unlocked vault.
        _ = try key.existingKey()
        return try values.content(named: name, in: Self.values)
    }

    /// Sets a named value. It is on disk, sealed, when the function returns.
    ///
    /// - Throws: `vaultLocked`, `storeWriteFailed`, also for a name as above and a value of more than ``maximumValue`` bytes.
    package func setValue(_ value: SecretBytes, named name: String) throws(ProviderError) {
        _ = try key.existingKey()
        guard value.count <= Self.maximumValue else {
            throw ProviderError(
                .storeWriteFailed, "A value has at most \(Self.maximumValue) bytes; store a shorter one.")
        }
        let values = values
        try values.changing(name) { root throws(ProviderError) in
            try values.write(value, name, in: Self.values, root)
        }
    }

    /// Removes a named value. Succeeds if there is none.
    ///
    /// - Throws: `vaultLocked`, `storeWriteFailed`.
    package func removeValue(named name: String) throws(ProviderError) {
        _ = try key.existingKey()
        let values = values
        try values.changing(name) { _ throws(ProviderError) in
            do throws(SafeDirectory.Refusal) {
                guard let directory = try values.openDirectory(Self.values) else { return }
                // A file of a killed writer may be the value too.
                for file in try directory.abandonedFiles() + [name] { try directory.remove(file, files.files) }
                try directory.flush(files.files)
            } catch { throw files.unwritable(error) }
        }
    }

    /// The names of all values, in alphabetical order.
    ///
    /// - Throws: `vaultLocked`, `storeReadFailed`.
    package func valueNames() throws(ProviderError) -> [String] {
        _ = try key.existingKey()
        return try files.names(in: "\(sealed.path)/\(Self.values)/\(values.provider)")
    }
}

/// A provider's part of the vault, or of the store that the application has without one: looked up at each use.
struct VaultStorage: ForwardingStorage {
    let vault: DataVault
    let provider: ProviderID

    func current() throws(ProviderError) -> any IdentityStorage { try vault.part(of: provider) }

    var entryDirectories: [String] { vault.entryDirectories(of: provider) }
}

/// Storage that finds at each use which other one it stands for.
package protocol ForwardingStorage: IdentityStorage {
    func current() throws(ProviderError) -> any IdentityStorage
}

extension ForwardingStorage {
    package func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try current().entry(named: name)
    }

    package func entryNames() throws(ProviderError) -> [String] { try current().entryNames() }

    package func recordNames() throws(ProviderError) -> [String] { try current().recordNames() }

    package func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try current().setEntry(identity, named: name)
    }

    package func removeEntry(named name: String) throws(ProviderError) {
        try current().removeEntry(named: name)
    }

    package func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try current().record(named: name)
    }

    package func removeRecord(named name: String) throws(ProviderError) {
        try current().removeRecord(named: name)
    }

    package func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) { try current().updateRecord(named: name, change) }

    package func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try current().leaseRecord(named: name)
    }
}
