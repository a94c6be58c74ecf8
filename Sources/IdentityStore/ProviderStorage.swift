import CertificateProviding
import Glibc
import SystemPackage

/// One provider's directory in the store.
final class ProviderStorage: IdentityStorage {
    private static let parent = "identities"
    let store: IdentityStore
    let provider: ProviderID
    /// Of this provider's directory, with a slash at its end.
    let path: String
    private let watch: EntryWatch

    init(store: IdentityStore, provider: ProviderID) {
        self.store = store
        self.watch = EntryWatch(now: store.now)
        self.provider = provider
        self.path = "\(store.path)/\(Self.parent)/\(provider)/"
    }

    func version(ofEntryNamed name: String) throws(CertificateProviderError) -> EntryVersion? {
        if let version = watch.version(ofUnchanged: name) { return version }
        guard Self.isPermitted(name) else { throw readFailure(Self.nameRule) }
        if let version = watch.look(at: path + name, name: name) { return version }
        // There is none, or the way to it is not safe, which is an error. What is there is read with the same care.
        return try reading { () throws(SafeDirectory.Refusal) in
            try openDirectory(Self.parent).flatMap { Self.version(of: name, in: $0.descriptor) }
        }
    }

    func entry(named name: String) throws(CertificateProviderError) -> StoredIdentity? {
        guard let content = try content(named: name, in: Self.parent) else { return nil }
        do {
            return try content.withUnsafeBytes { try StoredIdentityCoding.decode($0) }
        } catch {
            throw describe(error, name, in: Self.parent)
        }
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(CertificateProviderError) {
        if let flaw = StoredIdentityCoding.flaw(of: identity) { throw writeFailure(flaw) }
        let content = StoredIdentityCoding.encode(identity)
        try changing(name) { root throws(CertificateProviderError) in try write(content, name, in: Self.parent, root) }
    }

    func removeEntry(named name: String) throws(CertificateProviderError) {
        var isGone = false
        do throws(SafeDirectory.Refusal) {
            guard Self.isPermitted(name) else { throw SafeDirectory.Refusal(reason: Self.nameRule) }
            watch.end()
            guard let root = try SafeDirectory.open(store.path), let directory = try openDirectory(Self.parent) else {
                return
            }
            // Nothing there needs no lock, and so no right to write. What a killed writer left may be the identity too.
            let isThere = Self.version(of: name, in: directory.descriptor) != nil
            let hasRemains = try !directory.abandonedFiles().isEmpty
            guard isThere || hasRemains else { return }
            let lock = try StoreLock(in: root, timeout: store.lockTimeout, store.files)
            defer { withExtendedLifetime(lock) {} }
            for file in try directory.abandonedFiles() + [name] { try directory.remove(file, store.files) }
            isGone = true
            try directory.flush(store.files)
        } catch {
            let outcome = isGone ? "is deleted, but a loss of power may bring it back" : "was not deleted"
            throw CertificateProviderError(
                .deleteFailed, "The stored identity \(outcome): \(error.reason).", provider: provider)
        }
    }
}

extension ProviderStorage {
    func content(named name: String, in parent: String) throws(CertificateProviderError) -> SecretBytes? {
        guard Self.isPermitted(name) else { throw readFailure(Self.nameRule) }
        let file = try reading { () throws(SafeDirectory.Refusal) in
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

    /// Makes the store where there is none, and lends it to `body` under its lock.
    func changing(
        _ name: String, _ body: (SafeDirectory) throws(CertificateProviderError) -> Void
    ) throws(CertificateProviderError) {
        guard Self.isPermitted(name) else { throw writeFailure(Self.nameRule) }
        let root: SafeDirectory
        let lock: StoreLock
        do throws(SafeDirectory.Refusal) {
            root = try SafeDirectory.create(store.path, store.files)
            lock = try StoreLock(in: root, timeout: store.lockTimeout, store.files)
        } catch {
            throw writeFailure(error.reason)
        }
        defer { withExtendedLifetime(lock) {} }
        // A writer may have died while it made the key.
        root.removeAbandonedFiles(store.files)
        try body(root)
    }

    /// Under the lock.
    func write(
        _ content: SecretBytes, _ name: String, in parent: String, _ root: SafeDirectory
    ) throws(CertificateProviderError) {
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
        } catch let error as CertificateProviderError {
            throw error.attributed(to: provider)
        } catch let refusal as SafeDirectory.Refusal {
            throw writeFailure(refusal.reason)
        } catch SealedEnvelope.Failure.newerVersion(let version) {
            throw writeFailure(
                "the entry was written by a newer certprov (format \(version)) and is left alone; update")
        } catch {
            throw writeFailure("\(error)")
        }
    }
}

extension ProviderStorage {
    /// Whether a provider may call an entry so. The name is a file's: it must not lead to the key or to another
    /// provider's entries, nor look like a temporary file.
    static func isPermitted(_ name: String) -> Bool {
        let bytes = name.utf8
        return (1...128).contains(bytes.count) && bytes.first != UInt8(ascii: ".")
            && !bytes.contains { $0 == UInt8(ascii: "/") || $0 == 0 }
    }

    static let nameRule =
        "the name of an entry has 1 to 128 bytes, no '/' or NUL, and does not begin with a dot"

    /// What an entry's seal is bound to.
    private func fullName(_ name: String, in parent: String) -> String {
        parent == Self.parent ? "\(provider)/\(name)" : "\(parent)/\(provider)/\(name)"
    }

    func openDirectory(_ parent: String) throws(SafeDirectory.Refusal) -> SafeDirectory? {
        try SafeDirectory.open(store.path)?.directory(parent)?.directory(provider.rawValue)
    }

    private static func version(of name: String, in directory: Int32) -> EntryVersion? {
        var raw = CInterop.Stat()
        return fstatat(directory, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 ? EntryVersion(raw) : nil
    }

    private func open(_ file: [UInt8], _ name: String, in parent: String) throws -> SecretBytes {
        guard let key = try store.keyForOpening() else { throw SealedEnvelope.Failure.otherKey }
        return try SealedEnvelope.open(file, name: fullName(name, in: parent), key: key)
    }

    /// Returns the key to seal the entry `name` with. Under the lock.
    ///
    /// A new key is made only for a store in which nothing but that entry is sealed: beside a new key, the lost one
    /// could not be brought back without losing what was sealed since.
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
        return try store.newKeyForSealing()
    }

    private func lostKey(beside other: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed,
            "Nothing was stored: the key that seals the store is gone, and \(store.path)/\(Self.parent)/\(other) "
                + "has identities that only that key opens. Bring the key back, or delete those and fetch them anew.",
            provider: provider)
    }
}
