public import CertificateProviding
package import FoundationEssentials

/// The data of one application on this host, behind a passcode once it is registered: its identities, its connection, and
/// named values of its own.
///
///     $STATE_DIRECTORY/applications/<id>/store/      before there is a vault: an identity store like that of the host
///     $STATE_DIRECTORY/applications/<id>/vault/key   the key of the vault, sealed with the passcode: exists with the vault
///     $STATE_DIRECTORY/applications/<id>/vault/…     identities, records and values, sealed with that key
///     $STATE_DIRECTORY/applications/<id>/attempts    wrong passcodes in a row
///     $STATE_DIRECTORY/applications/<id>/outer/      an identity store for the key store whose key the vault needs, if any
///
/// A wrong passcode counts on disk before it is tried, so that a kill does not give another attempt. The last one that the
/// policy permits destroys the vault: the key first, so that a kill leaves nothing that can be decrypted.
///
/// Several processes may use a vault. Each unlocks it for itself. All functions block for files and may be called from any
/// thread; those with a passcode also derive a key, which takes some hundred milliseconds and 32 MiB of memory.
public final class DataVault: Sendable {
    /// Whether there is a vault, and whether this process can read it.
    package enum State: Sendable {
        /// The application has no vault: it is not registered.
        case none
        /// The vault needs its passcode.
        case locked
        /// This process has the key of the vault.
        case unlocked
    }

    /// The id of the application.
    package let applicationID: String
    /// The configured policy: checked when a passcode is set, and at each attempt. The platform server's demands, which the vault
    /// keeps, tighten it.
    package let policy: PasscodePolicy

    let files: VaultFiles
    let sealed: IdentityStore
    let key: VaultKey
    let parameters: ScryptParameters
    private let before: StoreBeforeVault
    private let outer: IdentityStore
    private let now: @Sendable () -> Date

    /// Creates the object. Does no I/O, and creates no vault. The key that seals what the application has before it has a vault is
    /// in a file.
    ///
    /// - Parameters:
    ///   - stateDirectory: An absolute path.
    ///   - policy: The rules for its passcode.
    /// - Throws: `configurationInvalid` for an id with other characters than letters, digits, `.`, `-` and `_`, one that begins
    ///   with `.`, or one of more than 128 characters.
    public convenience init(
        applicationID: String, stateDirectory: String, policy: PasscodePolicy
    ) throws(ProviderError) {
        try self.init(applicationID: applicationID, stateDirectory: stateDirectory, policy: policy, keySource: nil)
    }

    /// - Parameters:
    ///   - keySource: `nil` for a key file.
    ///   - now: Returns the current time.
    package convenience init(
        applicationID: String, stateDirectory: String, policy: PasscodePolicy = PasscodePolicy(),
        keySource: (any SealingKeySource)? = nil, now: @escaping @Sendable () -> Date = { Date() }
    ) throws(ProviderError) {
        try self.init(
            applicationID, in: stateDirectory, policy: policy, keySource: keySource, now: now, parameters: .current,
            files: FileSystem())
    }

    /// With another cost of a guess, for tests.
    package convenience init(
        _ applicationID: String, in stateDirectory: String, policy: PasscodePolicy, parameters: ScryptParameters
    ) throws(ProviderError) {
        try self.init(
            applicationID, in: stateDirectory, policy: policy, keySource: nil, now: { Date() }, parameters: parameters,
            files: FileSystem())
    }

    init(
        _ applicationID: String, in stateDirectory: String, policy: PasscodePolicy, keySource: (any SealingKeySource)?,
        now: @escaping @Sendable () -> Date, parameters: ScryptParameters, files: FileSystem,
        lockTimeout: Duration? = nil
    ) throws(ProviderError) {
        guard Self.isValid(applicationID) else {
            throw ProviderError(
                .configurationInvalid,
                "The application id '\(applicationID.withVisibleControls.prefix(128))' must have 1 to 128 letters, digits, '.', "
                    + "'-' and '_', and not begin with '.'.")
        }
        let id = applicationID
        let vault = VaultFiles(
            applicationID: id, path: "\(stateDirectory)/applications/\(id)", files: files,
            lockTimeout: lockTimeout ?? VaultFiles.lockTimeout)
        (self.applicationID, self.policy, self.files) = (id, policy, vault)
        (self.parameters, self.now) = (parameters, now)
        let plain = IdentityStore(path: vault.path + "/store", keySource: keySource, files: files) {
            () throws(ProviderError) in
            // A writer may have waited for the creation of the vault.
            guard try vault.storedKey() == nil else {
                throw ProviderError(
                    .operationNotAllowed, "The application '\(id)' has been registered by another process; try again.")
            }
        }
        before = StoreBeforeVault(store: plain, files: vault)
        outer = IdentityStore(path: vault.path + "/outer", keySource: keySource, files: files)
        key = VaultKey { () throws(ProviderError) in try vault.storedKey()?.identifier }
        sealed = IdentityStore(path: vault.path + "/vault", keySource: key, files: files)
    }

