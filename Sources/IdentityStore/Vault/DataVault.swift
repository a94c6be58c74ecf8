public import CertificateProviding
public import FoundationEssentials

/// The data of one application on this host, behind a passcode once it is registered: its identities, its connection, and
/// named values of its own.
///
///     $STATE_DIRECTORY/applications/<id>/store/      before there is a vault: an identity store like that of the host
///     $STATE_DIRECTORY/applications/<id>/vault/key   the key of the vault, sealed with the passcode: exists with the vault
///     $STATE_DIRECTORY/applications/<id>/vault/…     identities, records and values, sealed with that key
///     $STATE_DIRECTORY/applications/<id>/attempts    wrong passcodes in a row
///
/// A wrong passcode counts on disk before it is tried, so that a kill does not give another attempt. The last one that the
/// policy permits destroys the vault: the key first, so that a kill leaves nothing that can be decrypted.
///
/// Several processes may use a vault. Each unlocks it for itself. All functions block for files and may be called from any
/// thread; those with a passcode also derive a key, which takes some hundred milliseconds and 32 MiB of memory.
public final class DataVault: Sendable {
    /// Whether there is a vault, and whether this process can read it.
    public enum State: Sendable {
        /// The application has no vault: it is not registered.
        case none
        /// The vault needs its passcode.
        case locked
        /// This process has the key of the vault.
        case unlocked
    }

    /// The id of the application.
    public let applicationID: String
    /// Checked when a passcode is set, and at each attempt.
    public let policy: PasscodePolicy

    private let path: String
    private let files: FileSystem
    private let plain: IdentityStore
    private let sealed: IdentityStore
    private let key: VaultKey
    private let parameters: ScryptParameters
    private let now: @Sendable () -> Date

    private static let keyFile = "key"
    /// How long to wait for other processes that derive a key: each takes less than a second.
    private static let lockTimeout = Duration.seconds(60)

    /// Creates the object. Does no I/O, and creates no vault.
    ///
    /// - Parameters:
    ///   - stateDirectory: An absolute path.
    ///   - keySource: The source of the key that seals what the application has before it has a vault; `nil` for a key file.
    ///   - now: Returns the current time.
    /// - Throws: `configurationInvalid` for an id with other characters than letters, digits, `.`, `-` and `_`, one that begins
    ///   with `.`, or one of more than 128 characters.
    public convenience init(
        applicationID: String, stateDirectory: String, policy: PasscodePolicy = PasscodePolicy(),
        keySource: (any SealingKeySource)? = nil, now: @escaping @Sendable () -> Date = { Date() }
    ) throws(CertificateProviderError) {
        try self.init(
            applicationID, in: stateDirectory, policy: policy, keySource: keySource, now: now, parameters: .current,
            files: FileSystem())
    }

    /// With another cost of a guess, for tests.
    package convenience init(
        _ applicationID: String, in stateDirectory: String, policy: PasscodePolicy, parameters: ScryptParameters
    ) throws(CertificateProviderError) {
        try self.init(
            applicationID, in: stateDirectory, policy: policy, keySource: nil, now: { Date() }, parameters: parameters,
            files: FileSystem())
    }

