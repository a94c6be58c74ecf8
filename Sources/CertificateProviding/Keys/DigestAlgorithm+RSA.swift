import Crypto

extension DigestAlgorithm {
    /// Returns the `DigestInfo` (RFC 8017, section 9.2, note 1) of a digest, for a device that adds the padding of
    /// RSASSA-PKCS1-v1_5 itself.
    public func digestInfo(_ digest: [UInt8]) -> [UInt8] {
        let number: UInt8 =
            switch function {
            case .sha256: 1
            case .sha384: 2
            case .sha512: 3
            }
        // SEQUENCE { SEQUENCE { OID 2.16.840.1.101.3.4.2.n, NULL }, OCTET STRING }
        let size = UInt8(self.size)
        return [0x30, 17 + size, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, number, 5, 0, 4, size] + digest
    }

    /// EMSA-PKCS1-v1_5 of a digest (section 9.2); `nil` when the key is too small for it.
    fileprivate func pkcs1(_ digest: [UInt8], modulusBits: Int) -> [UInt8]? {
        let info = digestInfo(digest)
        let padding = (modulusBits + 7) / 8 - info.count - 3
        guard padding >= 8 else { return nil }
        return [0, 1] + [UInt8](repeating: 0xff, count: padding) + [0] + info
    }

    /// EMSA-PSS of a digest, with a salt as long as the digest (section 9.1.1); `nil` when the key is too small for it.
    fileprivate func pss(_ digest: [UInt8], modulusBits: Int) -> [UInt8]? {
        let bits = modulusBits - 1
        let size = (bits + 7) / 8
        guard size >= 2 * self.size + 2 else { return nil }
        let salt = SymmetricKey(size: .init(bitCount: self.size * 8)).withUnsafeBytes { Array($0) }
        let digest = self.digest(of: [UInt8](repeating: 0, count: 8) + digest + salt)
        var block = [UInt8](repeating: 0, count: size - 2 * self.size - 2) + [1] + salt
        let mask = mgf1(digest, count: block.count)
        for index in block.indices { block[index] ^= mask[index] }
        block[0] &= 0xff >> UInt8(8 * size - bits)
        // One octet longer than the encoding where the modulus has one bit more than a whole number of octets.
        let lead = [UInt8](repeating: 0, count: (modulusBits + 7) / 8 - size)
        return lead + block + digest + [0xbc]
    }

    /// The mask generation function MGF1 (appendix B.2.1).
    private func mgf1(_ seed: [UInt8], count: Int) -> [UInt8] {
        var mask: [UInt8] = []
        var counter: UInt32 = 0
        while mask.count < count {
            mask += digest(of: seed + withUnsafeBytes(of: counter.bigEndian) { Array($0) })
            counter += 1
        }
        return Array(mask.prefix(count))
    }
}

extension SignatureScheme {
    /// Returns the encoded message of an RSA scheme (RFC 8017, sections 9.1.1 and 9.2), for a device that computes
    /// `RSASP1` only: a digest with its padding, as long as the modulus. The salt of RSASSA-PSS is random.
    ///
    /// - Parameters:
    ///   - digest: Made by ``digestAlgorithm``.
    ///   - modulusBits: The size of the key.
    /// - Returns: `nil` for a scheme that is not RSA, and for a digest or a key of another size than the scheme needs.
    public func encodedMessage(ofDigest digest: [UInt8], modulusBits: Int) -> [UInt8]? {
        guard let algorithm = digestAlgorithm, digest.count == algorithm.size else { return nil }
        switch self {
        case .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512:
            return algorithm.pkcs1(digest, modulusBits: modulusBits)
        case .ecdsaP256SHA256, .ecdsaP384SHA384, .ecdsaP521SHA512: return nil
        default: return algorithm.pss(digest, modulusBits: modulusBits)
        }
    }
}
