import COpenSSLCurves
public import CertificateProviding

/// A group G1, by OpenSSL's `EC_GROUP` with parameters of its own
/// ([EC_GROUP_new(3)](https://docs.openssl.org/3.0/man3/EC_GROUP_new/)).
///
/// OpenSSL multiplies in constant time only in a group whose order and cofactor are set, and one point at a time. It then
/// works with the factor plus a multiple of the order, which is right for points of that order only. Two tasks have points
/// of another order, or the order itself as factor: ``map(_:)`` and the check of points from outside. They use a
/// second group without order and cofactor, and no secrets.
public final class G1Group: @unchecked Sendable {
    // OpenSSL only reads a group after this initialiser.
    public let curve: G1Curve
    /// With order and cofactor, for secret factors.
    let pointer: OpaquePointer
    /// Without them.
    private let plain: OpaquePointer
    let prime: SecretScalar
    let order: SecretScalar
    private let cofactor: SecretScalar
    /// The size of a coordinate.
    public let coordinateSize: Int
    /// The size of a scalar.
    public let scalarSize: Int

    /// BLS12-381's, made once.
    public static let bls12381 = Result { () throws(ProviderError) in try G1Group(.bls12381) }

    public init(_ curve: G1Curve) throws(ProviderError) {
        self.curve = curve
        prime = try SecretScalar(hexadecimal: curve.prime)
        order = try SecretScalar(hexadecimal: curve.order)
        cofactor = try SecretScalar(hexadecimal: curve.cofactor)
        coordinateSize = (Int(BN_num_bits(prime.pointer)) + 7) / 8
        scalarSize = (Int(BN_num_bits(order.pointer)) + 7) / 8
        let (a, b) = (try SecretScalar(hexadecimal: curve.a), try SecretScalar(hexadecimal: curve.b))
        let context = try NumberContext()
        let (p, numbers) = (prime.pointer, context.pointer)
        plain = try OpenSSLFailure.made("EC_GROUP_new_curve_GFp") {
            EC_GROUP_new_curve_GFp(p, a.pointer, b.pointer, numbers)
        }
        do throws(ProviderError) {
            let plain = plain
            pointer = try OpenSSLFailure.made("EC_GROUP_dup") { EC_GROUP_dup(plain) }
        } catch {
            EC_GROUP_free(plain)
            throw error
        }
        try setGenerator(context)
    }

    deinit {
        EC_GROUP_free(pointer)
        EC_GROUP_free(plain)
    }

    private func setGenerator(_ context: NumberContext) throws(ProviderError) {
        let x = try SecretScalar(hexadecimal: curve.generatorX)
        let y = try SecretScalar(hexadecimal: curve.generatorY)
        let generator = try G1Point(in: self)
        try OpenSSLFailure.check("EC_POINT_set_affine_coordinates") {
            EC_POINT_set_affine_coordinates(plain, generator.pointer, x.pointer, y.pointer, context.pointer)
        }
        try OpenSSLFailure.check("EC_GROUP_set_generator") {
            EC_GROUP_set_generator(pointer, generator.pointer, order.pointer, cofactor.pointer)
        }
    }

    // MARK: - Points

    /// The generator that the curve's parameters name.
    public func generator() throws(ProviderError) -> G1Point {
        let copy = try G1Point(in: self)
        try OpenSSLFailure.check("EC_POINT_copy") { EC_POINT_copy(copy.pointer, EC_GROUP_get0_generator(pointer)) }
        return copy
    }

