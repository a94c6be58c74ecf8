import Crypto
import CryptoExtras
import FoundationEssentials
import SwiftASN1

/// A private key in memory: RSA, P-256, P-384, P-521 or Ed25519. Signs with swift-crypto.
public struct SoftwareKey: IdentityKey, KeyExporting {
    /// The key itself.
    public var exporter: (any KeyExporting)? { self }
    /// The key itself; `nil` for a key that is not RSA, is restricted to RSASSA-PSS, or is not for decryption.
    public var decrypter: (any KeyDecrypting)? {
        decryptionSchemes.isEmpty ? nil : self
    }

    /// The key itself; `nil` for Ed25519, and for a key that is not for signatures.
    public var digestSigner: (any DigestSigning)? { digestSchemes.isEmpty ? nil : self }

    /// The public key.
    public let publicKey: PublicKeyInfo
    /// The place that the key was read from.
    public let location: KeyLocation
    /// The key's URI in its key store; `nil` for a key outside of one.
    public var uri: String?
    /// The uses for which the key was made. At first every one that the type of the key permits; another one cannot be
    /// set.
    public var use: KeyUse { didSet { use.formIntersection(Self.possibleUse(of: publicKey)) } }
    private let pkcs8: SecretBytes
    private let signer: Signer

    private enum Signer: Sendable {
        case rsa(_RSA.Signing.PrivateKey)
        case p256(P256.Signing.PrivateKey)
        case p384(P384.Signing.PrivateKey)
        case p521(P521.Signing.PrivateKey)
        case ed25519(Curve25519.Signing.PrivateKey)
    }

    /// Reads an unencrypted PKCS#8 `PrivateKeyInfo` (RFC 5208) or `OneAsymmetricKey` (RFC 5958), DER.
    /// - Throws: `malformedData`; `unsupportedAlgorithm` for another type of key, an unnamed curve, or RSA below 1024 or
    ///   above 8192 bits or with more than two primes, which swift-crypto refuses.
    public init(pkcs8: SecretBytes, location: KeyLocation) throws(ProviderError) {
        let key: (Signer, PublicKeyInfo)
        do {
            key = try pkcs8.withUnsafeBytes { try Self.parse(ArraySlice($0)) }
        } catch let error as ProviderError {
            throw error
        } catch {
            // The underlying error may quote what it could not parse: it is left out.
            throw ProviderError(
                .malformedData,
                "The private key is not a usable PKCS#8 structure; convert it with: openssl pkcs8 -topk8 -nocrypt")
        }
        (self.signer, self.publicKey) = key
        self.pkcs8 = pkcs8
        self.location = location
        use = Self.possibleUse(of: publicKey)
    }

    private static func possibleUse(of key: PublicKeyInfo) -> KeyUse {
        key.algorithm == .rsa && !key.isRestrictedToPSS ? [.signing, .pkcs1Decryption, .oaepDecryption] : .signing
    }

    /// The schemes of the key type; only RSASSA-PSS for a key restricted to it, and none for a key that is not for
    /// signatures.
    public var signatureSchemes: [SignatureScheme] {
        guard use.contains(.signing) else { return [] }
        return switch signer {
        case .p256: [.ecdsaP256SHA256]
        case .p384: [.ecdsaP384SHA384]
        case .p521: [.ecdsaP521SHA512]
        case .ed25519: [.ed25519]
        case .rsa where publicKey.isRestrictedToPSS: [.rsaPSSPSSSHA256, .rsaPSSPSSSHA384, .rsaPSSPSSSHA512]
        case .rsa:
            [
                .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPKCS1SHA256, .rsaPKCS1SHA384,
                .rsaPKCS1SHA512,
            ]
        }
    }

    /// Signs in memory, without suspending.
    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        guard signatureSchemes.contains(scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm, "A key of type \(publicKey.displayName) cannot sign with \(scheme).")
        }
        do {
            switch signer {
            case .p256(let key): return Array(try key.signature(for: message).derRepresentation)
            case .p384(let key): return Array(try key.signature(for: message).derRepresentation)
            case .p521(let key): return Array(try key.signature(for: message).derRepresentation)
            case .ed25519(let key): return Array(try key.signature(for: message))
            case .rsa(let key): return try Self.rsaSignature(key, for: message, using: scheme)
            }
        } catch {
            throw ProviderError(.internal, "Signing with \(scheme) failed.", underlying: error)
        }
    }

    /// Returns the PKCS#8 bytes (RFC 5208, DER) that the key was created from. Throws nothing.
    public func pkcs8Representation() throws(ProviderError) -> SecretBytes { pkcs8 }

    private static func rsaSignature(
        _ key: _RSA.Signing.PrivateKey, for message: [UInt8], using scheme: SignatureScheme
    ) throws -> [UInt8] {
        guard let padding = PublicKeyInfo.rsaPadding(of: scheme), let digest = scheme.digestAlgorithm else {
            throw CryptoKitError.incorrectParameterSize
        }
        let signature =
            switch digest.function {
            case .sha256: try key.signature(for: SHA256.hash(data: message), padding: padding)
            case .sha384: try key.signature(for: SHA384.hash(data: message), padding: padding)
            case .sha512: try key.signature(for: SHA512.hash(data: message), padding: padding)
            }
        return Array(signature.rawRepresentation)
    }
}

extension SoftwareKey: DigestSigning {
    /// The schemes of the key but for Ed25519.
    public var digestSchemes: [SignatureScheme] { signatureSchemes.filter { $0.digestAlgorithm != nil } }

