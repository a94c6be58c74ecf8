import CertificateProviding
import Crypto
import SwiftASN1

/// A signature as a token gives it.
struct TokenSignature: Sendable {
    let bytes: [UInt8]
    let scheme: SignatureScheme

    /// Returns the signature as TLS carries it: of the modulus's length for RSA (RFC 8017, section 8.2.1), DER for
    /// ECDSA, for which tokens give r‖s (PKCS#11, section 2.3.1). Some modules drop leading zeros, or give DER
    /// themselves.
    ///
    /// - Throws: `protocolError` if the bytes are not a signature of the scheme.
    func encoded(for key: PublicKeyInfo, token: String) throws(ProviderError) -> [UInt8] {
        let size = (key.bits + 7) / 8
        let result: [UInt8]? =
            switch scheme {
            case .ecdsaP256SHA256, .ecdsaP384SHA384, .ecdsaP521SHA512:
                // DER of that length would contain numbers that do not occur by chance.
                bytes.count == 2 * size ? Self.der(bytes) : normalized ?? halves(of: size).flatMap(Self.der)
            case .ed25519: bytes.count == 64 ? bytes : nil
            default: Self.padded(bytes[...], to: size)
            }
        guard let result else {
            throw ProviderError(
                .protocolError,
                "The token '\(token)' returned a signature of \(bytes.count) bytes, which is not valid for \(scheme); update its "
                    + "PKCS#11 module.")
        }
        return result
    }

    /// The signature where it is DER already.
    private var normalized: [UInt8]? {
        switch scheme {
        case .ecdsaP256SHA256:
            (try? P256.Signing.ECDSASignature(derRepresentation: bytes)).map { Array($0.derRepresentation) }
        case .ecdsaP384SHA384:
            (try? P384.Signing.ECDSASignature(derRepresentation: bytes)).map { Array($0.derRepresentation) }
        default: (try? P521.Signing.ECDSASignature(derRepresentation: bytes)).map { Array($0.derRepresentation) }
        }
    }

    /// `ECDSA-Sig-Value` (RFC 3279, section 2.2.3) of r‖s.
    private static func der(_ bytes: [UInt8]) -> [UInt8]? {
        var serializer = DER.Serializer()
        try? serializer.appendConstructedNode(identifier: .sequence) { serializer in
            for half in [bytes.prefix(bytes.count / 2), bytes.suffix(bytes.count / 2)] {
                // Positive, and cut to what DER permits by the serializer.
                try serializer.serialize(([0] + half)[...])
            }
        }
        return serializer.serializedBytes.isEmpty ? nil : serializer.serializedBytes
    }

    /// r‖s with each half as long as the curve's order.
    private func halves(of size: Int) -> [UInt8]? {
        guard bytes.count.isMultiple(of: 2), let r = Self.padded(bytes.prefix(bytes.count / 2), to: size),
            let s = Self.padded(bytes.suffix(bytes.count / 2), to: size)
        else { return nil }
        return r + s
    }

    /// A number in `size` octets; `nil` when there are none, or it has more.
    private static func padded(_ number: ArraySlice<UInt8>, to size: Int) -> [UInt8]? {
        guard !number.isEmpty else { return nil }
        let digits = number.count > size ? number.drop { $0 == 0 } : number
        guard digits.count <= size else { return nil }
        return [UInt8](repeating: 0, count: size - digits.count) + digits
    }
}
