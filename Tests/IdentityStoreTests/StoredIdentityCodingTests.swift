import CertificateProviding
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct StoredIdentityCodingTests {
    private func field(_ tag: UInt8, _ bytes: [UInt8]) -> [UInt8] {
        [tag] + (0..<4).reversed().map { UInt8(bytes.count >> ($0 * 8) & 0xff) } + bytes
    }

    private func decode(_ bytes: [UInt8]) throws -> StoredIdentity {
        try StoredIdentityCoding.decode(SecretBytes(copying: bytes))
    }

    @Test(arguments: TestAuthority.KeyKind.allCases) func decodesWhatItEncoded(kind: TestAuthority.KeyKind) throws {
        let identity = try Samples.stored("coded", kind: kind)
        let coded = StoredIdentityCoding.encode(identity)
        #expect(try StoredIdentityCoding.decode(coded) == identity)
    }

    @Test func theOrderOfAttributesDoesNotMatter() throws {
        var identity = try Samples.stored("x")
        identity.attributes = Dictionary(uniqueKeysWithValues: (0..<50).map { ("k\($0)", "v\($0)") })
        #expect(StoredIdentityCoding.encode(identity) == StoredIdentityCoding.encode(identity))
    }

    @Test func refusesWhatNoWriterWrote() throws {
        let certificate = field(1, try Samples.stored("x").certificateChain[0].derRepresentation)
        #expect(try decode(certificate).certificateChain.count == 1 && decode(certificate).trust == nil)
        let malformed: [String: [UInt8]] = [
            "nothing": [], "no certificate": field(2, [1]), "an unknown field": certificate + field(9, []),
            "two keys": certificate + field(2, [1]) + field(2, [1]), "no separator": certificate + field(3, [65]),
            "half a header": certificate + [1, 0, 0], "a length beyond the end": certificate + [3, 0, 0, 0, 9, 65],
            "the largest length": certificate + [3, 0xff, 0xff, 0xff, 0xff], "no DER": field(1, [1, 2, 3]),
            "an empty certificate": field(1, []), "a damaged trust bundle": certificate + field(4, [1, 2, 3]),
        ]
        for (what, bytes) in malformed {
            #expect(throws: (any Error).self, "\(what)") { _ = try decode(bytes) }
        }
    }

    @Test func refusesEveryPrefix() throws {
        let identity = try Samples.stored("x")
        let whole = StoredIdentityCoding.encode(identity).withUnsafeBytes { Array($0) }
        // A prefix that ends with a field is a shorter identity; every other prefix is refused.
        var accepted = 0
        for length in 0..<whole.count where (try? decode(Array(whole.prefix(length)))) != nil { accepted += 1 }
        let trust = identity.trust?.certificates.count ?? 0
        #expect(accepted == identity.certificateChain.count + trust + 1 + identity.attributes.count - 1)
    }
}
