import CertificateProviding
import Glibc

/// The files of an application, and the lock of those who change them. Knows no secret.
struct VaultFiles: Sendable {
    let applicationID: String
    /// The application's directory.
    let path: String
    let files: FileSystem
    let lockTimeout: Duration

    static let keyFile = "key"
    private static let rejectedFile = "rejected"
    private static let rejectedSize = 512
    /// Marks a vault that is being created or destroyed: its files without a key are useless. Without this mark, the key is
    /// lost, and may be restored.
    private static let incomplete = ".incomplete"
    /// How long to wait for other processes that derive a key: each takes less than a second.
    static let lockTimeout = Duration.seconds(60)

    /// Holds the lock of all that derives a key, creates or destroys.
    ///
    /// - Parameter creating: Whether the application's directory is created if it does not exist; else that is an error.
    func exclusively(
        creating: Bool = false, _ body: (SafeDirectory) throws(ProviderError) -> Void
    ) throws(ProviderError) {
        let (directory, lock): (SafeDirectory?, StoreLock?)
        do throws(SafeDirectory.Refusal) {
            directory = creating ? try SafeDirectory.create(path, files) : try SafeDirectory.open(path)
            lock = try directory.map { directory throws(SafeDirectory.Refusal) in
                try StoreLock(in: directory, timeout: lockTimeout, files)
            }
        } catch { throw unwritable(error) }
        guard let directory else { throw absent }
        defer { withExtendedLifetime(lock) {} }
        // A writer may have died before it renamed what shows rejected passcodes.
        directory.removeAbandonedFiles(files)
        return try body(directory)
    }

    /// Returns the key; `nil` without a vault.
    func storedKey() throws(ProviderError) -> VaultKeyFile? {
        do {
            guard let vault = try SafeDirectory.open(path + "/vault") else { return nil }
            while true {
                if let bytes = try vault.read(Self.keyFile, atMost: VaultKeyFile.maximumSize) {
                    return try VaultKeyFile(bytes)
                }
                let names = try vault.entries()
                // Another process has just created the vault.
                if names.contains(Self.keyFile) { continue }
                guard !names.contains(Self.incomplete), names.contains(where: { !$0.hasPrefix(".") }) else {
                    return nil
                }
                throw lost
            }
        } catch let error as ProviderError {
            throw error
        } catch VaultKeyFile.Failure.newerVersion(let version) {
            throw ProviderError(
                .storeReadFailed,
                "The key of the vault \(path)/vault was written by a newer certprov (format \(version)); update certprov."
            )
        } catch let refusal as SafeDirectory.Refusal {
            throw ProviderError(.storeReadFailed, "The vault cannot be read: \(refusal.reason).")
        } catch { throw damaged }
    }

    var damaged: ProviderError {
        ProviderError(
            .storeReadFailed,
            "The key of the vault, \(path)/vault/\(Self.keyFile), is damaged; restore the file, or unregister with force and register "
                + "again.")
    }

    private var lost: ProviderError {
        ProviderError(
            .storeReadFailed,
            "The key of the vault, \(path)/vault/\(Self.keyFile), is missing; restore the file, or unregister with force and "
                + "register again.")
    }

