import COpenSSLCurves
public import CertificateProviding

/// A number that is secret: a factor of points, or a PIN. Carries `BN_FLG_CONSTTIME`, and is cleared when it is released.
public final class SecretScalar: @unchecked Sendable {
    // Written only before it is shared.
    let pointer: OpaquePointer

    /// Zero, to be filled.
    init() throws(ProviderError) {
        pointer = try OpenSSLFailure.made("BN_secure_new") { BN_secure_new() }
        BN_set_flags(pointer, BN_FLG_CONSTTIME)
    }

    /// Reads a number, big-endian.
    public convenience init(_ bytes: [UInt8]) throws(ProviderError) {
        try self.init()
        _ = try OpenSSLFailure.made("BN_bin2bn") { BN_bin2bn(bytes, Int32(clamping: bytes.count), pointer) }
    }

    /// Reads hexadecimal digits.
    convenience init(hexadecimal: String) throws(ProviderError) {
        try self.init()
        var number: OpaquePointer? = pointer
        OpenSSLFailure.clear()
        guard BN_hex2bn(&number, hexadecimal) == hexadecimal.utf8.count else {
            throw OpenSSLFailure.error(of: "BN_hex2bn")
        }
    }

    deinit { BN_clear_free(pointer) }

    /// The number, big-endian, in as many bytes.
    func bytes(count: Int) throws(ProviderError) -> SecretBytes {
        try SecretBytes(count: count) { buffer throws(ProviderError) in
            OpenSSLFailure.clear()
            let written = BN_bn2binpad(
                pointer, buffer.bindMemory(to: UInt8.self).baseAddress, Int32(clamping: count))
            guard written == count else { throw OpenSSLFailure.error(of: "BN_bn2binpad") }
        }
    }
}
