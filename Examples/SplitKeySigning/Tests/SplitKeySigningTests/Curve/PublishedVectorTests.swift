import CertificateProviding
import Testing

@testable import SplitKeySigning

/// The vectors of M-Pin, byte for byte.
@Suite(.enabled(if: PublishedVectors.directory != nil, PublishedVectors.reason))
struct PublishedVectorTests {
    private struct ThreePasses: Decodable {
        let MPINId, MS1, MS2, CS1, CS2, CS, TOKEN, X, U, Y, V: String
        let PIN1, PIN2: UInt32
    }

    private struct OnePass: Decodable {
        let MPIN_ID_HEX, HASH_MPIN_ID_HEX, MS1, MS2, CS1, CS2, CLIENT_SECRET, TOKEN, X, U, UT, Y, SEC: String
        let TP1, TP2, TIME_PERMIT: String
        let PIN1, PIN2, DATE, TimeValue: UInt32
    }

    private static func scalar(_ number: UInt32) throws -> SecretScalar {
        try SecretScalar(withUnsafeBytes(of: number.bigEndian, Array.init))
    }

    @Test func bls12381() async throws {
        let group = try G1Group(.bls12381)
        let scheme = SplitKeyScheme(group)
        let vectors = try PublishedVectors.read("BLS381.json", as: ThreePasses.self)
        #expect(vectors.count == 150)
        for vector in vectors {
            // Other tests wait for this thread.
            await Task.yield()
            let a = try scheme.point(of: try hex(vector.MPINId))
            let (c1, c2) = (
                try a.times(try SecretScalar(try hex(vector.MS1))), try a.times(try SecretScalar(try hex(vector.MS2)))
            )
            #expect(try c1.bytes() == hex(vector.CS1))
            #expect(try c2.bytes() == hex(vector.CS2))
            let cs = try group.point(try hex(vector.CS1), named: "C1").plus(
                try group.point(try hex(vector.CS2), named: "C2"))
            #expect(try cs.bytes() == hex(vector.CS))
            let one = try SecretScalar([1])
            let token = try scheme.token(cs, blinding: one, pin: try Self.scalar(vector.PIN1), identity: a)
            #expect(try token.bytes() == hex(vector.TOKEN))
            let (x, y) = (try group.scalar(try hex(vector.X)), try group.scalar(try hex(vector.Y)))
            #expect(try a.times(x).bytes() == hex(vector.U))
            let v = try scheme.proof(
                token, pin: try Self.scalar(vector.PIN2), identity: a, random: x, challenge: y)
            #expect(try v.bytes() == hex(vector.V))
        }
    }

    @Test func bn254() async throws {
        let group = try G1Group(.bn254cx)
        let scheme = SplitKeyScheme(group)
        let vectors = try PublishedVectors.read("BN254_CXOnePass.json", as: OnePass.self)
        #expect(vectors.count == 300)
        for vector in vectors {
            // Other tests wait for this thread.
            await Task.yield()
            let identity = try hex(vector.MPIN_ID_HEX)
            #expect(try SplitKeyScheme.hash(0, identity) == hex(vector.HASH_MPIN_ID_HEX))
            let a = try scheme.point(of: identity)
            let d = try group.map(SplitKeyScheme.hash(vector.DATE, try hex(vector.HASH_MPIN_ID_HEX)))
            let (s1, s2) = (try SecretScalar(try hex(vector.MS1)), try SecretScalar(try hex(vector.MS2)))
            #expect(try a.times(s1).bytes() == hex(vector.CS1))
            #expect(try a.times(s2).bytes() == hex(vector.CS2))
            #expect(try d.times(s1).bytes() == hex(vector.TP1))
            let cs = try group.point(try hex(vector.CS1), named: "C1").plus(
                try group.point(try hex(vector.CS2), named: "C2"))
            #expect(try cs.bytes() == hex(vector.CLIENT_SECRET))
            let permit = try group.point(try hex(vector.TP1), named: "TP1").plus(
                try group.point(try hex(vector.TP2), named: "TP2"))
            #expect(try permit.bytes() == hex(vector.TIME_PERMIT))
            let token = try scheme.token(
                cs, blinding: try SecretScalar([1]), pin: try Self.scalar(vector.PIN1), identity: a)
            #expect(try token.bytes() == hex(vector.TOKEN))
            let x = try group.scalar(try hex(vector.X))
            #expect(try a.times(x).bytes() == hex(vector.U))
            let ut = try a.times(x).plus(try d.times(x)).bytes()
            #expect(try ut == hex(vector.UT))
            let y = try scheme.challenge(ut, [], at: vector.TimeValue)
            #expect(try y.bytes(count: group.scalarSize) == SecretBytes(copying: try hex(vector.Y)))
            let v = try scheme.proof(
                try token.plus(permit), pin: try Self.scalar(vector.PIN2), identity: a, random: x, challenge: y)
            #expect(try v.bytes() == hex(vector.SEC))
        }
    }
}
