package import CertificateProviding

// Between processes of one login session.
extension DataVault {
    /// Keeps the vault unlocked for the processes of this login session, in the kernel's session keyring.
    ///
    /// - Parameter time: How long, at least a second.
    /// - Throws: `vaultLocked`; `unavailable` where there is no session keyring.
    package func keepUnlockedInSession(for time: Duration) throws(ProviderError) {
        guard let bytes = try key.existingKey(), let identifier = key.identifier else { throw Self.isLocked }
        var content = identifier + bytes.withUnsafeBytes { Array($0) }
        defer { content.wipe() }
        try SessionKeyring.add(
            SecretBytes(copying: content), named: sessionName,
            for: UInt32(clamping: max(1, time.components.seconds)))
    }

    /// Unlocks the vault for this process if the login session keeps it unlocked. Returns whether the vault is unlocked.
    ///
    /// - Throws: As ``state()``.
    package func unlockFromSession() throws(ProviderError) -> Bool {
        switch try state() {
        case .none: return false
        case .unlocked: return true
        case .locked: break
        }
        guard let stored = try files.storedKey(), let content = SessionKeyring.secret(named: sessionName) else {
            return false
        }
        let isCurrent = content.withUnsafeBytes { bytes in
            bytes.count == 16 + VaultKeyFile.keySize && Array(bytes[..<16]) == stored.identifier
        }
        guard isCurrent else { return false }
        key.set(
            content.withUnsafeBytes { SecretBytes(copying: $0[16...]) }, identifier: stored.identifier, stored.terms)
        sealed.forgetKey()
        return true
    }

    /// Ends what ``keepUnlockedInSession(for:)`` has begun.
    package func forgetInSession() { SessionKeyring.remove(sessionName) }

    private var sessionName: String { "certprov:\(files.path)" }
}
