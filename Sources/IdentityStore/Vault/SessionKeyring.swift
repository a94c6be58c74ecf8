import CLinux
import CertificateProviding
import Glibc

/// The kernel's session keyring (keyrings(7)), which the processes of one login session share. It keeps the key of an unlocked
/// vault between them, in memory only, and forgets it after a time.
enum SessionKeyring {
    /// Puts a secret there, in the place of one with the same name.
    ///
    /// - Parameter seconds: How long it stays.
    /// - Throws: `unavailable` where there is no session keyring: then the kernel takes one that all processes of the user have.
    static func add(_ secret: SecretBytes, named name: String, for seconds: UInt32) throws(ProviderError) {
        let session = certprov_keyring_id(certprov_session_keyring())
        guard session >= 0 else { throw unavailable(errno) }
        guard session != certprov_keyring_id(certprov_user_session_keyring()) else { throw unavailable(nil) }
        // sudo and su leave that of the other user, whose processes could then read the key.
        guard isOwn(session) else {
            throw ProviderError(
                .unavailable,
                "The session keyring belongs to another user; run the command in a login session of this one, or under "
                    + "'keyctl session'.")
        }
        // In the keyring of this process, which ends with it: killed before the timeout is set, the key does not stay.
        let key = secret.withUnsafeBytes { certprov_key_add(name, $0.baseAddress, $0.count) }
        guard key >= 0 else { throw unavailable(errno) }
        guard certprov_key_set_timeout(key, seconds) == 0, certprov_key_link_to_session(key) == 0 else {
            let code = errno
            _ = certprov_key_invalidate(key)
            throw unavailable(code)
        }
    }

    /// Returns the secret with a name; `nil` if there is none.
    static func secret(named name: String) -> SecretBytes? {
        let key = certprov_key_find(name)
        guard key >= 0, isOwn(key) else { return nil }
        var buffer = [UInt8](repeating: 0, count: 256)
        defer { buffer.wipe() }
        let count = buffer.withUnsafeMutableBytes { certprov_key_read(key, $0.baseAddress, $0.count) }
        guard count > 0, count <= buffer.count else { return nil }
        return SecretBytes(copying: buffer[..<count])
    }

    /// Removes a secret. Succeeds if there is none.
    static func remove(_ name: String) {
        let key = certprov_key_find(name)
        if key >= 0 { _ = certprov_key_invalidate(key) }
    }

    /// Whether a key or keyring belongs to this user: `type;uid;gid;…`.
    private static func isOwn(_ key: Int) -> Bool {
        var text = [CChar](repeating: 0, count: 4352)
        let count = certprov_key_describe(key, &text, text.count)
        guard count > 0, count <= text.count else { return false }
        let fields = text[..<count].map { UInt8(bitPattern: $0) }.split(separator: UInt8(ascii: ";"))
        return fields.count > 2 && String(decoding: fields[1], as: UTF8.self) == "\(geteuid())"
    }

    private static func unavailable(_ code: Int32?) -> ProviderError {
        ProviderError(
            .unavailable,
            "This process has no session keyring to keep the vault unlocked in"
                + (code.map { " (\(errorText($0)))" } ?? "")
                + "; run it in a login session or under 'keyctl session', or set Passcode.source.")
    }
}
