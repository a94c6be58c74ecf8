import CertificateProviding
import Testing

@Suite struct PublicKeyInfoTests {
    private func key(_ algorithm: [UInt8], _ bits: [UInt8]) throws -> PublicKeyInfo {
        let content = algorithm + [0x03, 0x82, UInt8((bits.count + 1) >> 8), UInt8((bits.count + 1) & 0xff), 0] + bits
        return try PublicKeyInfo(
            derRepresentation: [0x30, 0x82, UInt8(content.count >> 8), UInt8(content.count & 0xff)] + content)
    }

    @Test("An RSA key is the same one, whether it is certified as rsaEncryption or as id-RSASSA-PSS")
    func anRSAKeyHasTwoAlgorithms() throws {
        let plain = try SoftwareKey.generate(.rsa2048, location: .file).publicKey
        let restricted = try key(
            [0x30, 0x0b, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a], plain.keyBits)
        #expect(restricted.isRestrictedToPSS && restricted.derRepresentation != plain.derRepresentation)
        #expect(restricted == plain && Set([restricted, plain]).count == 1 && restricted.sha256 != plain.sha256)
        #expect(try SoftwareKey.generate(.rsa2048, location: .file).publicKey != plain)
    }

    @Test("Keys of an unknown type are the same only in the same encoding")
    func unknownKeysAreComparedWhole() throws {
        // Two parameters of one algorithm.
        let (one, other) = (
            try key([0x30, 0x07, 0x06, 0x02, 0x2a, 0x03, 0x02, 0x01, 0x01], .init(repeating: 7, count: 300)),
            try key([0x30, 0x07, 0x06, 0x02, 0x2a, 0x03, 0x02, 0x01, 0x02], .init(repeating: 7, count: 300))
        )
        #expect(one.bits == 0 && one.algorithm == other.algorithm && one.keyBits == other.keyBits && one != other)
    }
}
