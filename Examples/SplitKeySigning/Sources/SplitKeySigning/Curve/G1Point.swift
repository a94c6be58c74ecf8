import COpenSSLCurves
public import CertificateProviding

/// A point of a ``G1Group``'s subgroup. Cleared when it is released, since some are secret.
public final class G1Point: @unchecked Sendable {
    // Written only before it is shared.
    let pointer: OpaquePointer
    public let group: G1Group

    /// To be filled.
    init(in group: G1Group) throws(ProviderError) {
        self.group = group
        let pointer = group.pointer
        self.pointer = try OpenSSLFailure.made("EC_POINT_new") { EC_POINT_new(pointer) }
    }

    deinit { EC_POINT_clear_free(pointer) }

    public var isAtInfinity: Bool { EC_POINT_is_at_infinity(group.pointer, pointer) == 1 }

    /// `04‖x‖y`.
    ///
    /// - Throws: `malformedData` for the point at infinity, which has no such form.
    public func bytes() throws(ProviderError) -> [UInt8] {
        guard !isAtInfinity else {
            throw ProviderError(
                .malformedData, "A computed point is the one at infinity; the numbers from outside are wrong.")
        }
        let (size, context) = (1 + 2 * group.coordinateSize, try NumberContext())
        var bytes = [UInt8](repeating: 0, count: size)
        OpenSSLFailure.clear()
        let written = EC_POINT_point2oct(
            group.pointer, pointer, POINT_CONVERSION_UNCOMPRESSED, &bytes, size, context.pointer)
        guard written == size else { throw OpenSSLFailure.error(of: "EC_POINT_point2oct") }
        return bytes
    }

    /// The product with a secret number, in constant time.
    public func times(_ factor: SecretScalar) throws(ProviderError) -> G1Point {
        let (product, context) = (try G1Point(in: group), try NumberContext())
        try OpenSSLFailure.check("EC_POINT_mul") {
            EC_POINT_mul(group.pointer, product.pointer, nil, pointer, factor.pointer, context.pointer)
        }
        return product
    }

    public func plus(_ other: G1Point) throws(ProviderError) -> G1Point {
        let (sum, context) = (try G1Point(in: group), try NumberContext())
        try OpenSSLFailure.check("EC_POINT_add") {
            EC_POINT_add(group.pointer, sum.pointer, pointer, other.pointer, context.pointer)
        }
        return sum
    }

    public func negated() throws(ProviderError) -> G1Point {
        let (copy, context) = (try G1Point(in: group), try NumberContext())
        try OpenSSLFailure.check("EC_POINT_copy") { EC_POINT_copy(copy.pointer, pointer) }
        try OpenSSLFailure.check("EC_POINT_invert") { EC_POINT_invert(group.pointer, copy.pointer, context.pointer) }
        return copy
    }

    public func minus(_ other: G1Point) throws(ProviderError) -> G1Point { try plus(try other.negated()) }
}
