import CertificateProviding
import Crypto
import FoundationEssentials
import SwiftASN1

/// A public key as a JSON Web Key (RFC 7517, RFC 7518, RFC 8037).
struct JSONWebKey: Encodable, Sendable {
    private var kty: String
    private var crv: String?
    private var x: String?
    private var y: String?
    private var n: String?
    private var e: String?

    /// - Throws: `unsupportedAlgorithm` for a key that JSON Web Signatures do not know.
    init(_ key: PublicKeyInfo) throws(ProviderError) {
        if let curve = key.curve, ["P-256", "P-384", "P-521"].contains(curve), key.keyBits.count % 2 == 1 {
            let point = key.keyBits.dropFirst()
            (kty, crv) = ("EC", curve)
            (x, y) = (
                ByteText.base64URL(point.prefix(point.count / 2)), ByteText.base64URL(point.suffix(point.count / 2))
            )
        } else if key.algorithm == .ed25519 {
            (kty, crv, x) = ("OKP", "Ed25519", ByteText.base64URL(key.keyBits))
        } else if key.algorithm == .rsa, let numbers = try? Self.rsaNumbers(key.keyBits) {
            (kty, n, e) = ("RSA", ByteText.base64URL(numbers.modulus), ByteText.base64URL(numbers.exponent))
        } else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "An ACME account cannot have a key of type \(key.displayName); set 'account-key' to another key store.")
        }
    }

    /// Without leading zeros (RFC 7518, section 6.3.1).
    private static func rsaNumbers(_ bits: [UInt8]) throws -> (modulus: [UInt8], exponent: [UInt8]) {
        try DER.sequence(try DER.parse(bits), identifier: .sequence) { nodes in
            let (modulus, exponent) = (
                try ArraySlice<UInt8>(derEncoded: &nodes), try ArraySlice<UInt8>(derEncoded: &nodes)
            )
            return (Array(modulus.drop { $0 == 0 }), Array(exponent.drop { $0 == 0 }))
        }
    }

    /// The thumbprint (RFC 7638): the members in alphabetical order are all that there are.
    func thumbprint() throws(ProviderError) -> String {
        ByteText.base64URL(SHA256.hash(data: try JSONText.encode(self)))
    }
}

/// Signs requests as JSON Web Signatures (RFC 8555, section 6.2).
struct RequestSigner: Sendable {
    /// How the server knows the key.
    enum Identification: Sendable {
        /// By the key itself.
        case key
        /// By the URL of the account.
        case account(String)
    }

    let key: any IdentityKey
    let webKey: JSONWebKey
    private let scheme: SignatureScheme
    private let algorithm: String
    var identification = Identification.key

    private static let algorithms: [(SignatureScheme, String)] = [
        (.ecdsaP256SHA256, "ES256"), (.ecdsaP384SHA384, "ES384"), (.ecdsaP521SHA512, "ES512"), (.ed25519, "EdDSA"),
        (.rsaPKCS1SHA256, "RS256"), (.rsaPSSRSAESHA256, "PS256"),
    ]

    /// - Throws: `unsupportedAlgorithm`.
    init(_ key: any IdentityKey) throws(ProviderError) {
        self.key = key
        webKey = try JSONWebKey(key.publicKey)
        guard let known = Self.algorithms.first(where: { key.signatureSchemes.contains($0.0) }) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "A key of type \(key.publicKey.displayName) signs by no algorithm that ACME knows; use another key store."
            )
        }
        (scheme, algorithm) = known
    }

    private struct Header: Encodable {
        let alg: String
        let nonce: String?
        let url: String
        var kid: String?
        var jwk: JSONWebKey?
    }

    /// Returns the body of a request.
    ///
    /// - Parameter payload: JSON; empty for a request that reads (RFC 8555, section 6.3).
    /// - Throws: Errors of the key.
    func body(
        _ payload: [UInt8], to url: String, nonce: String
    ) async throws(ProviderError) -> [UInt8] {
        var header = Header(alg: algorithm, nonce: nonce, url: url)
        switch identification {
        case .key: header.jwk = webKey
        case .account(let account): header.kid = account
        }
        let protected = ByteText.base64URL(try JSONText.encode(header))
        let content = ByteText.base64URL(payload)
        let signature = try await key.signature(for: Array("\(protected).\(content)".utf8), using: scheme)
        return try JSONText.encode(
            Flattened(protected: protected, payload: content, signature: ByteText.base64URL(try raw(signature))))
    }

    /// JSON Web Signatures have the two numbers of an ECDSA signature side by side (RFC 7518, section 3.4).
    private func raw(_ signature: [UInt8]) throws(ProviderError) -> [UInt8] {
        do {
            return switch scheme {
            case .ecdsaP256SHA256:
                Array(try P256.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation)
            case .ecdsaP384SHA384:
                Array(try P384.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation)
            case .ecdsaP521SHA512:
                Array(try P521.Signing.ECDSASignature(derRepresentation: signature).rawRepresentation)
            default: signature
            }
        } catch {
            throw ProviderError(
                .keyMismatch, "The key store returned a signature that is not DER.", underlying: error)
        }
    }

    /// A signature in the flattened form (RFC 7515, section 7.2.2).
    struct Flattened: Codable, Sendable {
        let protected: String
        let payload: String
        let signature: String
    }

    /// Returns the binding of an account's key to an account that the CA knows already (RFC 8555, section 7.3.4).
    ///
    /// - Parameter secret: The key that the CA gave, decoded.
    func externalBinding(
        _ id: String, _ secret: SymmetricKey, _ algorithm: ACMEParameter.EABAlgorithm, to url: String
    ) throws(ProviderError) -> Flattened {
        let protected = ByteText.base64URL(
            try JSONText.encode(Header(alg: algorithm.rawValue, nonce: nil, url: url, kid: id)))
        let payload = ByteText.base64URL(try JSONText.encode(webKey))
        let message = Array("\(protected).\(payload)".utf8)
        let code: [UInt8] =
            switch algorithm {
            case .hs256: Array(HMAC<SHA256>.authenticationCode(for: message, using: secret))
            case .hs384: Array(HMAC<SHA384>.authenticationCode(for: message, using: secret))
            case .hs512: Array(HMAC<SHA512>.authenticationCode(for: message, using: secret))
            }
        return Flattened(protected: protected, payload: payload, signature: ByteText.base64URL(code))
    }
}

/// JSON with the members in alphabetical order, and without blanks.
enum JSONText {
    /// - Throws: `internal`.
    static func encode(_ content: some Encodable) throws(ProviderError) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do { return Array(try encoder.encode(content)) } catch {
            throw ProviderError(.internal, "The request cannot be encoded as JSON.", underlying: error)
        }
    }
}

extension String {
    /// Whether this is base64url without padding (RFC 4648, section 5), of at least one character.
    var isBase64URL: Bool {
        !isEmpty && utf8.allSatisfy { ByteText.isUnreserved($0) && !".~".utf8.contains($0) }
    }
}
