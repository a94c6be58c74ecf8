import COpenSSLCurves
import CertificateProviding
import Testing

@testable import SplitKeySigning

/// What holds for every curve, and points from outside.
struct CurveTests {
    static let curves = [G1Curve.bls12381, .bn254cx]

    @Test(arguments: curves) func algebra(_ curve: G1Curve) throws {
        let group = try G1Group(curve)
        let g = try group.generator()
        let (x, y) = (try group.randomScalar(), try group.randomScalar())
        #expect(try g.times(x).plus(try g.times(y)).bytes() == g.times(try group.sum(x, y)).bytes())
        #expect(try g.times(x).times(try group.inverse(of: x)).bytes() == g.bytes())
        #expect(try g.minus(g).isAtInfinity)
        #expect(try g.times(try SecretScalar([0])).isAtInfinity)
        #expect(try g.times(try SecretScalar([2])).bytes() == g.plus(g).bytes())
        #expect(try g.times(try SecretScalar(hexadecimal: curve.order)).isAtInfinity)
        #expect(throws: ProviderError.self) { try g.minus(g).bytes() }
    }

    @Test(arguments: curves) func mapLeadsIntoTheSubgroup(_ curve: G1Curve) throws {
        let group = try G1Group(curve)
        for number in 0..<20 {
            let point = try SplitKeyScheme(group).point(of: [UInt8(number)])
            #expect(try group.point(try point.bytes(), named: "A").bytes() == point.bytes())
        }
    }

    @Test func mapReducesItsNumber() throws {
        let group = try G1Group(.bls12381)
        let seven = try SecretScalar([7])
        let raised = try SecretScalar()
        BN_add(raised.pointer, group.prime.pointer, seven.pointer)
        let start = try raised.bytes(count: 48).withUnsafeBytes { Array($0) }
        #expect(try group.map(start).bytes() == group.map([7]).bytes())
    }

    @Test func mapOfAKnownIdentity() throws {
        // Computed with affine arithmetic on whole numbers, not with OpenSSL.
        let point = try SplitKeyScheme(try G1Group(.bls12381)).point(of: Array("alice@example.com".utf8))
        #expect(try point.bytes() == hex(KnownPoints.alice))
    }

    @Test func aChangedPINIsThatOfAnEnrolmentWithIt() throws {
        let group = try G1Group(.bls12381)
        let scheme = SplitKeyScheme(group)
        let a = try scheme.point(of: [1, 2, 3])
        let (secret, z) = (try a.times(try group.randomScalar()), try group.randomScalar())
        let (old, new) = (try SecretScalar([0x04, 0xd2]), try SecretScalar([0]))
        let token = try scheme.token(secret, blinding: z, pin: old, identity: a)
        let changed = try scheme.token(token, from: old, to: new, identity: a)
        #expect(try changed.bytes() == scheme.token(secret, blinding: z, pin: new, identity: a).bytes())
        #expect(try changed.bytes() == secret.times(z).bytes())
    }

    @Test func scalarsAreMarkedForConstantTime() throws {
        let group = try G1Group(.bls12381)
        for scalar in [
            try group.randomScalar(), try group.scalar([1]), try SecretScalar([1]),
            try group.inverse(of: try group.randomScalar()),
            try group.sum(try group.randomScalar(), try group.randomScalar()),
        ] {
            #expect(BN_get_flags(scalar.pointer, BN_FLG_CONSTTIME) != 0)
        }
        #expect(BN_is_zero(EC_GROUP_get0_order(group.pointer)) == 0)
        #expect(BN_is_zero(EC_GROUP_get0_cofactor(group.pointer)) == 0)
    }

    // MARK: - Points from outside

    @Test func malformedPointsAreRefused() throws {
        let group = try G1Group(.bls12381)
        for (name, bytes) in try MalformedPoints.all(of: group) {
            let error = #expect(throws: ProviderError.self, "\(name)") {
                try group.point(bytes, named: "C1")
            }
            #expect(error?.code == .malformedData, "\(name)")
            #expect(error?.message.hasPrefix("C1 ") == true, "\(name)")
            #expect(ERR_peek_error() == 0, "\(name)")
        }
    }
}
