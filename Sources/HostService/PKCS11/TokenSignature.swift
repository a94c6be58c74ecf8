import CertificateProviding
import Crypto

extension TokenObject {
    /// The mechanisms that the private key signs by.
    var mechanisms: [TokenMechanism] {
        TokenMechanism.allCases.filter { mechanism in
            guard kind == .privateKey, let key = identity?.key else { return false }
            return schemes(of: key).contains { Self.mechanism(of: $0) == mechanism }
        }
    }

    /// Those by which the socket gets a signature: callers bring digests, but for Ed25519.
    private func schemes(of key: any IdentityKey) -> [SignatureScheme] {
        (key.digestSigner?.digestSchemes ?? []) + key.signatureSchemes.filter { $0 == .ed25519 }
    }

    private static func mechanism(of scheme: SignatureScheme) -> TokenMechanism? {
        switch scheme {
        case .ecdsaP256SHA256, .ecdsaP384SHA384, .ecdsaP521SHA512: .ecdsa
        case .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512: .rsaPKCS
        case .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPSSPSSSHA256, .rsaPSSPSSSHA384,
            .rsaPSSPSSSHA512:
            .rsaPSS
        case .ed25519: .eddsa
        default: nil
        }
    }

    /// Returns the schemes of a mechanism with its parameters.
    ///
    /// - Throws: `CKR_MECHANISM_INVALID`, `CKR_MECHANISM_PARAM_INVALID`, `CKR_KEY_TYPE_INCONSISTENT`,
    ///   `CKR_KEY_FUNCTION_NOT_PERMITTED` for another object than a private key that signs.
    func schemes(for mechanism: UInt64, _ parameters: [UInt8]) throws(ReturnCode) -> [SignatureScheme] {
        guard let mechanism = TokenMechanism(rawValue: mechanism) else { throw .mechanismInvalid }
        guard kind == .privateKey, let key = identity?.key, !mechanisms.isEmpty else { throw .keyFunctionNotPermitted }
        let schemes = schemes(of: key).filter { Self.mechanism(of: $0) == mechanism }
        guard !schemes.isEmpty else { throw .keyTypeInconsistent }
        guard mechanism == .rsaPSS else {
            // None, or a null pointer, with or without a byte that says so.
            guard [[], [0], [0, 0, 0, 0], [0xff, 0xff, 0xff, 0xff]].contains(parameters) else {
                throw .mechanismParameterInvalid
            }
            return schemes
        }
        let found = schemes.filter { scheme in
            scheme.digestAlgorithm.map { parameters.suffix(24).elementsEqual(Self.pssParameters($0)) } ?? false
        }
        guard !found.isEmpty, parameters.count == 24 || parameters.count == 25 && parameters[0] == 1 else {
            throw .mechanismParameterInvalid
        }
        return found
    }

    /// `CK_RSA_PKCS_PSS_PARAMS`: hash, MGF1 with the same hash, and a salt of the size of the digest.
    private static func pssParameters(_ digest: DigestAlgorithm) -> [UInt8] {
        let numbers: [UInt64] =
            switch digest {
            case .sha256: [0x250, 2, 32]
            case .sha384: [0x260, 3, 48]
            default: [0x270, 4, 64]
            }
        var writer = RPCWriter()
        for number in numbers { writer.write(number) }
        return writer.bytes
    }

    /// The size of a signature.
    var signatureSize: Int {
        let key = certificate.publicKey
        return key.algorithm == .rsa ? (key.bits + 7) / 8 : 2 * ((key.bits + 7) / 8)
    }

    /// Signs what a caller has given to a mechanism.
    ///
    /// - Parameter schemes: Those of the mechanism.
    /// - Returns: The signature as PKCS#11 has it: r and s, or the octets.
    /// - Throws: `CKR_DATA_INVALID` and `CKR_DATA_LEN_RANGE` for data that no scheme signs; `ProviderError` of the key.
    func signature(of data: [UInt8], by schemes: [SignatureScheme]) async throws -> [UInt8] {
        guard let key = identity?.key, let first = schemes.first else { throw ReturnCode.keyFunctionNotPermitted }
        if first == .ed25519 { return try await key.signature(for: data, using: first) }
        guard let signer = key.digestSigner else { throw ReturnCode.keyFunctionNotPermitted }
        for scheme in schemes {
            guard let algorithm = scheme.digestAlgorithm,
                let digest = try Self.digest(in: data, scheme, algorithm)
            else { continue }
            let signature = try await signer.signature(forDigest: digest, using: scheme)
            return try Self.mechanism(of: scheme) == .ecdsa ? Self.raw(signature, scheme) : signature
        }
        throw ReturnCode.dataInvalid
    }

    /// The digest that a scheme signs; `nil` if the data are for another scheme of the mechanism.
    private static func digest(
        in data: [UInt8], _ scheme: SignatureScheme, _ algorithm: DigestAlgorithm
    ) throws(ReturnCode) -> [UInt8]? {
        switch mechanism(of: scheme) {
        case .rsaPKCS:
            let digest = Array(data.suffix(algorithm.size))
            return data == algorithm.digestInfo(digest) ? digest : nil
        case .rsaPSS: return data.count == algorithm.size ? data : nil
        case .ecdsa:
            // FIPS 186-5, section 6.4: the leftmost bits, as many as the order has. Of P-521 those are more than a digest of SHA-512.
            guard !data.isEmpty, scheme != .ecdsaP521SHA512 || data.count <= algorithm.size else {
                throw .dataLengthRange
            }
            return Array(repeating: 0, count: max(0, algorithm.size - data.count)) + data.prefix(algorithm.size)
        default: return nil
        }
    }

    private static func raw(_ signature: [UInt8], _ scheme: SignatureScheme) throws -> [UInt8] {
        let raw =
            switch scheme {
            case .ecdsaP256SHA256: try P256.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation
            case .ecdsaP384SHA384: try P384.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation
            default: try P521.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation
            }
        return Array(raw)
    }
}
