import Crypto
import CryptoExtras
import FoundationEssentials
import SwiftASN1

/// A private key in this process's memory: RSA, P-256, P-384, P-521 or Ed25519, signing with swift-crypto.
public struct SoftwareKey: ExportableIdentityKey {
    public let publicKey: PublicKeyInfo
    public let location: KeyLocation
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
    /// - Throws: `malformedData`; `unsupportedAlgorithm` for another kind of key, an unnamed curve or RSA below 1024
    ///   bits, which swift-crypto does not take.
    public init(pkcs8: SecretBytes, location: KeyLocation) throws(CertificateProviderError) {
        let key: (Signer, PublicKeyInfo)
        do {
            key = try pkcs8.withUnsafeBytes { try Self.parse(ArraySlice($0)) }
        } catch let error as CertificateProviderError {
            throw error
        } catch {
            // The underlying error may quote what it could not parse: it is left out.
            throw CertificateProviderError(.malformedData, "The private key is not a usable PKCS#8 structure.")
        }
        (self.signer, self.publicKey) = key
        self.pkcs8 = pkcs8
        self.location = location
    }

    public var signatureSchemes: [SignatureScheme] {
        switch signer {
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

    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        guard signatureSchemes.contains(scheme) else {
            throw CertificateProviderError(
                .unsupportedAlgorithm, "A key of kind \(publicKey.displayName) cannot sign with \(scheme).")
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
            throw CertificateProviderError(.internal, "Signing with \(scheme) failed.", underlying: error)
        }
    }

    public func pkcs8Representation() throws(CertificateProviderError) -> SecretBytes { pkcs8 }

    private static func rsaSignature(
        _ key: _RSA.Signing.PrivateKey, for message: [UInt8], using scheme: SignatureScheme
    ) throws -> [UInt8] {
        guard let (padding, hash) = PublicKeyInfo.rsaParameters(of: scheme) else {
            throw CryptoKitError.incorrectParameterSize
        }
        let signature =
            switch hash {
            case .sha256: try key.signature(for: SHA256.hash(data: message), padding: padding)
            case .sha384: try key.signature(for: SHA384.hash(data: message), padding: padding)
            case .sha512: try key.signature(for: SHA512.hash(data: message), padding: padding)
            }
        return Array(signature.rawRepresentation)
    }
}

extension SoftwareKey {
    private static func parse(_ der: ArraySlice<UInt8>) throws -> (Signer, PublicKeyInfo) {
        let (algorithm, curve, privateKey, algorithmNode) = try DER.sequence(
            try DER.parse(der), identifier: .sequence
        ) { nodes in
            _ = try Int(derEncoded: &nodes)  // version
            guard let algorithmNode = nodes.next() else { throw ASN1Error.invalidASN1Object(reason: "no algorithm") }
            let (algorithm, curve) = try DER.sequence(algorithmNode, identifier: .sequence) { nodes in
                let algorithm = try ASN1ObjectIdentifier(derEncoded: &nodes)
                return (algorithm, nodes.next().flatMap { try? ASN1ObjectIdentifier(derEncoded: $0) })
            }
            let privateKey = try ASN1OctetString(derEncoded: &nodes)
            while nodes.next() != nil {}  // attributes and public key
            return (algorithm, curve, privateKey.bytes, algorithmNode)
        }
        switch algorithm {
        case .rsaEncryption, .rsassaPSS:
            let key = try _RSA.Signing.PrivateKey(unsafeDERRepresentation: privateKey)
            // The public key keeps the algorithm of the private one, so that a PSS key stays a PSS key.
            let info = try PublicKeyInfo(
                derRepresentation: subjectPublicKeyInfo(
                    algorithm: algorithmNode, key: key.publicKey.pkcs1DERRepresentation))
            return (.rsa(key), info)
        case .ecPublicKey:
            return try parseEC(curve, sec1: privateKey, pkcs8: der)
        case .ed25519:
            let seed = try ASN1OctetString(derEncoded: try DER.parse(privateKey))
            let key = try Curve25519.Signing.PrivateKey(rawRepresentation: seed.bytes)
            let info = try PublicKeyInfo(
                derRepresentation: subjectPublicKeyInfo(
                    algorithm: algorithmNode, key: key.publicKey.rawRepresentation))
            return (.ed25519(key), info)
        default:
            throw CertificateProviderError(
                .unsupportedAlgorithm, "Private keys of the algorithm \(algorithm) cannot be used.")
        }
    }

    /// The scalar of a SEC 1 `ECPrivateKey` (RFC 5915, section 3) on one of the NIST curves.
    private static func parseEC(
        _ curve: ASN1ObjectIdentifier?, sec1: ArraySlice<UInt8>, pkcs8: ArraySlice<UInt8>
    ) throws -> (Signer, PublicKeyInfo) {
        let scalar = try DER.sequence(try DER.parse(sec1), identifier: .sequence) { nodes in
            _ = try Int(derEncoded: &nodes)
            let scalar = try ASN1OctetString(derEncoded: &nodes)
            while nodes.next() != nil {}
            return scalar.bytes
        }
        /// Left-pads or trims leading zeros: both are met in the field.
        func fixedWidth(_ width: Int) -> [UInt8] {
            let digits = scalar.drop { $0 == 0 }
            return [UInt8](repeating: 0, count: max(0, width - digits.count)) + digits
        }
        switch curve {
        case [1, 2, 840, 10045, 3, 1, 7]:
            let key = try P256.Signing.PrivateKey(rawRepresentation: fixedWidth(32))
            return (.p256(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
        case [1, 3, 132, 0, 34]:
            let key = try P384.Signing.PrivateKey(rawRepresentation: fixedWidth(48))
            return (.p384(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
        case [1, 3, 132, 0, 35]:
            let key = try P521.Signing.PrivateKey(rawRepresentation: fixedWidth(66))
            return (.p521(key), try PublicKeyInfo(derRepresentation: key.publicKey.derRepresentation))
        default:
            let name = curve.map { String(describing: $0) } ?? "explicit parameters"
            throw CertificateProviderError(
                .unsupportedAlgorithm, "EC keys on the curve \(name) cannot be used; P-256, P-384 and P-521 can.")
        }
    }

    private static func subjectPublicKeyInfo(algorithm: ASN1Node, key: some Collection<UInt8>) throws -> [UInt8] {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { coder in
            coder.serializeRawBytes(algorithm.encodedBytes)
            try coder.serialize(ASN1BitString(bytes: ArraySlice(key)))
        }
        return serializer.serializedBytes
    }
}