    /// Creates the object in this host's state directory, as ``IdentityStore/standard(secrets:)``.
    ///
    /// - Throws: As ``init(applicationID:stateDirectory:policy:)``, and errors of the variables that name the
    ///   directory and the sealing key.
    public static func standard(
        applicationID: String, policy: PasscodePolicy, secrets: SecretReader
    ) throws(ProviderError) -> DataVault {
        try DataVault(
            applicationID: applicationID, stateDirectory: try StateDirectory.path(), policy: policy,
            keySource: try SystemdCredentialKey(secrets: secrets))
    }

    /// Takes the application's lease, for an operation that takes longer than one change, such as a registration.
    ///
    /// - Returns: `nil` while another process or object has it.
    /// - Throws: `storeWriteFailed`.
    package func leaseOperation() throws(ProviderError) -> RecordLease? {
        do throws(SafeDirectory.Refusal) {
            return try LeaseFile("operation", in: try SafeDirectory.create(files.path, files.files), files.files).map {
                file in
                RecordLease(isUnsettled: file.isUnsettled) {
                    file.isAwaited
                } note: {
                    file.note(isUnsettled: $0)
                }
            }
        } catch { throw files.unwritable(error) }
    }

    /// The process that has the application's lease, such as `the process 1234 (certprov)`; `nil` if the kernel does not tell.
    package func operationHolder() -> String? {
        (try? SafeDirectory.open(files.path)).flatMap { LeaseFile.holder("operation", in: $0) }?.description
    }

