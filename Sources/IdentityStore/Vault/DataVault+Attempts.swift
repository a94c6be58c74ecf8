package import CertificateProviding
import Crypto
import FoundationEssentials

// The passcode: what a new one must be, and what an attempt with one costs.
extension DataVault {
    /// Checks a new passcode; `nil` for none.
    ///
    /// - Throws: `configurationInvalid`.
    package func check(_ passcode: SecretBytes?, _ terms: VaultTerms) throws(ProviderError) {
        if let passcode { try policy.check(passcode) }
        let tightened = policy.tightened(by: terms.demands)
        guard let passcode else {
            if tightened.allowsDefault { return }
            throw ProviderError(
                .configurationInvalid,
                policy.allowsDefault
                    ? "The platform server demands a passcode; set Passcode.source."
                    : "The vault needs a passcode; set Passcode.source, or set Passcode.default-allowed to true.")
        }
        do throws(ProviderError) { try tightened.check(passcode) } catch {
            throw ProviderError(error.code, "\(error.message) The platform server demands it.")
        }
    }

    func attempt(
        _ secrets: VaultSecrets, isAutomatic: Bool, in directory: SafeDirectory
    ) throws(ProviderError) -> (key: SecretBytes, VaultKeyFile) {
        isAutomatic ? try automaticAttempt(secrets, in: directory) : try attempt(secrets, in: directory)
    }

    /// As ``attempt(_:in:)``, but for a passcode that would be tried again and again: it is refused after its first failure,
    /// and where one attempt is left.
    private func automaticAttempt(
        _ secrets: VaultSecrets, in directory: SafeDirectory
    ) throws(ProviderError) -> (key: SecretBytes, VaultKeyFile) {
        guard let passcode = secrets.passcode, let stored = try files.storedKey() else {
            return try attempt(secrets, in: directory)
        }
        var rejected = try files.rejected(in: directory) ?? RejectedSecrets()
        let object = DisplayText.hexadecimal(stored.digest)
        if !rejected.isEmpty, rejected.contains(try stretched(passcode, rejected, stored), for: object) {
            throw ProviderError(
                .wrongPassword,
                "The passcode was rejected before, and is not tried again; correct it, or run: certprov unlock --ask")
        }
        let limit = max(0, policy(stored).maximumAttempts)
        let count = try files.attempts(in: directory).count
        if limit > 0, count + 1 >= limit {
            throw ProviderError(
                .wrongPassword,
                "A wrong passcode would now destroy the vault, so none is tried without a user; run: certprov unlock --ask"
            )
        }
        // After a wrong one, which may be this one: without a place for the note, it would be tried again and again.
        if count > 0 {
            do throws(ProviderError) { try files.setRejected(rejected, in: directory) } catch {
                throw ProviderError(
                    .storeWriteFailed,
                    "The passcode is not tried: if it is wrong, that cannot be noted. \(error.message) Make room on the disk, or run: "
                        + "certprov unlock --ask")
            }
        }
        do throws(ProviderError) { return try attempt(secrets, in: directory) } catch {
            if error.code == .wrongPassword, let wrong = try? stretched(passcode, rejected, stored) {
                rejected.insert(wrong, for: object, keeping: 4)
                // If it fails, no passcode of a source is tried until it can be written.
                try? files.setRejected(rejected, in: directory)
            }
            throw error
        }
    }

    /// Returns what a wrong passcode is noted as: it costs as much to guess from as the vault's key.
    private func stretched(
        _ passcode: SecretBytes, _ rejected: RejectedSecrets, _ stored: VaultKeyFile
    ) throws(ProviderError) -> SecretBytes {
        do {
            return try VaultKeyFile.derive(passcode, salt: Array(rejected.key), stored.parameters)
                .withUnsafeBytes { SecretBytes(copying: $0) }
        } catch { throw ProviderError(.internal, "The passcode cannot be compared.", underlying: error) }
    }

    private func attempt(
        _ secrets: VaultSecrets, in directory: SafeDirectory
    ) throws(ProviderError) -> (key: SecretBytes, VaultKeyFile) {
        guard let stored = try files.storedKey() else { throw files.absent }
        guard (secrets.passcode == nil) == stored.hasNoPasscode else {
            // Nothing is tried.
            throw secrets.passcode == nil
                ? Self.isLocked
                : ProviderError(
                    .operationNotAllowed,
                    "The vault of '\(applicationID)' has no passcode; remove Passcode.source, or "
                        + "enter none.")
        }
        if let wrapping = stored.terms.wrapping {
            guard let factor = secrets.factor else {
                throw ProviderError(
                    .vaultLocked,
                    "The vault also needs the key \(wrapping.key.uri.withVisibleControls); unlock it where that key is."
                )
            }
            guard wrapping.fits(factor) else { throw files.damaged }
        }
        if stored.hasNoPasscode {
            guard let opened = try open(stored, with: secrets) else { throw files.damaged }
            return (opened, stored)
        }
        // Every guess of an empty passcode is the same guess, so it need not be counted.
        if secrets.passcode?.isEmpty == true {
            guard let opened = try open(stored, with: secrets) else {
                throw ProviderError(
                    .wrongPassword, "An empty passcode is wrong, and costs no attempt; enter the passcode of the vault."
                )
            }
            try? files.resetAttempts(in: directory)
            return (opened, stored)
        }
        let (before, limit) = (try files.attempts(in: directory), max(0, policy(stored).maximumAttempts))
        // The process that made the last one was killed. If the limit was higher then, one attempt is left.
        let isUsedUp = limit > 0 && before.count >= limit && before.limit > 0 && before.count >= before.limit
        let count = limit > 0 ? min(before.count, limit - 1) : before.count
        if !isUsedUp {
            try files.setAttempts(VaultAttempts(count: count + 1, limit: limit), in: directory)
            do throws(ProviderError) {
                if let opened = try open(stored, with: secrets) {
                    // If it fails, the passcode is right all the same, and the next success sets it back.
                    try? files.resetAttempts(in: directory)
                    return (opened, stored)
                }
            } catch {
                // Nothing was found out about the passcode.
                try? files.setAttempts(before, in: directory)
                throw error
            }
        }
        guard limit == 0 || count + 1 < limit, !isUsedUp else {
            lock()
            try files.destroy(directory)
            throw ProviderError(
                .vaultDestroyed,
                "\(limit) wrong passcodes in a row have destroyed the vault of '\(applicationID)'; register again.")
        }
        let left = limit - count - 1
        let warning =
            limit == 0 ? "" : " The vault is destroyed after \(left) more wrong \(left == 1 ? "one" : "ones")."
        throw ProviderError(.wrongPassword, "The passcode of the vault is wrong.\(warning)")
    }

    /// Returns `nil` for a wrong passcode.
    private func open(
        _ stored: VaultKeyFile, with secrets: VaultSecrets
    ) throws(ProviderError) -> SecretBytes? {
        do { return try stored.open(with: secrets, of: applicationID) } catch {
            throw ProviderError(.internal, "The vault's key cannot be derived.", underlying: error)
        }
    }
}
