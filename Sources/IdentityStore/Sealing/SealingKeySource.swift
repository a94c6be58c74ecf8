package import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc

/// The source of the key that seals the store: a file, a credential, or a passcode.
package protocol SealingKeySource: Sendable {
    /// Returns the key material, at least 32 bytes; `nil` if there is none yet. May block on a file.
    ///
    /// - Throws: `storeReadFailed` for key material that cannot be read, `vaultLocked` if a passcode is needed first.
    func existingKey() throws(ProviderError) -> SecretBytes?

    /// Returns the key material, and creates it if there is none. Called with the store's lock held. If
    /// ``existingKey()`` returned `nil`, it is called only for a store that contains no other sealed entry.
    ///
    /// - Throws: As ``existingKey()``; `storeWriteFailed` if the key cannot be created.
    func keyForSealing() throws(ProviderError) -> SecretBytes
}

/// A sealing key in a systemd credential: `LoadCredential=` or `LoadCredentialEncrypted=certprov-store-key:…`.
package struct SystemdCredentialKey: SealingKeySource {
    /// The name of the credential.
    package static let credentialName = "certprov-store-key"
    private let key: SecretBytes

    /// Reads the credential; `nil` only if the process was not given it. Any other failure is an error: it must not
    /// select the key file instead.
    /// - Throws: `configurationInvalid` for a credential that cannot be read or is shorter than 32 bytes.
    package init?(secrets: SecretReader) throws(ProviderError) {
        guard secrets.credentialsDirectory != nil else { return nil }
        do throws(ProviderError) {
            key = try secrets.read(.systemdCredential(Self.credentialName))
        } catch {
            guard error.code == .fileNotFound else { throw error }
            return nil
        }
        guard key.count >= 32 else {
            throw ProviderError(
                .configurationInvalid,
                "The credential \(Self.credentialName) has \(key.count) bytes; a sealing key needs at least 32. Create "
                    + "one with: head -c 32 /dev/urandom | base64")
        }
    }

    /// Returns the credential, as it was read at creation. Throws nothing.
    package func existingKey() throws(ProviderError) -> SecretBytes? { key }
    /// Returns the credential, as it was read at creation. Throws nothing.
    package func keyForSealing() throws(ProviderError) -> SecretBytes { key }
}

/// A sealing key in a file of mode 0600 beside the sealed entries: 32 random bytes, created at first use.
///
/// Protects identities in backups, copies and diagnostics that contain single files only, and not against a process
/// that can read this user's files. For that, pass the key as a credential.
struct KeyFile: SealingKeySource {
    static let name = "store.key"
    static let size = 32
    let path: String
    let files: FileSystem

    func existingKey() throws(ProviderError) -> SecretBytes? {
        do throws(SafeDirectory.Refusal) {
            guard var bytes = try SafeDirectory.open(path)?.read(Self.name, atMost: Self.size) else { return nil }
            defer { bytes.wipe() }
            // Not taken for a key that was exchanged: what to do about it is something else.
            guard bytes.count == Self.size else {
                throw SafeDirectory.Refusal(
                    reason:
                        "\(path)/\(Self.name) has \(bytes.count) bytes instead of \(Self.size); restore it, or remove "
                        + "\(path) and fetch the identities again")
            }
            return SecretBytes(copying: bytes)
        } catch {
            throw ProviderError(.storeReadFailed, "The store's key cannot be read: \(error.reason).")
        }
    }

    func keyForSealing() throws(ProviderError) -> SecretBytes {
        if let key = try existingKey() { return key }
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(path, files)
            var generator = SystemRandomNumberGenerator()
            var bytes = (0..<Self.size).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
            defer { bytes.wipe() }
            try directory.write(bytes, to: Self.name, replacing: false, files)
        } catch {
            throw ProviderError(.storeWriteFailed, "The store's key cannot be created: \(error.reason).")
        }
        guard let key = try existingKey() else {
            throw ProviderError(
                .storeWriteFailed, "Another process removed the store's key from \(path); try again.")
        }
        return key
    }
}

extension [UInt8] {
    /// Overwrites the bytes with zeros. Complete only if the array is the only owner of its buffer.
    mutating func wipe() {
        withUnsafeMutableBytes { buffer in
            guard let base = buffer.baseAddress else { return }
            explicit_bzero(base, buffer.count)
        }
    }
}