    /// Begins a vault: until it has its key, its files are useless.
    func begin(in directory: SafeDirectory) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            let vault = try directory.create("vault", files)
            guard mark(vault) else { throw vault.failure("\(vault.path) cannot be written to") }
        } catch { throw unwritable(error) }
    }

    /// After it has its key. If it fails, the vault is whole all the same.
    func complete(in directory: SafeDirectory) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) { try directory.directory("vault")?.remove(Self.incomplete, files) } catch {
            throw unwritable(error)
        }
    }

    /// On disk with the next flush of the directory.
    private func mark(_ vault: SafeDirectory) -> Bool {
        let file = files.create(vault.descriptor, Self.incomplete, 0)
        guard file >= 0 else { return false }
        close(file)
        return true
    }

    func write(_ key: [UInt8], in directory: SafeDirectory) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            let vault = try directory.create("vault", files)
            // The sealed store removes the temporary files of writers that died.
            let lock = try StoreLock(in: vault, timeout: lockTimeout, files)
            defer { withExtendedLifetime(lock) {} }
            try vault.write(key, to: Self.keyFile, replacing: true, files)
        } catch { throw unwritable(error) }
    }

    func attempts(in directory: SafeDirectory) throws(ProviderError) -> VaultAttempts {
        do throws(SafeDirectory.Refusal) { return try .read(from: directory) } catch { throw unreadable(error) }
    }

    func setAttempts(
        _ attempts: VaultAttempts, in directory: SafeDirectory
    ) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) { try attempts.write(to: directory, files) } catch { throw unwritable(error) }
    }

    /// After the right passcode.
    func resetAttempts(in directory: SafeDirectory) throws(ProviderError) {
        try setAttempts(VaultAttempts(), in: directory)
        guard (try? rejected(in: directory))?.isEmpty != true else { return }
        try setRejected(RejectedSecrets(), in: directory)
    }

    /// Returns the record of the wrong passcodes of a source; `nil` if there is no such file.
    func rejected(in directory: SafeDirectory) throws(ProviderError) -> RejectedSecrets? {
        let record: [UInt8]?
        do throws(SafeDirectory.Refusal) {
            record = try directory.read(Self.rejectedFile, atMost: Self.rejectedSize)
        } catch { throw unreadable(error) }
        return try record.map { record throws(ProviderError) in
            try RejectedSecrets(SecretBytes(copying: record), ifDamaged: "run: certprov unlock --ask")
        }
    }

    /// A file that exists is changed in place, which needs no room, as for the attempts: on a full disk, a wrong passcode of a source
    /// must not be tried again and again. So all files have the same size, that of a sector.
    func setRejected(_ rejected: RejectedSecrets, in directory: SafeDirectory) throws(ProviderError) {
        var content = try rejected.record().withUnsafeBytes(Array.init)
        content += [UInt8](repeating: UInt8(ascii: " "), count: max(0, Self.rejectedSize - content.count))
        do throws(SafeDirectory.Refusal) {
            guard try !directory.overwrite(Self.rejectedFile, with: content, files) else { return }
            try directory.write(content, to: Self.rejectedFile, replacing: true, files)
        } catch { throw unwritable(error) }
    }

    /// Removes the remains of an interrupted creation or destruction. There is no key.
    func removeRest(from directory: SafeDirectory) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            if let vault = try directory.directory("vault") { try remove(vault, "vault", from: directory) }
        } catch { throw unwritable(error) }
    }

    /// The mark of an incomplete vault goes last.
    private func remove(
        _ inner: SafeDirectory, _ name: String, from directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) {
        for entry in try inner.entries() where entry != Self.incomplete { try inner.removeTree(entry, files) }
        try directory.removeTree(name, files)
    }

    /// Removes the vault, its key first, and what its creation has left.
    func destroy(_ directory: SafeDirectory) throws(ProviderError) {
        // Without a vault the store is that of an application that is not registered; with one, what its creation has left.
        // A damaged key is one.
        let hasVault: Bool
        do throws(ProviderError) { hasVault = try storedKey() != nil } catch { hasVault = true }
        // The store first: with the vault's key it would come to life again.
        let stores = (hasVault ? [("store", KeyFile.name)] : []) + [("vault", Self.keyFile)]
        do throws(SafeDirectory.Refusal) {
            for (store, key) in stores {
                guard let inner = try directory.directory(store) else { continue }
                // Writers wait, and find their directory gone.
                let lock = try StoreLock(in: inner, timeout: lockTimeout, files)
                defer { withExtendedLifetime(lock) {} }
                // A killed writer may have left a copy of the key.
                inner.removeAbandonedFiles(files)
                // On a full disk it may not be possible. Killed before the rest is removed, the vault then has lost its key.
                if store == "vault" { _ = mark(inner) }
                try inner.remove(key, files)
                try inner.flush(files)
                try remove(inner, store, from: directory)
            }
            try directory.remove(VaultAttempts.file, files)
            try directory.remove(Self.rejectedFile, files)
            try directory.flush(files)
        } catch {
            throw error.error(
                .deleteFailed, "The vault of '\(applicationID)' is not removed completely: \(error.reason). Try again.")
        }
    }

    /// The names in a directory, but for hidden ones; none if it does not exist.
    func names(in path: String) throws(ProviderError) -> [String] {
        do throws(SafeDirectory.Refusal) {
            return try SafeDirectory.open(path)?.entries().filter { !$0.hasPrefix(".") }.sorted() ?? []
        } catch { throw unreadable(error) }
    }

    func unreadable(_ refusal: SafeDirectory.Refusal) -> ProviderError {
        ProviderError(
            .storeReadFailed, "The vault of '\(applicationID)' cannot be read: \(refusal.reason).")
    }

    func unwritable(_ refusal: SafeDirectory.Refusal) -> ProviderError {
        refusal.error(.storeWriteFailed, "The vault of '\(applicationID)' cannot be written to: \(refusal.reason).")
    }

    var absent: ProviderError {
        ProviderError(.notFound, "The application '\(applicationID)' has no vault; register first.")
    }
}
