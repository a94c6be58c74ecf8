/// The parameters of a pairing's group G1: a short Weierstrass curve y² = x³ + ax + b, all in hexadecimal.
public struct G1Curve: Sendable, Equatable {
    /// As the protocol names it.
    public let name: String
    public let prime: String
    public let a: String
    public let b: String
    public let generatorX: String
    public let generatorY: String
    /// The prime order of the group.
    public let order: String
    /// The number of the curve's points divided by ``order``.
    public let cofactor: String

    public init(
        name: String, prime: String, a: String, b: String, generatorX: String, generatorY: String, order: String,
        cofactor: String
    ) {
        (self.name, self.prime, self.a, self.b) = (name, prime, a, b)
        (self.generatorX, self.generatorY) = (generatorX, generatorY)
        (self.order, self.cofactor) = (order, cofactor)
    }

    /// BLS12-381 (draft-irtf-cfrg-pairing-friendly-curves, section 4.2.1).
    public static let bls12381 = G1Curve(
        name: "BLS12381",
        prime: "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
        a: "0", b: "4",
        generatorX: "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb",
        generatorY: "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1",
        order: "73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001",
        cofactor: "396c8c005555e1568c00aaab0000aaab")
}
