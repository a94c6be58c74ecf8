import CertificateProviding
import Crypto

/// The equations of the signer.
///
/// | | |
/// |---|---|
/// | identity's point | A = Map(identity) |
/// | token | T = z·(C₁ + C₂) − pin·A |
/// | signature | U = x·A, y = H(t, U ‖ M), V = −(x + y)·(T + pin·A) |
struct SplitKeyScheme: Sendable {
    let group: G1Group

    init(_ group: G1Group) { self.group = group }

    /// SHA-256 of a number in four bytes and data; of the data alone for 0.
    static func hash(_ number: UInt32, _ data: [UInt8]) -> [UInt8] {
        var hash = SHA256()
        if number != 0 { withUnsafeBytes(of: number.bigEndian) { hash.update(bufferPointer: $0) } }
        hash.update(data: data)
        return Array(hash.finalize())
    }

    /// The point of an identity.
    func point(of identity: [UInt8]) throws(ProviderError) -> G1Point {
        try group.map(Self.hash(0, identity))
    }

    /// T, of the sum of the issuers' shares.
    func token(
        _ clientSecret: G1Point, blinding: SecretScalar, pin: SecretScalar, identity: G1Point
    ) throws(ProviderError) -> G1Point {
        try subtracting(pin, of: identity, from: try clientSecret.times(blinding))
    }

    /// T for another PIN.
    func token(
        _ token: G1Point, from old: SecretScalar, to new: SecretScalar, identity: G1Point
    ) throws(ProviderError) -> G1Point {
        try subtracting(new, of: identity, from: try adding(old, of: identity, to: token))
    }

    /// y, of U and the digest that is signed.
    func challenge(_ u: [UInt8], _ digest: [UInt8], at time: UInt32) throws(ProviderError) -> SecretScalar {
        try group.scalar(Self.hash(time, u + digest))
    }

    /// V.
    func proof(
        _ token: G1Point, pin: SecretScalar, identity: G1Point, random x: SecretScalar, challenge y: SecretScalar
    ) throws(ProviderError) -> G1Point {
        try adding(pin, of: identity, to: token).times(try group.sum(x, y)).negated()
    }

    /// `point + pin·A`, as (point − A) + (pin + 1)·A: a multiple by 0, of a PIN such as 0000, would take less time.
    private func adding(
        _ pin: SecretScalar, of a: G1Point, to point: G1Point
    ) throws(ProviderError) -> G1Point {
        try point.minus(a).plus(try a.times(try group.sum(pin, try SecretScalar([1]))))
    }

    /// `point − pin·A`, as (point + A) − (pin + 1)·A.
    private func subtracting(
        _ pin: SecretScalar, of a: G1Point, from point: G1Point
    ) throws(ProviderError) -> G1Point {
        try point.plus(a).minus(try a.times(try group.sum(pin, try SecretScalar([1]))))
    }
}
