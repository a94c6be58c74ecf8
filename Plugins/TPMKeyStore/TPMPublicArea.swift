import CertificateProviding
import Crypto
import CryptoExtras
import FoundationEssentials

/// A `TPM2B_PUBLIC` (TPM 2.0 Part 2, section 12.2.5), as bytes.
struct TPMPublicArea: Sendable {
    /// The attributes of an object (section 8.3).
    private struct Attributes: OptionSet {
        let rawValue: UInt32
        static let (fixedTPM, fixedParent) = (Self(rawValue: 1 << 1), Self(rawValue: 1 << 4))
        static let (sensitiveDataOrigin, userWithAuth) = (Self(rawValue: 1 << 5), Self(rawValue: 1 << 6))
        static let (noDA, restricted) = (Self(rawValue: 1 << 10), Self(rawValue: 1 << 16))
        static let adminWithPolicy = Self(rawValue: 1 << 7)
        static let (decrypt, sign) = (Self(rawValue: 1 << 17), Self(rawValue: 1 << 18))
        /// A key that never leaves its TPM, and whose failures lock nothing.
        static let own: Self = [fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA]
    }

    let bytes: [UInt8]

    private init(
        _ type: UInt16, _ attributes: Attributes, policy: [UInt8] = [], _ parameters: [UInt8], unique: [UInt8]
    ) {
        let head = type.tpmBytes + TPMAlgorithm.sha256.tpmBytes + attributes.rawValue.tpmBytes + policy.tpmSized
        bytes = (head + parameters + unique).tpmSized
    }

    /// A public area as a key file has it. Not looked at yet.
    init(bytes: [UInt8]) { self.bytes = bytes }

    /// The template of the owner's storage key, as tpm2-openssl and tpm2-tss-engine have it: another `unique` would be another key.
    static let storageKey = TPMPublicArea(
        TPMAlgorithm.ecc, [.own, .restricted, .decrypt],
        [TPMAlgorithm.aes, 128, TPMAlgorithm.cfb, TPMAlgorithm.null, TPMAlgorithm.p256, TPMAlgorithm.null]
            .flatMap(\.tpmBytes),
        unique: [UInt8]().tpmSized + [UInt8]().tpmSized)

    /// The template of the endorsement key for RSA 2048 (TCG EK Credential Profile, section B.3.3). Its policy is PolicySecret of the
    /// endorsement hierarchy.
    static let endorsementKey = TPMPublicArea(
        TPMAlgorithm.rsa, [.fixedTPM, .fixedParent, .sensitiveDataOrigin, .adminWithPolicy, .restricted, .decrypt],
        policy: [
            0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd, 0x52,
            0xd7, 0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
        ],
        [TPMAlgorithm.aes, 128, TPMAlgorithm.cfb, TPMAlgorithm.null, 2048].flatMap(\.tpmBytes) + UInt32(0).tpmBytes,
        unique: [UInt8](repeating: 0, count: 256).tpmSized)

    /// The template of an attestation key: it signs, by ECDSA, what the TPM itself has made.
    static let attestationKey = TPMPublicArea(
        TPMAlgorithm.ecc, [.own, .restricted, .sign],
        [TPMAlgorithm.null, TPMAlgorithm.ecdsa, TPMAlgorithm.sha256, TPMAlgorithm.p256, TPMAlgorithm.null]
            .flatMap(\.tpmBytes),
        unique: [UInt8]().tpmSized + [UInt8]().tpmSized)

    /// The template of a new key; `nil` for a type that no TPM makes here. The scheme is left open, so that the caller's digest
    /// decides.
    init?(_ type: KeyType, _ use: KeyUse) {
        var attributes = Attributes.own
        if use.contains(.signing) { attributes.insert(.sign) }
        if !use.decryptionSchemes.isEmpty { attributes.insert(.decrypt) }
        let open = TPMAlgorithm.null.tpmBytes + TPMAlgorithm.null.tpmBytes
        func ecc(_ curve: UInt16) -> TPMPublicArea {
            TPMPublicArea(
                TPMAlgorithm.ecc, attributes, open + curve.tpmBytes + TPMAlgorithm.null.tpmBytes,
                unique: [UInt8]().tpmSized + [UInt8]().tpmSized)
        }
        func rsa(_ bits: UInt16) -> TPMPublicArea {
            TPMPublicArea(
                TPMAlgorithm.rsa, attributes, open + bits.tpmBytes + UInt32(0).tpmBytes, unique: [UInt8]().tpmSized)
        }
        switch type {
        case .p256: self = ecc(TPMAlgorithm.p256)
        case .p384: self = ecc(TPMAlgorithm.p384)
        case .rsa2048: self = rsa(2048)
        case .rsa3072: self = rsa(3072)
        default: return nil
        }
    }

