import CertificateProviding
import Crypto
import FoundationEssentials

/// A new private key, as it goes to an agent.
struct GeneratedKey: Sendable {
    let key: SoftwareKey
    let publicKey: SSHPublicKey

    /// Generates a key.
    ///
    /// - Throws: `internal`.
    init(_ type: KeyType) throws(ProviderError) {
        key = try SoftwareKey.generate(type, location: .plugin)
        guard let publicKey = SSHPublicKey(key.publicKey) else {
            throw ProviderError(.internal, "A key of type \(type) cannot be in an ssh-agent.")
        }
        self.publicKey = publicKey
    }

    /// Returns the number of an EC key without superfluous zeros (RFC 4251, section 5: mpint), and the 32 bytes of an Ed25519
    /// key.
    func secret() throws(ProviderError) -> SecretBytes {
        let pkcs8 = try key.pkcs8Representation()
        do { return try pkcs8.withUnsafeBytes { try secret($0) } } catch {
            throw ProviderError(.internal, "The new key cannot be encoded for the ssh-agent.")
        }
    }

    private func secret(_ pkcs8: UnsafeRawBufferPointer) throws -> SecretBytes {
        var raw =
            switch publicKey.type {
            case .p256: try P256.Signing.PrivateKey(derRepresentation: pkcs8).rawRepresentation
            case .p384: try P384.Signing.PrivateKey(derRepresentation: pkcs8).rawRepresentation
            case .p521: try P521.Signing.PrivateKey(derRepresentation: pkcs8).rawRepresentation
            case .ed25519: Data(pkcs8.suffix(32))
            }
        defer { raw.resetBytes(in: 0..<raw.count) }
        guard publicKey.type != .ed25519 else { return SecretBytes(copying: raw) }
        let zeros = raw.prefix { $0 == 0 }.count
        // A first bit would be the sign.
        let sign = raw.dropFirst(zeros).first.map { $0 >= 0x80 ? 1 : 0 } ?? 0
        return SecretBytes(count: sign + raw.count - zeros) { number in
            for index in zeros..<raw.count { number[sign + index - zeros] = raw[index] }
        }
    }
}
