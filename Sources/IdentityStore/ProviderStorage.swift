import CertificateProviding
import Glibc
import SystemPackage

/// One provider's directory in the store.
final class ProviderStorage: IdentityStorage {
    static let parent = "identities"
    let store: IdentityStore
    let provider: ProviderID
    /// The path of this provider's directory, with a final slash.
    let path: String
    /// The property file of the identities that are stored.
    private let propertyFile: String?
    private let onRead: (@Sendable (String) -> Void)?

    /// The provider; `nil` for what belongs to none, as ids do that end with `_`.
    let owner: ProviderID?

    /// - Parameters:
    ///   - onRead: Gets the ``StoreEntry/path`` of each entry that is asked for.
    ///   - hasOwner: Whether errors name the provider.
    init(
        store: IdentityStore, provider: ProviderID, propertyFile: String? = nil,
        onRead: (@Sendable (String) -> Void)? = nil, hasOwner: Bool = true
    ) {
        self.store = store
        self.provider = provider
        (self.propertyFile, self.onRead) = (propertyFile, onRead)
        owner = hasOwner && !provider.rawValue.hasSuffix("_") ? provider : nil
        self.path = "\(store.path)/\(Self.parent)/\(provider)/"
    }

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        onRead?("\(provider)/\(name)")
        guard let content = try content(named: name, in: Self.parent) else { return nil }
        do {
            return try StoredIdentityCoding.decode(content)
        } catch {
            throw describe(error, name, in: Self.parent)
        }
    }

    var entryDirectories: [String] { [path] }

    func entryNames() throws(ProviderError) -> [String] { try names(in: Self.parent) }

    func recordNames() throws(ProviderError) -> [String] { try names(in: Self.records) }

    /// The names in one of the provider's directories; none if it does not exist.
    private func names(in parent: String) throws(ProviderError) -> [String] {
        do throws(SafeDirectory.Refusal) {
            return try (openDirectory(parent)?.entries() ?? []).filter(Self.isPermitted).sorted()
        } catch {
            throw error.error(.storeReadFailed, "The store cannot be read: \(error.reason).", provider: owner)
        }
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        if let flaw = StoredIdentityCoding.flaw(of: identity) { throw writeFailure(flaw) }
        var identity = identity
        if let propertyFile { identity.attributes[StoreEntry.propertyFile] = propertyFile }
        let content = StoredIdentityCoding.encode(identity)
        try changing(name) { root throws(ProviderError) in try write(content, name, in: Self.parent, root) }
    }

    func removeEntry(named name: String) throws(ProviderError) {
        var isGone = false
        do throws(SafeDirectory.Refusal) { try remove(name, &isGone) } catch {
            try store.requireCurrent()
            let outcome = isGone ? "is deleted, but a power failure may restore it" : "was not deleted"
            throw error.error(.deleteFailed, "The stored identity \(outcome): \(error.reason).", provider: owner)
        }
        // An identity that is not here may be in the vault by now.
        try store.requireCurrent()
    }

    private func remove(_ name: String, _ isGone: inout Bool) throws(SafeDirectory.Refusal) {
        guard Self.isPermitted(name) else { throw SafeDirectory.Refusal(reason: Self.nameRule) }
        guard let root = try SafeDirectory.open(store.path), let directory = try openDirectory(Self.parent) else {
            return
        }
        // A missing entry needs no lock, and so no right to write, but a former deletion may not be on disk. A file of a killed
        // writer may be the identity too.
        let isThere = Self.isThere(name, in: directory.descriptor)
        let hasRemains = try !directory.abandonedFiles().isEmpty
        guard isThere || hasRemains else { return try directory.flush(store.files) }
        let lock = try StoreLock(in: root, timeout: store.lockTimeout, store.files)
        defer { withExtendedLifetime(lock) {} }
        for file in try directory.abandonedFiles() + [name] { try directory.remove(file, store.files) }
        isGone = true
        try directory.flush(store.files)
    }
}

extension ProviderStorage {
    func content(named name: String, in parent: String) throws(ProviderError) -> SecretBytes? {
        guard Self.isPermitted(name) else { throw readFailure(Self.nameRule, of: subject(name, in: parent)) }
        let file = try reading(subject(name, in: parent)) { () throws(SafeDirectory.Refusal) in
            try openDirectory(parent)?.read(name, atMost: IdentityStore.maximumEntrySize)
        }
        guard let file else { return nil }
        do {
            return try open(file, name, in: parent)
        } catch SealedEnvelope.Failure.otherKey {
            store.forgetKey()
            do {
                return try open(file, name, in: parent)
            } catch {
                throw describe(error, name, in: parent)
            }
        } catch {
            throw describe(error, name, in: parent)
        }
    }

