import CertificateProviding
import Crypto

/// The encodings of RFC 8017, section 9, for tokens that only offer the raw RSA operation.
enum RSAPadding {
    /// A `DigestInfo` (RFC 8017, section 9.2, note 1).
    static func digestInfo(_ digest: [UInt8], _ hash: SigningMechanism.Hash) -> [UInt8] {
        let number: UInt8 =
            switch hash {
            case .none, .sha256: 1
            case .sha384: 2
            case .sha512: 3
            }
        // SEQUENCE { SEQUENCE { OID 2.16.840.1.101.3.4.2.n, NULL }, OCTET STRING }
        let size = UInt8(digest.count)
        return [0x30, 17 + size, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, number, 5, 0, 4, size] + digest
    }

    /// EMSA-PKCS1-v1_5 of a digest (section 9.2); `nil` when the key is too small for it.
    static func pkcs1(_ digest: [UInt8], _ hash: SigningMechanism.Hash, modulusBits: Int) -> [UInt8]? {
        let info = digestInfo(digest, hash)
        let padding = (modulusBits + 7) / 8 - info.count - 3
        guard padding >= 8 else { return nil }
        return [0, 1] + [UInt8](repeating: 0xff, count: padding) + [0] + info
    }

    /// EMSA-PSS of a digest, with a salt as long as the digest (section 9.1.1); `nil` when the key is too small for it.
    static func pss(
        _ digest: [UInt8], _ hash: SigningMechanism.Hash, modulusBits: Int
    ) -> [UInt8]? {
        let bits = modulusBits - 1
        let size = (bits + 7) / 8
        guard size >= 2 * hash.size + 2 else { return nil }
        let salt = SymmetricKey(size: .init(bitCount: hash.size * 8)).withUnsafeBytes { Array($0) }
        let digest = hash([UInt8](repeating: 0, count: 8) + digest + salt)
        var block = [UInt8](repeating: 0, count: size - 2 * hash.size - 2) + [1] + salt
        let mask = mgf1(digest, count: block.count, hash)
        for index in block.indices { block[index] ^= mask[index] }
        block[0] &= 0xff >> UInt8(8 * size - bits)
        // One octet longer than the encoding where the modulus has one bit more than a whole number of octets.
        let lead = [UInt8](repeating: 0, count: (modulusBits + 7) / 8 - size)
        return lead + block + digest + [0xbc]
    }

    /// The mask generation function MGF1 (appendix B.2.1).
    private static func mgf1(_ seed: [UInt8], count: Int, _ hash: SigningMechanism.Hash) -> [UInt8] {
        var mask: [UInt8] = []
        var counter: UInt32 = 0
        while mask.count < count {
            mask += hash(seed + withUnsafeBytes(of: counter.bigEndian) { Array($0) })
            counter += 1
        }
        return Array(mask.prefix(count))
    }
}