    /// Returns whether a text may be the id of an application.
    package static func isValid(_ applicationID: String) -> Bool {
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
    package func state() throws(ProviderError) -> State {
        guard let stored = try files.storedKey() else { return .none }
        return key.identifier == stored.identifier ? .unlocked : .locked
    }

    /// Whether the vault has no passcode. Such a vault is unlocked with ``unlock(_:isAutomatic:)`` and `nil`. False without a vault.
    ///
    /// - Throws: As ``state()``.
    package func hasNoPasscode() throws(ProviderError) -> Bool {
        try files.storedKey()?.hasNoPasscode ?? false
    }

    /// Whether the passcode is older than the policy permits, so that it must be changed. False without a vault.
    ///
    /// - Throws: As ``state()``.
    package func isPasscodeExpired() throws(ProviderError) -> Bool {
        guard let stored = try files.storedKey(), !stored.hasNoPasscode else { return false }
        let policy = policy(stored)
        guard policy.validDays > 0 else { return false }
        // One from the future was set while the clock was wrong.
        let age = now().timeIntervalSince(stored.passcodeSetAt)
        return age > Double(policy.validDays) * 86400 || age < -86400
    }

    /// How many wrong passcodes may follow, the last of which destroys the vault; `nil` for any number.
    ///
    /// - Throws: `storeReadFailed`.
    package func attemptsLeft() throws(ProviderError) -> Int? {
        let policy = policy(try files.storedKey())
        guard policy.maximumAttempts > 0 else { return nil }
        do throws(SafeDirectory.Refusal) {
            let attempts = try SafeDirectory.open(files.path).map { directory throws(SafeDirectory.Refusal) in
                try VaultAttempts.read(from: directory)
            }
            return max(0, policy.maximumAttempts - (attempts?.count ?? 0))
        } catch { throw files.unreadable(error) }
    }

    /// The vault's public terms, stored beside its key; `nil` without a vault. Needs no passcode.
    ///
    /// - Throws: As ``state()``.
    package func terms() throws(ProviderError) -> VaultTerms? { try files.storedKey()?.terms }

    /// How long the vault that this process has unlocked may be unused, as the platform server demands; `nil` for ever.
    package var lockTimeout: Duration? { key.lockSeconds.flatMap { $0 > 0 ? .seconds($0) : nil } }

    /// The policy of a vault; `nil` for one that does not exist yet.
    func policy(_ stored: VaultKeyFile?) -> PasscodePolicy { policy.tightened(by: stored?.terms.demands) }

    /// Returns a provider's part: of the vault if there is one, else of what the application has without.
    ///
    /// While the vault is locked, every use throws `vaultLocked`. Providers of a `LogonManager` get one that it unlocks, where that
    /// needs no user.
    public func storage(for provider: ProviderID) -> any IdentityStorage {
        VaultStorage(vault: self, provider: provider)
    }

    /// Returns the part as it is now.
    func part(of provider: ProviderID) throws(ProviderError) -> any IdentityStorage {
        switch try state() {
        case .none:
            // If another process has destroyed the vault, an identity would be left without a passcode.
            if key.isUnlocked { _ = try key.existingKey() }
            return before.store.storage(for: provider)
        case .locked: throw Self.isLocked
        case .unlocked: return sealed.storage(for: provider)
        }
    }

    /// The directories of a part, with and without the vault. Needs no passcode.
    func entryDirectories(of provider: ProviderID) -> [String] {
        [before.store, sealed].flatMap { $0.storage(for: provider).entryDirectories }
    }

    /// Returns a part that is beside the vault, with or without one: for the key store whose key the vault needs.
    package func outerStorage(for provider: ProviderID) -> any IdentityStorage { outer.storage(for: provider) }

    static let isLocked = ProviderError(
        .vaultLocked, "The vault is locked; run 'certprov unlock --for 15m', or set Passcode.source.")

    // MARK: - Locking

    /// Creates the vault, unlocked: takes in all that the application has stored so far, sealed anew with a fresh key, and
    /// removes the old key with everything that was sealed with it.
    ///
    /// - Parameters:
    ///   - passcode: `nil` for none, if the policy permits that.
    ///   - values: The first values. The vault exists with them, or not at all.
    /// - Throws: `operationNotAllowed` if there is a vault, `configurationInvalid` for a passcode that the policy refuses,
    ///   `storeReadFailed` and `storeWriteFailed`. No vault exists then, and all stored data is still there.
    package func create(
        passcode: SecretBytes?, values: [String: SecretBytes] = [:]
    ) throws(ProviderError) {
        try create(VaultSecrets(passcode: passcode, factor: nil), VaultTerms()) {
            () throws(ProviderError) in
            for (name, value) in values { try setValue(value, named: name) }
        }
    }

    /// As ``create(passcode:values:)``.
    ///
    /// - Parameters:
    ///   - records: Records that are in the vault and nowhere else, and replace those of the same name.
    ///   - terms: What the vault keeps beside its key.
    ///   - factor: The secret that the terms have wrapped.
    package func create(
        passcode: SecretBytes?, records: [String: SecretBytes], of provider: ProviderID, terms: VaultTerms,
        factor: SecretBytes? = nil
    ) throws(ProviderError) {
        try create(VaultSecrets(passcode: passcode, factor: factor), terms) { () throws(ProviderError) in
            for (name, record) in records {
                try ProviderStorage(store: sealed, provider: provider).updateRecord(named: name) { _ in record }
            }
        }
    }

    private func create(
        _ secrets: VaultSecrets, _ terms: VaultTerms,
        filling fill: () throws(ProviderError) -> Void
    ) throws(ProviderError) {
        try check(secrets.passcode, terms)
        try files.exclusively(creating: true) { (directory) throws(ProviderError) in
            guard try files.storedKey() == nil else {
                throw ProviderError(
                    .operationNotAllowed, "There is a vault of '\(applicationID)'; unregister first.")
            }
            // The remains of an interrupted creation or destruction.
            try files.removeRest(from: directory)
            try files.begin(in: directory)
            var random = SystemRandomNumberGenerator.bytes(VaultKeyFile.keySize)
            let (new, identifier) = (SecretBytes(copying: random), SystemRandomNumberGenerator.bytes(16))
            random.wipe()
            let content = try sealedKey(new, identifier, secrets, terms)
            let lock = try before.lock(creating: true)
            defer { withExtendedLifetime(lock) {} }
            key.set(new, identifier: identifier, terms, isNew: true)
            sealed.forgetKey()
            do throws(ProviderError) {
                try fill()
                try before.requireReadable()
                try before.copy(into: sealed)
                // A former vault may have left its own.
                try files.resetAttempts(in: directory)
                try files.write(content, in: directory)
            } catch {
                self.lock()
                throw error
            }
            key.set(new, identifier: identifier, terms)
            // The vault exists. The next unlock removes the rest.
            try? files.complete(in: directory)
            try? before.remove(from: directory)
        }
    }

    /// Unlocks the vault for this process. Does nothing to one that is unlocked.
    ///
    /// - Parameters:
    ///   - passcode: `nil` for a vault without one.
    ///   - isAutomatic: Whether no person has just typed it. Such a passcode is tried once until another one is right, and
    ///     never as the last attempt.
    /// - Throws: `wrongPassword`, with the number of attempts left; `vaultDestroyed` if it was the last one; `notFound` without
    ///   a vault; `storeReadFailed`; `storeWriteFailed` if the attempt cannot be written down: it is not made then.
    package func unlock(_ passcode: SecretBytes?, isAutomatic: Bool = false) throws(ProviderError) {
        try unlock(passcode, factor: nil, isAutomatic: isAutomatic)
    }

    /// As ``unlock(_:isAutomatic:)``, with the secret that ``terms()`` have wrapped.
    package func unlock(
        _ passcode: SecretBytes?, factor: SecretBytes?, isAutomatic: Bool
    ) throws(ProviderError) {
        guard try state() != .unlocked else { return }
        try files.exclusively { (directory) throws(ProviderError) in
            // Another thread may have unlocked it since.
            if try state() == .unlocked { return }
            let secrets = VaultSecrets(passcode: passcode, factor: factor)
            let (opened, stored) = try attempt(secrets, isAutomatic: isAutomatic, in: directory)
            key.set(opened, identifier: stored.identifier, stored.terms)
            sealed.forgetKey()
            // The vault is open, whatever fails from here on: the next unlock does it again.
            try? upgrade(stored, opened, secrets, in: directory)
            try? takeInLeftovers(in: directory)
        }
    }

    /// Raises parameters that have become weak: the passcode is known only now.
    private func upgrade(
        _ stored: VaultKeyFile, _ key: SecretBytes, _ secrets: VaultSecrets, in directory: SafeDirectory
    ) throws(ProviderError) {
        guard secrets.passcode != nil, stored.parameters.work < parameters.work else { return }
        let new = try sealedKey(key, stored.identifier, secrets, stored.terms, setAt: stored.passcodeSetAt)
        try files.write(new, in: directory)
    }

    private func sealedKey(
        _ key: SecretBytes, _ identifier: [UInt8], _ secrets: VaultSecrets, _ terms: VaultTerms, setAt time: Date? = nil
    ) throws(ProviderError) -> [UInt8] {
        do {
            return try VaultKeyFile.seal(
                key, identifier: identifier, with: secrets, of: applicationID,
                secrets.passcode == nil ? .withoutPasscode : parameters, terms, setAt: time ?? now())
        } catch {
            throw ProviderError(.internal, "The vault's key cannot be sealed.", underlying: error)
        }
    }

    /// Takes in what an interrupted creation has left, or a process that did not know of the vault.
    private func takeInLeftovers(in directory: SafeDirectory) throws(ProviderError) {
        let lock = try before.lock()
        defer { withExtendedLifetime(lock) {} }
        try before.copy(into: sealed)
        try before.remove(from: directory)
        try files.complete(in: directory)
    }

    /// Locks the vault for this process, and forgets its key.
    package func lock() {
        key.forget()
        sealed.forgetKey()
    }

    /// Sets another passcode. The vault is unlocked afterwards.
    ///
    /// - Parameter isAutomatic: As for ``unlock(_:isAutomatic:)``, of the old one.
    /// - Throws: As ``unlock(_:isAutomatic:)`` for the old one, which counts as an attempt; `configurationInvalid` for a new one that the
    ///   policy refuses; `storeWriteFailed`. The old one stays then.
    package func changePasscode(
        from old: SecretBytes?, to new: SecretBytes?, isAutomatic: Bool = false
    ) throws(ProviderError) {
        try changePasscode(from: old, to: new, factor: nil, isAutomatic: isAutomatic)
    }

    /// As ``changePasscode(from:to:isAutomatic:)``, with the secret that ``terms()`` have wrapped.
    package func changePasscode(
        from old: SecretBytes?, to new: SecretBytes?, factor: SecretBytes?, isAutomatic: Bool
    ) throws(ProviderError) {
        try check(new, try terms() ?? VaultTerms())
        try files.exclusively { (directory) throws(ProviderError) in
            let secrets = VaultSecrets(passcode: old, factor: factor)
            let (opened, stored) = try attempt(secrets, isAutomatic: isAutomatic, in: directory)
            let changed = VaultSecrets(passcode: new, factor: factor)
            try files.write(try sealedKey(opened, stored.identifier, changed, stored.terms), in: directory)
            key.set(opened, identifier: stored.identifier, stored.terms)
            sealed.forgetKey()
            try? takeInLeftovers(in: directory)
        }
    }

    /// Destroys the vault and everything in it. Needs no passcode. Succeeds if there is none.
    ///
    /// - Throws: `deleteFailed`. The key is removed first, so that the rest cannot be decrypted; call it again.
    package func destroy() throws(ProviderError) {
        do throws(ProviderError) {
            try files.exclusively { (directory) throws(ProviderError) in
                lock()
                try files.destroy(directory)
            }
        } catch {
            guard error.code != .notFound else { return }
            throw error.code == .storeWriteFailed ? ProviderError(.deleteFailed, error.message) : error
        }
    }
}