    /// Whether a wrong authorisation of the key does not count towards a lockout of the TPM.
    var locksNothing: Bool {
        var reader = TPMReader(bytes)
        guard (try? reader.bytes(6)) != nil, let attributes = try? reader.uint32() else { return false }
        return Attributes(rawValue: attributes).contains(.noDA)
    }

    /// Reads the key.
    ///
    /// - Parameter isRestricted: Whether it was made by ``attestationKey`` or ``endorsementKey``.
    /// - Throws: `malformedData`; `unsupportedAlgorithm` for another key than this store makes: one that asks for a policy, or is
    ///   bound to one scheme.
    func publicKey(isRestricted: Bool = false) throws(ProviderError) -> PublicKeyInfo {
        do { return try read(isRestricted) } catch let error as ProviderError { throw error } catch {
            throw ProviderError(
                .malformedData, "The public part of the TPM key is damaged; replace the key.", underlying: error)
        }
    }

    private func read(_ isRestricted: Bool) throws -> PublicKeyInfo {
        var outer = TPMReader(bytes)
        var reader = TPMReader(try outer.sized())
        let type = try reader.uint16()
        _ = try reader.uint16()
        let attributes = Attributes(rawValue: try reader.uint32())
        let hasPolicy = try !reader.sized().isEmpty || !attributes.contains(.userWithAuth)
        guard isRestricted || !hasPolicy else { throw Self.unsupported("asks for a policy") }
        guard isRestricted == attributes.contains(.restricted) else {
            throw Self.unsupported("signs no digests of a caller")
        }
        // A symmetric algorithm has a size and a mode, a scheme has a hash.
        for size in [4, 2] where try reader.uint16() != TPMAlgorithm.null {
            guard isRestricted else { throw Self.unsupported("is bound to one scheme") }
            _ = try reader.bytes(size)
        }
        var key: PublicKeyInfo?
        if type == TPMAlgorithm.ecc {
            let curve = try reader.uint16()
            guard try reader.uint16() == TPMAlgorithm.null else { throw Self.unsupported("is bound to one scheme") }
            key = Self.key(on: curve, try reader.sized(), try reader.sized())
        } else if type == TPMAlgorithm.rsa {
            _ = try reader.uint16()
            let exponent = try reader.uint32()
            let modulus = try reader.sized()
            let rsa = try? _RSA.Signing.PublicKey(
                n: modulus, e: exponent == 0 ? [1, 0, 1] : Array(exponent.tpmBytes.drop { $0 == 0 }))
            key = rsa.flatMap { try? PublicKeyInfo(derRepresentation: $0.derRepresentation) }
        } else {
            throw Self.unsupported("is of a kind")
        }
        guard reader.isAtEnd, outer.isAtEnd else { throw TPMReader.Failure() }
        guard let key else { throw Self.unsupported("is of a type or size") }
        return key
    }

    private static func unsupported(_ reason: String) -> ProviderError {
        ProviderError(
            .unsupportedAlgorithm,
            "The TPM key \(reason), which is not supported; use a P-256, P-384 or RSA key for signatures, without policy."
        )
    }

    private static func key(on curve: UInt16, _ x: [UInt8], _ y: [UInt8]) -> PublicKeyInfo? {
        func point(_ size: Int) -> [UInt8] { [4] + x.padded(to: size) + y.padded(to: size) }
        let der =
            switch curve {
            case TPMAlgorithm.p256: try? P256.Signing.PublicKey(x963Representation: point(32)).derRepresentation
            case TPMAlgorithm.p384: try? P384.Signing.PublicKey(x963Representation: point(48)).derRepresentation
            default: nil as Data?
            }
        return der.flatMap { try? PublicKeyInfo(derRepresentation: $0) }
    }
}
