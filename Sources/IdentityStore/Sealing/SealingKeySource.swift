public import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc

/// Where the key comes from that seals the store. A passcode can stand here as well.
public protocol SealingKeySource: Sendable {
    /// Returns the key material, at least 32 bytes, or `nil` when there is none yet.
    func existingKey() throws(CertificateProviderError) -> SecretBytes?

    /// Returns the key material, making it first where there is none. Called under the store's lock, and where
    /// ``existingKey()`` was `nil` only for a store in which nothing else is sealed.
    func keyForSealing() throws(CertificateProviderError) -> SecretBytes
}

/// A key in a systemd credential: `LoadCredential=` or `LoadCredentialEncrypted=certprov-store-key:…` in the unit.
public struct SystemdCredentialKey: SealingKeySource {
    public static let credentialName = "certprov-store-key"
    private let key: SecretBytes

    /// Returns `nil` when the process was not given the credential, and only then: what fails in any other way must
    /// not be taken for a store that is sealed with a key file.
    /// - Throws: `configurationInvalid` for one that cannot be read or is shorter than 32 bytes.
    public init?(secrets: SecretReader) throws(CertificateProviderError) {
        guard secrets.credentialsDirectory != nil else { return nil }
        do throws(CertificateProviderError) {
            key = try secrets.read(.systemdCredential(Self.credentialName))
        } catch {
            guard error.code == .fileNotFound else { throw error }
            return nil
        }
        guard key.count >= 32 else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The credential \(Self.credentialName) has \(key.count) bytes; a sealing key needs at least 32: "
                    + "head -c 32 /dev/urandom | base64.")
        }
    }

    public func existingKey() throws(CertificateProviderError) -> SecretBytes? { key }
    public func keyForSealing() throws(CertificateProviderError) -> SecretBytes { key }
}

/// A key in a file of mode 0600 beside what it seals, made from 32 random bytes at first use.
///
/// It keeps identities apart from backups, copies and diagnostics of single files; it is no protection against someone
/// who can read this user's files. For that, give the key as a credential.
struct KeyFile: SealingKeySource {
    static let name = "store.key"
    static let size = 32
    let path: String
    let files: FileSystem

    func existingKey() throws(CertificateProviderError) -> SecretBytes? {
        do throws(SafeDirectory.Refusal) {
            guard var bytes = try SafeDirectory.open(path)?.read(Self.name, atMost: Self.size) else { return nil }
            defer { bytes.wipe() }
            // Not taken for a key that was exchanged: what to do about it is something else.
            guard bytes.count == Self.size else {
                throw SafeDirectory.Refusal(
                    reason:
                        "\(path)/\(Self.name) has \(bytes.count) bytes instead of \(Self.size): restore it, or remove "
                        + "\(path) and fetch the identities anew")
            }
            return SecretBytes(copying: bytes)
        } catch {
            throw CertificateProviderError(.storeReadFailed, "The store's key: \(error.reason).")
        }
    }

    func keyForSealing() throws(CertificateProviderError) -> SecretBytes {
        if let key = try existingKey() { return key }
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(path, files)
            var generator = SystemRandomNumberGenerator()
            var bytes = (0..<Self.size).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
            defer { bytes.wipe() }
            try directory.write(bytes, to: Self.name, replacing: false, files)
        } catch {
            throw CertificateProviderError(.storeWriteFailed, "The store's key: \(error.reason).")
        }
        guard let key = try existingKey() else {
            throw CertificateProviderError(.storeWriteFailed, "The store's key has just vanished from \(path).")
        }
        return key
    }
}

extension [UInt8] {
    /// Overwrites the bytes. Only reaches every copy when the array is the buffer's one owner.
    mutating func wipe() {
        withUnsafeMutableBytes { buffer in
            guard let base = buffer.baseAddress else { return }
            explicit_bzero(base, buffer.count)
        }
    }
}
