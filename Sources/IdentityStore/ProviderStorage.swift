import CertificateProviding
import Glibc
import SystemPackage

/// One provider's directory in the store.
final class ProviderStorage: IdentityStorage {
    private static let parent = "identities"
    private static let records = "records"
    private let store: IdentityStore
    private let provider: ProviderID
    /// Of this provider's directory, with a slash at its end.
    private let path: String

    init(store: IdentityStore, provider: ProviderID) {
        self.store = store
        self.provider = provider
        self.path = "\(store.path)/\(Self.parent)/\(provider)/"
    }

    func version(ofEntryNamed name: String) throws(CertificateProviderError) -> EntryVersion? {
        guard Self.isPermitted(name) else { throw readFailure(Self.nameRule) }
        // One system call where there is an entry, and by its path: a descriptor that is kept open would go on to see a
        // store that was moved aside. Whether the path is safe is looked at before anything is read.
        if let version = Self.version(of: path + name, in: AT_FDCWD) { return version }
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
        try setContent(StoredIdentityCoding.encode(identity), named: name, in: Self.parent)
    }

    func record(named name: String) throws(CertificateProviderError) -> SecretBytes? {
        try content(named: name, in: Self.records)
    }

    func setRecord(_ record: SecretBytes, named name: String) throws(CertificateProviderError) {
        try setContent(record, named: name, in: Self.records)
    }

    func removeEntry(named name: String) throws(CertificateProviderError) {
        var isGone = false
        do throws(SafeDirectory.Refusal) {
            guard Self.isPermitted(name) else { throw SafeDirectory.Refusal(reason: Self.nameRule) }
            guard let root = try SafeDirectory.open(store.path), let directory = try openDirectory(Self.parent) else {
                return
            }
            // Nothing there needs no lock, and so no right to write. What a killed writer left may be the identity too.
            let isThere = Self.version(of: name, in: directory.descriptor) != nil
            let hasRemains = try !directory.abandonedFiles().isEmpty
            guard isThere || hasRemains else { return }
            let lock = try StoreLock(in: root, patience: store.lockPatience, store.files)
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
    private func content(named name: String, in parent: String) throws(CertificateProviderError) -> SecretBytes? {
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

    private func setContent(
        _ content: SecretBytes, named name: String, in parent: String
    ) throws(CertificateProviderError) {
        guard Self.isPermitted(name) else { throw writeFailure(Self.nameRule) }
        do {
            let root = try SafeDirectory.create(store.path, store.files)
            let lock = try StoreLock(in: root, patience: store.lockPatience, store.files)
            defer { withExtendedLifetime(lock) {} }
            // A writer may have died while it made the key.
            root.removeAbandonedFiles(store.files)
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
    private static func isPermitted(_ name: String) -> Bool {
        // In bytes: this is a good part of what looking up a version costs beside its system call.
        let bytes = name.utf8
        return (1...128).contains(bytes.count) && bytes.first != UInt8(ascii: ".")
            && !bytes.contains { $0 == UInt8(ascii: "/") || $0 == 0 }
    }

    private static let nameRule =
        "the name of an entry has 1 to 128 bytes, no '/' or NUL, and does not begin with a dot"

    /// What an entry's seal is bound to.
    private func fullName(_ name: String, in parent: String) -> String {
        parent == Self.parent ? "\(provider)/\(name)" : "\(parent)/\(provider)/\(name)"
    }

    private func openDirectory(_ parent: String) throws(SafeDirectory.Refusal) -> SafeDirectory? {
        try SafeDirectory.open(store.path)?.directory(parent)?.directory(provider.rawValue)
    }

    private static func version(of name: String, in directory: Int32) -> EntryVersion? {
        var raw = CInterop.Stat()
        guard fstatat(directory, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
        let status = Stat(rawValue: raw)
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        return EntryVersion(
            SIMD8(
                Int64(bitPattern: UInt64(status.deviceID.rawValue)), Int64(bitPattern: UInt64(status.inode.rawValue)),
                status.size, Int64(modified.tv_sec), Int64(modified.tv_nsec), Int64(changed.tv_sec),
                Int64(changed.tv_nsec), 0))
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
            "The identity was not stored: the key that seals the store is gone, and \(store.path)/\(Self.parent)/\(other) "
                + "has identities that only that key opens. Bring the key back, or delete those and fetch them anew.",
            provider: provider)
    }

    private func reading<T>(
        _ body: () throws(SafeDirectory.Refusal) -> T
    ) throws(CertificateProviderError) -> T {
        do throws(SafeDirectory.Refusal) { return try body() } catch {
            throw readFailure(error.reason)
        }
    }

    private func describe(_ error: any Error, _ name: String, in parent: String) -> CertificateProviderError {
        switch error {
        // What the source of the key says. Only a content that is no identity calls for another one.
        case let error as CertificateProviderError where error.code != .malformedData:
            error.attributed(to: provider)
        case SealedEnvelope.Failure.otherKey:
            readFailure("it was sealed with another key; bring that key back, or delete the identity and fetch it anew")
        case SealedEnvelope.Failure.newerVersion(let version):
            readFailure("it was written by a newer certprov (format \(version)); update this one")
        case SealedEnvelope.Failure.notSealed, SealedEnvelope.Failure.damaged:
            readFailure(
                "the file \(path)\(name) is damaged; delete the identity and fetch it anew"
            )
        default:
            readFailure("its content cannot be read; delete the identity and fetch it anew")
        }
    }

    private func readFailure(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed, "The stored identity cannot be read: \(reason).", provider: provider)
    }

    private func writeFailure(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeWriteFailed, "The identity was not stored; what was stored before is still there: \(reason).",
            provider: provider)
    }
}
