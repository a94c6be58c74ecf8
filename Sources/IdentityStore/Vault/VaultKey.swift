import CertificateProviding

/// The key of an unlocked vault, in this process.
final class VaultKey: SealingKeySource {
    private struct Unlocked {
        let key: SecretBytes
        let identifier: [UInt8]
        /// Whether the key's file is not written yet.
        let isNew: Bool
        /// The server's limit of the vault's use.
        let lockSeconds: Int?
    }
    private let unlocked = BlockingMutex<Unlocked?>(nil)
    /// Returns the identifier of the key that is on disk; `nil` if there is none.
    private let storedIdentifier: @Sendable () throws(ProviderError) -> [UInt8]?

    init(storedIdentifier: @escaping @Sendable () throws(ProviderError) -> [UInt8]?) {
        self.storedIdentifier = storedIdentifier
    }

    var isUnlocked: Bool { unlocked.withLock { $0 != nil } }
    var identifier: [UInt8]? { unlocked.withLock { $0?.identifier } }

    var lockSeconds: Int? { unlocked.withLock { $0?.lockSeconds } }

    func set(_ key: SecretBytes, identifier: [UInt8], _ terms: VaultTerms, isNew: Bool = false) {
        let seconds = terms.demands?.lockSeconds
        unlocked.withLock { $0 = Unlocked(key: key, identifier: identifier, isNew: isNew, lockSeconds: seconds) }
    }

    func forget() { unlocked.withLock { $0 = nil } }

    /// Looks at the disk each time: another process may have destroyed the vault.
    func existingKey() throws(ProviderError) -> SecretBytes? {
        guard let unlocked = unlocked.withLock(\.self) else {
            throw ProviderError(
                .vaultLocked, "The vault is locked; run 'certprov unlock --for 15m', or set Passcode.source.")
        }
        let isCurrent = unlocked.isNew ? true : try storedIdentifier() == unlocked.identifier
        guard isCurrent else {
            throw ProviderError(
                .vaultDestroyed, "The vault was destroyed, or made anew, by another process; register again.")
        }
        return unlocked.key
    }

    func keyForSealing() throws(ProviderError) -> SecretBytes {
        guard let key = try existingKey() else {
            throw ProviderError(
                .vaultLocked, "The vault is locked; run 'certprov unlock --for 15m', or set Passcode.source.")
        }
        return key
    }
}