    /// Creates the store if it does not exist, and calls `body` with its lock held.
    func changing(
        _ name: String, _ body: (SafeDirectory) throws(ProviderError) -> Void
    ) throws(ProviderError) {
        guard Self.isPermitted(name) else { throw writeFailure(Self.nameRule) }
        let root: SafeDirectory
        let lock: StoreLock
        do throws(SafeDirectory.Refusal) {
            root = try SafeDirectory.create(store.path, store.files)
            lock = try StoreLock(in: root, timeout: store.lockTimeout, store.files)
        } catch {
            // Why the directory is gone.
            try store.requireCurrent()
            throw writeFailure(error)
        }
        defer { withExtendedLifetime(lock) {} }
        try store.requireCurrent()
        // A writer may have died while it made the key.
        root.removeAbandonedFiles(store.files)
        try body(root)
    }

    /// Seals and writes an entry or record. Call it with the lock held.
    func write(
        _ content: SecretBytes, _ name: String, in parent: String, _ root: SafeDirectory
    ) throws(ProviderError) {
        do {
            let key = try keyForSealing(name, in: parent, root)
            let directory = try root.create(parent, store.files).create(provider.rawValue, store.files)
            if let old = try directory.read(name, atMost: IdentityStore.maximumEntrySize),
                let version = SealedEnvelope.version(of: old), version > SealedEnvelope.version
            {
                throw SealedEnvelope.Failure.newerVersion(version)
            }
            let sealed = try SealedEnvelope.seal(content, name: fullName(name, in: parent), key: key)
            guard sealed.count <= IdentityStore.maximumEntrySize else {
                throw SafeDirectory.Refusal(reason: "an entry of \(sealed.count) bytes is too large")
            }
            try directory.write(sealed, to: name, replacing: true, store.files)
        } catch let error as ProviderError {
            throw owner.map(error.attributed) ?? error
        } catch let refusal as SafeDirectory.Refusal {
            throw writeFailure(refusal)
        } catch SealedEnvelope.Failure.newerVersion(let version) {
            throw writeFailure(
                "the entry was written by a newer certprov (format \(version)) and is unchanged; update certprov")
        } catch {
            throw writeFailure("\(error)")
        }
    }
}

extension ProviderStorage {
    /// Whether the name of an entry is permitted. It is a file name: it must not lead to the key or to another
    /// provider's entries, nor look like a temporary file.
    static func isPermitted(_ name: String) -> Bool {
        let bytes = name.utf8
        return (1...128).contains(bytes.count) && bytes.first != UInt8(ascii: ".")
            && !bytes.contains { $0 == UInt8(ascii: "/") || $0 == 0 }
    }

    static let nameRule =
        "its name must have 1 to 128 bytes, no '/' or NUL, and not begin with a dot"

    /// Returns the full name of an entry, which its seal authenticates.
    private func fullName(_ name: String, in parent: String) -> String {
        parent == Self.parent ? "\(provider)/\(name)" : "\(parent)/\(provider)/\(name)"
    }

    func openDirectory(_ parent: String) throws(SafeDirectory.Refusal) -> SafeDirectory? {
        try SafeDirectory.open(store.path)?.directory(parent)?.directory(provider.rawValue)
    }

    private static func isThere(_ name: String, in directory: Int32) -> Bool {
        var raw = CInterop.Stat()
        return fstatat(directory, name, &raw, AT_SYMLINK_NOFOLLOW) == 0
    }

    private func open(_ file: [UInt8], _ name: String, in parent: String) throws -> SecretBytes {
        guard let key = try store.keyForOpening() else { throw SealedEnvelope.Failure.otherKey }
        return try SealedEnvelope.open(file, name: fullName(name, in: parent), key: key)
    }

    /// Returns the key to seal the entry `name` with. Call it with the lock held.
    ///
    /// Creates a key only if no other entry of the store is sealed, nor the private keys of `store:`. Otherwise the lost key
    /// could not be restored without losing the entries that are sealed with the new one.
    private func keyForSealing(_ name: String, in parent: String, _ root: SafeDirectory) throws -> SealingKey {
        if let key = try store.existingKeyForSealing() { return key }
        if let identities = try root.directory(Self.parent) {
            for other in try identities.entries() {
                let names = try identities.directory(other)?.entries() ?? []
                let isOwn = parent == Self.parent && other == provider.rawValue
                guard names.allSatisfy({ $0.hasPrefix(".") || (isOwn && $0 == name) }) else {
                    throw lostKey(beside: other)
                }
            }
        }
        if let directory = try root.directory(Self.records)?.directory(SealedKeyStore.storageID.rawValue),
            try directory.entries().contains(where: { $0.hasPrefix(SealedKeyStore.recordPrefix) })
        {
            throw ProviderError(
                .storeReadFailed,
                "Nothing was stored: the store's key is missing, and the private keys in "
                    + "\(directory.path) are sealed with it. Restore the key, or remove this directory and "
                    + "have new identities made for them: certprov fetch --force.",
                provider: owner)
        }
        return try store.newKeyForSealing()
    }

    private func lostKey(beside other: String) -> ProviderError {
        ProviderError(
            .storeReadFailed,
            "Nothing was stored: the store's key is missing, and the identities in "
                + "\(store.path)/\(Self.parent)/\(other) are sealed with it. Restore the key, or delete these "
                + "identities and fetch them again.",
            provider: owner)
    }
}