    /// Reads a point from outside, `04‖x‖y`.
    ///
    /// - Parameter name: What it is, for the message.
    /// - Throws: `malformedData` for a wrong length, a coordinate that is not below the prime, and a point that is not on the
    ///   curve, at infinity, or outside the subgroup.
    public func point(_ bytes: [UInt8], named name: String) throws(ProviderError) -> G1Point {
        let size = 1 + 2 * coordinateSize
        guard bytes.count == size, bytes.first == 4 else {
            throw Self.malformed(
                name, "must be a point of \(size) bytes that begins with 04, and has \(bytes.count) bytes")
        }
        let (point, context) = (try G1Point(in: self), try NumberContext())
        // Reads coordinates below the prime only, and points of the curve only.
        guard EC_POINT_oct2point(plain, point.pointer, bytes, bytes.count, context.pointer) == 1 else {
            OpenSSLFailure.clear()
            throw Self.malformed(name, "is not a point of the curve \(curve.name)")
        }
        let product = try multiple(of: point, by: order, context)
        guard EC_POINT_is_at_infinity(plain, product.pointer) == 1 else {
            throw Self.malformed(name, "is a point of the curve \(curve.name) outside of its subgroup")
        }
        return point
    }

    private static func malformed(_ name: String, _ problem: String) -> ProviderError {
        ProviderError(.malformedData, "\(name) \(problem); it is not used.")
    }

    /// Finds a point whose logarithm is unknown, for a number modulo the prime: the first x from there upwards that has a y, and
    /// of its two y the even one; times the cofactor.
    public func map(_ start: [UInt8]) throws(ProviderError) -> G1Point {
        let (point, context) = (try G1Point(in: self), try NumberContext())
        let (number, x) = (try SecretScalar(start), try SecretScalar())
        try OpenSSLFailure.check("BN_nnmod") { BN_nnmod(x.pointer, number.pointer, prime.pointer, context.pointer) }
        while EC_POINT_set_compressed_coordinates(plain, point.pointer, x.pointer, 0, context.pointer) != 1 {
            // Half of all x have no y: other reasons there are none, but too little memory, and then this fails, too.
            try OpenSSLFailure.check("BN_add_word") { BN_add_word(x.pointer, 1) }
            if BN_cmp(x.pointer, prime.pointer) == 0 { BN_zero_ex(x.pointer) }
        }
        return try multiple(of: point, by: cofactor, context)
    }

    /// In the group without order: right for every point, and not in constant time.
    private func multiple(
        of point: G1Point, by factor: SecretScalar, _ context: NumberContext
    ) throws(ProviderError) -> G1Point {
        let product = try G1Point(in: self)
        try OpenSSLFailure.check("EC_POINT_mul") {
            EC_POINT_mul(plain, product.pointer, nil, point.pointer, factor.pointer, context.pointer)
        }
        return product
    }

    // MARK: - Scalars

    /// A random number from 1 to the order - 1.
    public func randomScalar() throws(ProviderError) -> SecretScalar {
        let number = try SecretScalar()
        repeat {
            try OpenSSLFailure.check("BN_priv_rand_range") { BN_priv_rand_range(number.pointer, order.pointer) }
        } while BN_is_zero(number.pointer) == 1
        return number
    }

    /// A number modulo the order.
    public func scalar(_ bytes: [UInt8]) throws(ProviderError) -> SecretScalar {
        let (number, scalar, context) = (try SecretScalar(bytes), try SecretScalar(), try NumberContext())
        try OpenSSLFailure.check("BN_nnmod") {
            BN_nnmod(scalar.pointer, number.pointer, order.pointer, context.pointer)
        }
        return scalar
    }

    /// `left + right` modulo the order, of two numbers below it.
    public func sum(_ left: SecretScalar, _ right: SecretScalar) throws(ProviderError) -> SecretScalar {
        let sum = try SecretScalar()
        try OpenSSLFailure.check("BN_mod_add_quick") {
            BN_mod_add_quick(sum.pointer, left.pointer, right.pointer, order.pointer)
        }
        return sum
    }

    /// 1/number modulo the order.
    public func inverse(of number: SecretScalar) throws(ProviderError) -> SecretScalar {
        let (inverse, context) = (try SecretScalar(), try NumberContext())
        _ = try OpenSSLFailure.made("BN_mod_inverse") {
            BN_mod_inverse(inverse.pointer, number.pointer, order.pointer, context.pointer)
        }
        return inverse
    }
}