    /// Signs in memory, without suspending.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``digestSchemes``, and for an RSA key that is too small for
    ///   the scheme; `malformedData` for a digest of another length than the scheme's.
    public func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        try requireDigest(digest, for: scheme)
        do {
            switch signer {
            case .p256(let key):
                return Array(try key.signature(for: GivenDigest<SHA256>(bytes: digest)).derRepresentation)
            case .p384(let key):
                return Array(try key.signature(for: GivenDigest<SHA384>(bytes: digest)).derRepresentation)
            case .p521(let key):
                return Array(try key.signature(for: GivenDigest<SHA512>(bytes: digest)).derRepresentation)
            case .rsa:
                guard let message = scheme.encodedMessage(ofDigest: digest, modulusBits: publicKey.bits) else {
                    throw ProviderError(
                        .unsupportedAlgorithm,
                        "A key of type \(publicKey.displayName) is too small for \(scheme); use a larger key.")
                }
                return try rsaSignature(ofEncoded: message)
            case .ed25519: throw CryptoKitError.incorrectParameterSize
            }
        } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(.internal, "Signing a digest with \(scheme) failed.", underlying: error)
        }
    }

    /// `RSASP1` (RFC 8017, section 5.2.1). swift-crypto's keys for signatures take digests of its own making only, but those
    /// for blind signatures take any message representative.
    private func rsaSignature(ofEncoded message: [UInt8]) throws -> [UInt8] {
        let key = try pkcs8.withUnsafeBytes {
            try _RSA.BlindSigning.PrivateKey<SHA384>(
                unsafeDERRepresentation: PrivateKeyInfo(derEncoded: ArraySlice($0)).privateKey)
        }
        return Array(try key.blindSignature(for: message).rawRepresentation)
    }
}

/// A digest that is there already. swift-crypto's own are made from messages only.
private struct GivenDigest<Function: HashFunction>: Digest {
    static var byteCount: Int { Function.Digest.byteCount }
    let bytes: [UInt8]

    func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R {
        try bytes.withUnsafeBytes(body)
    }
    func hash(into hasher: inout Hasher) { hasher.combine(bytes) }
    var description: String { "\(Function.self) digest" }
}

extension SoftwareKey: KeyDecrypting {
    /// The schemes of ``use``.
    public var decryptionSchemes: [DecryptionScheme] { use.decryptionSchemes }

    /// Decrypts in memory, without suspending.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``decryptionSchemes``, `malformedData`.
    public func decrypt(
        _ ciphertext: [UInt8], using scheme: DecryptionScheme
    ) async throws(ProviderError) -> SecretBytes {
        guard decryptionSchemes.contains(scheme), let padding = PublicKeyInfo.padding(of: scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                This key of type \(publicKey.displayName) does not decrypt by \(scheme.rawValue.withVisibleControls); use \
                one of: \(decryptionSchemes.map(\.description).joined(separator: ", ")).
                """)
        }
        do {
            // swift-crypto has another type for keys that decrypt.
            let key = try pkcs8.withUnsafeBytes {
                try _RSA.Encryption.PrivateKey(
                    unsafeDERRepresentation: PrivateKeyInfo(derEncoded: ArraySlice($0)).privateKey)
            }
            return SecretBytes(copying: try key.decrypt(ciphertext, padding: padding))
        } catch {
            // Nothing tells the padding from the rest.
            throw ProviderError(
                .malformedData,
                "The data cannot be decrypted by \(scheme): it is damaged, or was encrypted for another key; get it again."
            )
        }
    }
}

extension SoftwareKey {
    private static func parse(_ der: ArraySlice<UInt8>) throws -> (Signer, PublicKeyInfo) {
        let info = try PrivateKeyInfo(derEncoded: der)
        switch info.algorithm {
        case .rsaEncryption, .rsassaPSS:
            // Told apart from damage here, since swift-crypto has one error for both.
            let publicKey = try info.rsaPublicKey()
            guard publicKey.bits >= 1024 else {
                throw ProviderError(
                    .unsupportedAlgorithm, "An RSA key of \(publicKey.bits) bits is too small; use at least 2048 bits.")
            }
            guard publicKey.bits <= Identity.rsaKeySizes.upperBound else {
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "An RSA key of \(publicKey.bits) bits is too large; use at most \(Identity.rsaKeySizes.upperBound) bits."
                )
            }
            return (.rsa(try _RSA.Signing.PrivateKey(unsafeDERRepresentation: info.privateKey)), publicKey)
        case .ecPublicKey:
            switch info.curve {
            case .p256:
                let key = try P256.Signing.PrivateKey(rawRepresentation: info.ecScalar(size: 32))
                return (.p256(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
            case .p384:
                let key = try P384.Signing.PrivateKey(rawRepresentation: info.ecScalar(size: 48))
                return (.p384(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
            case .p521:
                let key = try P521.Signing.PrivateKey(rawRepresentation: info.ecScalar(size: 66))
                return (.p521(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
            default:
                let name = info.curve.map { String(describing: $0) } ?? "given by explicit parameters"
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "EC keys on the curve \(name) are not supported; use P-256, P-384 or P-521.")
            }
        case .ed25519:
            let seed = try ASN1OctetString(derEncoded: try DER.parse(info.privateKey))
            let key = try Curve25519.Signing.PrivateKey(rawRepresentation: seed.bytes)
            return (.ed25519(key), try info.publicKey(key.publicKey.rawRepresentation))
        default:
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                Private keys of type \(PublicKeyInfo.name(of: info.algorithm)) are not supported; use RSA, EC or \
                Ed25519.
                """)
        }
    }
}
