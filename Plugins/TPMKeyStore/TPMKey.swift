import CertificateProviding
import Crypto
import FoundationEssentials

/// A private key in a TPM.
struct TPMKey: IdentityKey {
    let publicKey: PublicKeyInfo
    /// Each has signed a probe, or is the only one of its curve.
    let signatureSchemes: [SignatureScheme]
    let use: KeyUse
    let uri: String?
    let blob: TPMKeyBlob
    let tpm: TPM

    static let location = KeyLocation(rawValue: "tpm")
    var location: KeyLocation { Self.location }
    var signatureTimeout: Duration? { tpm.settings.timeout }
    var digestSigner: (any DigestSigning)? { signatureSchemes.isEmpty ? nil : self }
    var attester: (any KeyAttesting)? { tpm.settings.attestation == nil ? nil : self }
    var decrypter: (any KeyDecrypting)? { decryptionSchemes.isEmpty ? nil : self }
    var wrapped: WrappedKey? {
        WrappedKey(label: TPMKeyBlob.label, der: SecretBytes(copying: blob.derRepresentation))
    }

    func signature(for message: [UInt8], using scheme: SignatureScheme) async throws(ProviderError) -> [UInt8] {
        guard signatureSchemes.contains(scheme), let algorithm = scheme.digestAlgorithm else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key \(uri ?? "") does not sign with \(scheme); use \(signatureSchemes.map(\.description).joined(separator: " or "))."
            )
        }
        return try await signature(forDigest: algorithm.digest(of: message), using: scheme)
    }
}

extension TPMKey: DigestSigning {
    var digestSchemes: [SignatureScheme] { signatureSchemes }

    func signature(forDigest digest: [UInt8], using scheme: SignatureScheme) async throws(ProviderError) -> [UInt8] {
        try requireDigest(digest, for: scheme)
        let blob = blob
        let signature = try await tpm.run(beneath: blob.parent, using: blob) { _, parent throws(TPMFailure) in
            try parent.load(blob).sign(digest, scheme.tpmScheme)
        }
        return try scheme.encoded(signature)
    }
}

extension TPMKey: KeyAttesting {
    func attestation(of data: [UInt8]) async throws(ProviderError) -> KeyAttestation {
        try requireAttestable(data)
        guard let authority = tpm.authority else {
            throw ProviderError(
                .configurationInvalid,
                "No CA for attestation keys is configured; set KeyStore.tpm.attestation-url.")
        }
        return try await TPMAttester(tpm: tpm, authority: authority).attestation(of: data, for: blob)
    }
}

extension TPMKey: KeyDecrypting {
    var decryptionSchemes: [DecryptionScheme] { use.decryptionSchemes }

    func decrypt(
        _ ciphertext: [UInt8], using scheme: DecryptionScheme
    ) async throws(ProviderError) -> SecretBytes {
        guard decryptionSchemes.contains(scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key \(uri ?? "") does not decrypt by \(scheme); use \(decryptionSchemes.map(\.description).joined(separator: " or "))."
            )
        }
        let blob = blob
        let plaintext = try await tpm.run(beneath: blob.parent, using: blob) {
            _, parent throws(TPMFailure) -> SecretBytes? in
            let key = try parent.load(blob)
            // Without telling which error the TPM has found.
            do throws(TPMFailure) { return try key.decrypt(ciphertext, scheme.tpmScheme) } catch {
                guard error.isOfInput else { throw error }
                return nil
            }
        }
        if let plaintext { return plaintext }
        throw ProviderError(
            .malformedData,
            "The ciphertext cannot be decrypted: it is damaged, or was encrypted for another key or by another scheme.")
    }
}

extension DigestAlgorithm {
    /// `TPMI_ALG_HASH`.
    fileprivate var tpm: [UInt8] {
        switch self {
        case .sha256: TPMAlgorithm.sha256.tpmBytes
        case .sha384: TPMAlgorithm.sha384.tpmBytes
        default: TPMAlgorithm.sha512.tpmBytes
        }
    }
}

extension SignatureScheme {
    /// The schemes to probe for a key, most preferred first.
    static func candidates(for key: PublicKeyInfo) -> [SignatureScheme] {
        switch key.curve {
        case "P-256": [.ecdsaP256SHA256]
        case "P-384": [.ecdsaP384SHA384]
        default: rsaPSS + rsaPKCS1
        }
    }

    private static let rsaPSS: [Self] = [.rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512]
    static let rsaPKCS1: [Self] = [.rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512]

    /// `TPMT_SIG_SCHEME`.
    fileprivate var tpmScheme: [UInt8] {
        let algorithm =
            Self.rsaPSS.contains(self)
            ? TPMAlgorithm.rsapss : Self.rsaPKCS1.contains(self) ? TPMAlgorithm.rsassa : TPMAlgorithm.ecdsa
        return algorithm.tpmBytes + (digestAlgorithm ?? .sha256).tpm
    }

    /// Returns the signature as TLS has it.
    ///
    /// - Parameter signature: A `TPMT_SIGNATURE`.
    func encoded(_ signature: [UInt8]) throws(ProviderError) -> [UInt8] {
        do {
            var reader = TPMReader(signature)
            _ = try reader.bytes(4)
            let first = try reader.sized()
            switch self {
            case .ecdsaP256SHA256:
                let raw = first.padded(to: 32) + (try reader.sized().padded(to: 32))
                return [UInt8](try P256.Signing.ECDSASignature(rawRepresentation: raw).derRepresentation)
            case .ecdsaP384SHA384:
                let raw = first.padded(to: 48) + (try reader.sized().padded(to: 48))
                return [UInt8](try P384.Signing.ECDSASignature(rawRepresentation: raw).derRepresentation)
            default: return first
            }
        } catch {
            throw ProviderError(
                .protocolError, "The signature of the TPM cannot be read; try again.", underlying: error)
        }
    }
}

extension DecryptionScheme {
    /// `TPMT_RSA_DECRYPT`.
    fileprivate var tpmScheme: [UInt8] {
        switch self {
        case .rsaOAEPSHA256: TPMAlgorithm.oaep.tpmBytes + TPMAlgorithm.sha256.tpmBytes
        case .rsaOAEPSHA1: TPMAlgorithm.oaep.tpmBytes + TPMAlgorithm.sha1.tpmBytes
        default: TPMAlgorithm.rsaes.tpmBytes
        }
    }
}