    init(
        _ applicationID: String, in stateDirectory: String, policy: PasscodePolicy, keySource: (any SealingKeySource)?,
        now: @escaping @Sendable () -> Date, parameters: ScryptParameters, files: FileSystem
    ) throws(CertificateProviderError) {
        guard Self.isValid(applicationID) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The application id '\(applicationID.withVisibleControls.prefix(128))' must have 1 to 128 letters, digits, '.', "
                    + "'-' and '_', and not begin with '.'.")
        }
        let path = "\(stateDirectory)/applications/\(applicationID)"
        (self.applicationID, self.path, self.policy, self.files) = (applicationID, path, policy, files)
        (self.parameters, self.now) = (parameters, now)
        plain = IdentityStore(path: path + "/store", keySource: keySource, files: files) {
            () throws(CertificateProviderError) in
            // A writer may have waited for the creation of the vault.
            guard try Self.storedKey(in: path) == nil else {
                throw CertificateProviderError(
                    .operationNotAllowed,
                    "The application '\(applicationID)' has been registered by another process; try again.")
            }
        }
        key = VaultKey { () throws(CertificateProviderError) in try Self.storedKey(in: path)?.identifier }
        sealed = IdentityStore(path: path + "/vault", keySource: key, files: files)
    }

    /// Returns whether a text may be the id of an application.
    public static func isValid(_ applicationID: String) -> Bool {
        (1...128).contains(applicationID.utf8.count) && !applicationID.hasPrefix(".")
            && applicationID.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    // MARK: - State

    /// Looks at the disk.
    ///
    /// - Throws: `storeReadFailed` for a vault that cannot be read, or was written by a newer certprov.
    public func state() throws(CertificateProviderError) -> State {
        guard let stored = try Self.storedKey(in: path) else { return .none }
        return key.identifier == stored.identifier ? .unlocked : .locked
    }

    /// Whether the vault has no passcode. Such a vault is unlocked with ``unlock(_:)`` and `nil`. False without a vault.
    ///
    /// - Throws: As ``state()``.
    public func hasNoPasscode() throws(CertificateProviderError) -> Bool {
        try Self.storedKey(in: path)?.hasNoPasscode ?? false
    }

    /// Whether the passcode is older than the policy permits, so that it must be changed. False without a vault.
    ///
    /// - Throws: As ``state()``.
    public func isPasscodeExpired() throws(CertificateProviderError) -> Bool {
        guard policy.validDays > 0, let stored = try Self.storedKey(in: path), !stored.hasNoPasscode else {
            return false
        }
        // One from the future was set while the clock was wrong.
        let age = now().timeIntervalSince(stored.passcodeSetAt)
        return age > Double(policy.validDays) * 86400 || age < -86400
    }

    /// How many wrong passcodes may follow, the last of which destroys the vault; `nil` for any number.
    ///
    /// - Throws: `storeReadFailed`.
    public func attemptsLeft() throws(CertificateProviderError) -> Int? {
        guard policy.maximumAttempts > 0 else { return nil }
        do throws(SafeDirectory.Refusal) {
            let attempts = try SafeDirectory.open(path).map { directory throws(SafeDirectory.Refusal) in
                try VaultAttempts.read(from: directory)
            }
            return max(0, policy.maximumAttempts - (attempts?.count ?? 0))
        } catch { throw unreadable(error) }
    }

    /// Returns a provider's part: of the vault if there is one, else of what the application has without.
    ///
    /// While the vault is locked, every use throws `vaultLocked`.
    public func storage(for provider: ProviderID) -> any IdentityStorage {
        VaultStorage { [self] () throws(CertificateProviderError) in
            switch try state() {
            case .none:
                // Where another process has destroyed the vault, an identity would be left without a passcode.
                if key.isUnlocked { _ = try key.existingKey() }
                return plain.storage(for: provider)
            case .locked: throw Self.isLocked
            case .unlocked: return sealed.storage(for: provider)
            }
        }
    }

    private static let isLocked = CertificateProviderError(
        .vaultLocked, "The vault is locked; unlock it with its passcode.")

    // MARK: - Locking

    /// Creates the vault, unlocked: takes in all that the application has stored so far, sealed anew with a fresh key, and
    /// removes the old key with everything that was sealed with it.
    ///
    /// - Parameters:
    ///   - passcode: `nil` for none, if the policy permits that.
    ///   - values: The first values. The vault exists with them, or not at all.
    /// - Throws: `operationNotAllowed` if there is a vault, `configurationInvalid` for a passcode that the policy refuses,
    ///   `storeReadFailed` and `storeWriteFailed`. No vault exists then, and all stored data is still there.
    public func create(
        passcode: SecretBytes?, values: [String: SecretBytes] = [:]
    ) throws(CertificateProviderError) {
        try check(passcode)
        try exclusively(creating: true) { (directory) throws(CertificateProviderError) in
            guard try Self.storedKey(in: path) == nil else {
                throw CertificateProviderError(
                    .operationNotAllowed, "There is a vault of '\(applicationID)'; unregister first.")
            }
            // What an interrupted creation or destruction has left.
            try remove("vault", from: directory)
            var random = SystemRandomNumberGenerator.bytes(VaultKeyFile.keySize)
            let (new, identifier) = (SecretBytes(copying: random), SystemRandomNumberGenerator.bytes(16))
            random.wipe()
            let content = try sealedKey(new, identifier, passcode)
            let lock = try lockPlainStore()
            defer { withExtendedLifetime(lock) {} }
            key.set(new, identifier: identifier, isNew: true)
            sealed.forgetKey()
            do throws(CertificateProviderError) {
                for (name, value) in values { try setValue(value, named: name) }
                try requireReadable()
                try takeIn()
                try removeAttempts(from: directory)
                try write(content, in: directory)
            } catch {
                self.lock()
                throw error
            }
            key.set(new, identifier: identifier)
            // The vault exists. What is not removed now goes at the next unlock.
            try? removePlainStore(from: directory)
        }
    }

    /// Unlocks the vault for this process. Does nothing to one that is unlocked.
    ///
    /// - Parameter passcode: `nil` for a vault without one.
    /// - Throws: `wrongPassword`, with the number of attempts left; `vaultDestroyed` if it was the last one; `notFound` without
    ///   a vault; `storeReadFailed`; `storeWriteFailed` if the attempt cannot be written down: it is not made then.
    public func unlock(_ passcode: SecretBytes?) throws(CertificateProviderError) {
        guard try state() != .unlocked else { return }
        try exclusively { (directory) throws(CertificateProviderError) in
            let (opened, stored) = try attempt(passcode, in: directory)
            key.set(opened, identifier: stored.identifier)
            sealed.forgetKey()
            // The vault is open, whatever fails from here on: the next unlock does it again.
            try? upgrade(stored, opened, passcode, in: directory)
            try? takeInLeftovers(in: directory)
        }
    }

    /// Raises parameters that have become weak: the passcode is known only now.
    private func upgrade(
        _ stored: VaultKeyFile, _ key: SecretBytes, _ passcode: SecretBytes?, in directory: SafeDirectory
    ) throws(CertificateProviderError) {
        guard stored.parameters.work < parameters.work else { return }
        try write(try sealedKey(key, stored.identifier, passcode, setAt: stored.passcodeSetAt), in: directory)
    }

    /// Takes in what an interrupted creation has left, or a process that did not know of the vault.
    private func takeInLeftovers(in directory: SafeDirectory) throws(CertificateProviderError) {
        let lock = try lockPlainStore()
        defer { withExtendedLifetime(lock) {} }
        try takeIn()
        try removePlainStore(from: directory)
    }

    /// Locks the vault for this process, and forgets its key.
    public func lock() {
        key.forget()
        sealed.forgetKey()
    }

    /// Sets another passcode. The vault is unlocked afterwards.
    ///
    /// - Throws: As ``unlock(_:)`` for the old one, which counts as an attempt; `configurationInvalid` for a new one that the
    ///   policy refuses; `storeWriteFailed`. The old one stays then.
    public func changePasscode(
        from old: SecretBytes?, to new: SecretBytes?
    ) throws(CertificateProviderError) {
        try check(new)
        try exclusively { (directory) throws(CertificateProviderError) in
            let (opened, stored) = try attempt(old, in: directory)
            try write(try sealedKey(opened, stored.identifier, new), in: directory)
            key.set(opened, identifier: stored.identifier)
            sealed.forgetKey()
            try? takeInLeftovers(in: directory)
        }
    }

    /// Destroys the vault and everything in it. Needs no passcode. Succeeds if there is none.
    ///
    /// - Throws: `deleteFailed`. The key is removed first, so that the rest cannot be decrypted; call it again.
    public func destroy() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            try exclusively { (directory) throws(CertificateProviderError) in try destroy(directory) }
        } catch {
            guard error.code != .notFound else { return }
            throw error.code == .storeWriteFailed ? CertificateProviderError(.deleteFailed, error.message) : error
        }
    }

    private func check(_ passcode: SecretBytes?) throws(CertificateProviderError) {
        if let passcode { return try policy.check(passcode) }
        guard policy.allowsDefault else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The vault needs a passcode; set Passcode.source, or set Passcode.default-allowed to true.")
        }
    }

    private func attempt(
        _ passcode: SecretBytes?, in directory: SafeDirectory
    ) throws(CertificateProviderError) -> (key: SecretBytes, VaultKeyFile) {
        guard let stored = try Self.storedKey(in: path) else { throw absent }
        guard (passcode == nil) == stored.hasNoPasscode else {
            // Nothing is tried.
            throw passcode == nil
                ? Self.isLocked
                : CertificateProviderError(
                    .operationNotAllowed, "The vault of '\(applicationID)' has no passcode; unlock it without one.")
        }
        if stored.hasNoPasscode {
            guard let opened = try open(stored, with: nil) else { throw Self.damaged(path) }
            return (opened, stored)
        }
        let (before, limit) = (try attempts(in: directory), max(0, policy.maximumAttempts))
        // The process that made the last one was killed. Where the limit was higher then, one attempt is left.
        let isUsedUp = limit > 0 && before.count >= limit && before.limit > 0 && before.count >= before.limit
        let count = limit > 0 ? min(before.count, limit - 1) : before.count
        if !isUsedUp {
            try setAttempts(VaultAttempts(count: count + 1, limit: limit), in: directory)
            do throws(CertificateProviderError) {
                if let opened = try open(stored, with: passcode) {
                    // If it fails, the passcode is right all the same, and the next success removes it.
                    try? removeAttempts(from: directory)
                    return (opened, stored)
                }
            } catch {
                // Nothing was found out about the passcode.
                try? setAttempts(before, in: directory)
                throw error
            }
        }
        guard limit == 0 || count + 1 < limit, !isUsedUp else {
            try destroy(directory)
            throw CertificateProviderError(
                .vaultDestroyed,
                "\(limit) wrong passcodes in a row have destroyed the vault of '\(applicationID)'; register again.")
        }
        let left = limit - count - 1
        let warning =
            limit == 0 ? "" : " The vault is destroyed after \(left) more wrong \(left == 1 ? "one" : "ones")."
        throw CertificateProviderError(.wrongPassword, "The passcode of the vault is wrong.\(warning)")
    }

    /// Returns `nil` for a wrong passcode.
    private func open(
        _ stored: VaultKeyFile, with passcode: SecretBytes?
    ) throws(CertificateProviderError) -> SecretBytes? {
        do { return try stored.open(with: passcode, of: applicationID) } catch {
            throw CertificateProviderError(.internal, "The vault's key cannot be derived.", underlying: error)
        }
    }

    private func destroy(_ directory: SafeDirectory) throws(CertificateProviderError) {
        lock()
        // Without a vault the store is that of an application that is not registered; with one, what its creation has left.
        // A damaged key is one.
        let hasVault: Bool
        do throws(CertificateProviderError) { hasVault = try Self.storedKey(in: path) != nil } catch { hasVault = true }
        // The store first: with the vault's key it would come to life again.
        let stores = (hasVault ? [("store", KeyFile.name)] : []) + [("vault", Self.keyFile)]
        do throws(SafeDirectory.Refusal) {
            for (store, key) in stores {
                guard let inner = try directory.directory(store) else { continue }
                // Writers wait, and find their directory gone.
                let lock = try StoreLock(in: inner, timeout: Self.lockTimeout, files)
                defer { withExtendedLifetime(lock) {} }
                // A killed writer may have left a copy of the key.
                inner.removeAbandonedFiles(files)
                try inner.remove(key, files)
                try inner.flush(files)
                try directory.removeTree(store, files)
            }
            try directory.remove(VaultAttempts.file, files)
            try directory.flush(files)
        } catch {
            throw CertificateProviderError(
                .deleteFailed, "The vault of '\(applicationID)' is not removed completely: \(error.reason). Try again.")
        }
    }

    private var absent: CertificateProviderError {
        CertificateProviderError(.notFound, "The application '\(applicationID)' has no vault; register first.")
    }

    // MARK: - Files

    /// Holds the lock of all that derives a key, creates or destroys.
    ///
    /// - Parameter creating: Whether the application's directory is created if it does not exist; else that is an error.
    private func exclusively(
        creating: Bool = false, _ body: (SafeDirectory) throws(CertificateProviderError) -> Void
    ) throws(CertificateProviderError) {
        let (directory, lock): (SafeDirectory?, StoreLock?)
        do throws(SafeDirectory.Refusal) {
            directory = creating ? try SafeDirectory.create(path, files) : try SafeDirectory.open(path)
            lock = try directory.map { directory throws(SafeDirectory.Refusal) in
                try StoreLock(in: directory, timeout: Self.lockTimeout, files)
            }
        } catch { throw unwritable(error) }
        guard let directory else { throw absent }
        defer { withExtendedLifetime(lock) {} }
        return try body(directory)
    }

    private static func storedKey(in path: String) throws(CertificateProviderError) -> VaultKeyFile? {
        do {
            guard let bytes = try SafeDirectory.open(path + "/vault")?.read(keyFile, atMost: 4096) else {
                return nil
            }
            return try VaultKeyFile(bytes)
        } catch VaultKeyFile.Failure.newerVersion(let version) {
            throw CertificateProviderError(
                .storeReadFailed,
                "The key of the vault \(path)/vault was written by a newer certprov (format \(version)); update certprov."
            )
        } catch let refusal as SafeDirectory.Refusal {
            throw CertificateProviderError(.storeReadFailed, "The vault cannot be read: \(refusal.reason).")
        } catch { throw damaged(path) }
    }

    private static func damaged(_ path: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed,
            "The key of the vault, \(path)/vault/\(keyFile), is damaged; restore the file, or destroy the vault and register "
                + "again.")
    }

    private func sealedKey(
        _ key: SecretBytes, _ identifier: [UInt8], _ passcode: SecretBytes?, setAt time: Date? = nil
    ) throws(CertificateProviderError) -> [UInt8] {
        do {
            return try VaultKeyFile.seal(
                key, identifier: identifier, with: passcode, of: applicationID, parameters, setAt: time ?? now())
        } catch {
            throw CertificateProviderError(.internal, "The vault's key cannot be sealed.", underlying: error)
        }
    }

    private func write(_ key: [UInt8], in directory: SafeDirectory) throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) {
            let vault = try directory.create("vault", files)
            // The sealed store removes the temporary files of writers that died.
            let lock = try StoreLock(in: vault, timeout: Self.lockTimeout, files)
            defer { withExtendedLifetime(lock) {} }
            try vault.write(key, to: Self.keyFile, replacing: true, files)
        } catch { throw unwritable(error) }
    }

    private func attempts(in directory: SafeDirectory) throws(CertificateProviderError) -> VaultAttempts {
        do throws(SafeDirectory.Refusal) { return try .read(from: directory) } catch { throw unreadable(error) }
    }

    private func setAttempts(
        _ attempts: VaultAttempts, in directory: SafeDirectory
    ) throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) { try attempts.write(to: directory, files) } catch { throw unwritable(error) }
    }

    private func removeAttempts(from directory: SafeDirectory) throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) { try VaultAttempts.remove(from: directory, files) } catch {
            throw unwritable(error)
        }
    }

    private func remove(_ name: String, from directory: SafeDirectory) throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) { try directory.removeTree(name, files) } catch { throw unwritable(error) }
    }

    /// Keeps writers of the store without a passcode waiting; `nil` if it does not exist.
    private func lockPlainStore() throws(CertificateProviderError) -> StoreLock? {
        do throws(SafeDirectory.Refusal) {
            return try SafeDirectory.open(plain.path).map { directory throws(SafeDirectory.Refusal) in
                try StoreLock(in: directory, timeout: Self.lockTimeout, files)
            }
        } catch { throw unwritable(error) }
    }

    private func removePlainStore(from directory: SafeDirectory) throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) {
            guard let store = try directory.directory("store") else { return }
            try store.remove(KeyFile.name, files)
            try store.flush(files)
            try directory.removeTree("store", files)
            try directory.flush(files)
        } catch { throw unwritable(error) }
    }

    /// Throws if the application has stored something whose key is lost: it may be restored.
    private func requireReadable() throws(CertificateProviderError) {
        plain.forgetKey()
        guard try plain.keyForOpening() == nil else { return }
        for parent in [ProviderStorage.parent, ProviderStorage.records] {
            for provider in try names(in: "\(plain.path)/\(parent)")
            where try !names(in: "\(plain.path)/\(parent)/\(provider)").isEmpty {
                throw CertificateProviderError(
                    .storeReadFailed,
                    "The vault is not created: the key of \(plain.path) is missing, and identities there are sealed with it. "
                        + "Restore the key, or remove \(plain.path).")
            }
        }
    }

    /// Copies what the application has stored without the vault. What the vault has already stays.
    private func takeIn() throws(CertificateProviderError) {
        plain.forgetKey()
        // The key is removed first, when everything is taken in.
        guard try plain.keyForOpening() != nil else { return }
        for parent in [ProviderStorage.parent, ProviderStorage.records] {
            for provider in try names(in: "\(plain.path)/\(parent)") {
                guard let id = ProviderID(rawValue: provider) else { continue }
                let (from, to) = (
                    ProviderStorage(store: plain, provider: id), ProviderStorage(store: sealed, provider: id)
                )
                for name in try names(in: "\(plain.path)/\(parent)/\(provider)") {
                    guard let content = try from.content(named: name, in: parent) else { continue }
                    try to.changing(name) { root throws(CertificateProviderError) in
                        guard try to.content(named: name, in: parent) == nil else { return }
                        try to.write(content, name, in: parent, root)
                    }
                }
            }
        }
    }

    /// The names in a directory, but for hidden ones; none if it does not exist.
    private func names(in path: String) throws(CertificateProviderError) -> [String] {
        do throws(SafeDirectory.Refusal) {
            return try SafeDirectory.open(path)?.entries().filter { !$0.hasPrefix(".") }.sorted() ?? []
        } catch { throw unreadable(error) }
    }

    private func unreadable(_ refusal: SafeDirectory.Refusal) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed, "The vault of '\(applicationID)' cannot be read: \(refusal.reason).")
    }

    private func unwritable(_ refusal: SafeDirectory.Refusal) -> CertificateProviderError {
        CertificateProviderError(
            .storeWriteFailed, "The vault of '\(applicationID)' cannot be written to: \(refusal.reason).")
    }

    // MARK: - Values

    private static let values = "values"
    private var values: ProviderStorage { ProviderStorage(store: sealed, provider: ProviderID("application")) }

    /// Returns a named value; `nil` if there is none.
    ///
    /// - Throws: `vaultLocked`, also without a vault; `storeReadFailed`, also for a name that has not 1 to 128 bytes, has a
    ///   `/` or NUL, or begins with a dot.
    public func value(named name: String) throws(CertificateProviderError) -> SecretBytes? {
        // A name without a file must not look like an unlocked vault.
        _ = try key.existingKey()
        return try values.content(named: name, in: Self.values)
    }

    /// Sets a named value. It is on disk, sealed, when the function returns.
    ///
    /// - Throws: `vaultLocked`, `storeWriteFailed`, also for a name as above and a value of more than 1 MiB.
    public func setValue(_ value: SecretBytes, named name: String) throws(CertificateProviderError) {
        _ = try key.existingKey()
        let values = values
        try values.changing(name) { root throws(CertificateProviderError) in
            try values.write(value, name, in: Self.values, root)
        }
    }

    /// Removes a named value. Succeeds if there is none.
    ///
    /// - Throws: `vaultLocked`, `storeWriteFailed`.
    public func removeValue(named name: String) throws(CertificateProviderError) {
        _ = try key.existingKey()
        let values = values
        try values.changing(name) { _ throws(CertificateProviderError) in
            do throws(SafeDirectory.Refusal) {
                guard let directory = try values.openDirectory(Self.values) else { return }
                try directory.remove(name, files)
                try directory.flush(files)
            } catch { throw unwritable(error) }
        }
    }

    /// The names of all values, in alphabetical order.
    ///
    /// - Throws: `vaultLocked`, `storeReadFailed`.
    public func valueNames() throws(CertificateProviderError) -> [String] {
        _ = try key.existingKey()
        return try names(in: "\(sealed.path)/\(Self.values)/\(values.provider)")
    }
}

/// A provider's part of the vault, or of the store that the application has without one: looked up at each use.
private struct VaultStorage: IdentityStorage {
    let current: @Sendable () throws(CertificateProviderError) -> any IdentityStorage

    func entry(named name: String) throws(CertificateProviderError) -> StoredIdentity? {
        try current().entry(named: name)
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(CertificateProviderError) {
        try current().setEntry(identity, named: name)
    }

    func removeEntry(named name: String) throws(CertificateProviderError) { try current().removeEntry(named: name) }

    func record(named name: String) throws(CertificateProviderError) -> SecretBytes? {
        try current().record(named: name)
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(CertificateProviderError) -> SecretBytes?
    ) throws(CertificateProviderError) { try current().updateRecord(named: name, change) }

    func leaseRecord(named name: String) throws(CertificateProviderError) -> RecordLease? {
        try current().leaseRecord(named: name)
    }
}
