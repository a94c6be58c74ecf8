import Crypto
import FoundationEssentials
import SwiftASN1

/// The public key of a certificate: `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7) and its fields.
///
/// Represents keys of any type, also those that the framework cannot use.
public struct PublicKeyInfo: Sendable, Hashable {
    /// The complete `SubjectPublicKeyInfo`, DER, as it was read: one key has several encodings.
    public let derRepresentation: [UInt8]
    /// The algorithm of the key.
    public let algorithm: Algorithm
    /// The curve of an EC key: `P-256`, `P-384` or `P-521`, the object identifier of another curve, or `explicit`.
    /// `nil` for other keys.
    public let curve: String?
    /// The size of the modulus or of the curve's order, in bits; 0 if unknown.
    public let bits: Int

    private let algorithmIdentifier: ASN1ObjectIdentifier
    /// The content of the BIT STRING (RFC 5280, section 4.1.2.7); for an EC key on a known curve always the
    /// uncompressed point.
    public let keyBits: [UInt8]

    /// The algorithm of a public key. Open: `rawValue` is its usual name or its object identifier.
    public struct Algorithm: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        /// RSA (RFC 8017), certified as rsaEncryption or as id-RSASSA-PSS.
        public static let rsa = Self(rawValue: "RSA")
        /// An elliptic curve in Weierstrass form (RFC 5480); ``PublicKeyInfo/curve`` says which.
        public static let ec = Self(rawValue: "EC")
        /// Ed25519 (RFC 8410).
        public static let ed25519 = Self(rawValue: "Ed25519")
    }

    /// Reads a DER `SubjectPublicKeyInfo`.
    /// - Throws: `malformedData`.
    public init(derRepresentation: some Collection<UInt8>) throws(ProviderError) {
        do {
            try self.init(derEncoded: try DER.parse(Array(derRepresentation)))
        } catch {
            throw ProviderError(
                .malformedData, "The public key is not a SubjectPublicKeyInfo.", underlying: error)
        }
    }

    /// Whether both are the same key, in whichever encoding: a point may be compressed, and an RSA key certified as rsaEncryption
    /// and used as id-RSASSA-PSS. Keys of a type that the framework does not know are compared by their DER.
    public static func == (one: PublicKeyInfo, other: PublicKeyInfo) -> Bool {
        guard one.keyBits == other.keyBits else { return false }
        return one.bits > 0
            ? one.algorithm == other.algorithm && one.curve == other.curve
            : one.derRepresentation == other.derRepresentation
    }

    public func hash(into hasher: inout Hasher) { keyBits.withUnsafeBytes { hasher.combine(bytes: $0) } }

    /// Whether the key may only sign with RSASSA-PSS (RFC 4055, section 1.2).
    public var isRestrictedToPSS: Bool { algorithmIdentifier == .rsassaPSS }

    /// The type of the key for display, such as `RSA 2048`, `EC P-256` or `Ed25519`.
    public var displayName: String {
        if let curve { return "\(algorithm) \(curve)" }
        return algorithm == .rsa ? "\(algorithm) \(bits)" : algorithm.rawValue
    }

    /// The SHA-256 digest of ``derRepresentation``: the value that pins a key (RFC 7469).
    public var sha256: [UInt8] { Array(SHA256.hash(data: derRepresentation)) }
}

extension PublicKeyInfo {
    init(derEncoded node: ASN1Node) throws {
        self.derRepresentation = Array(node.encodedBytes)
        let (identifier, parameters, key) = try DER.sequence(node, identifier: .sequence) { nodes in
            let (identifier, parameters) = try DER.sequence(
                try nodes.required("algorithm"), identifier: .sequence
            ) { nodes in
                let identifier = try ASN1ObjectIdentifier(derEncoded: &nodes)
                let parameters = nodes.next()
                return (identifier, parameters)
            }
            return (identifier, parameters, try ASN1BitString(derEncoded: &nodes))
        }
        self.algorithmIdentifier = identifier
        self.keyBits =
            identifier == .ecPublicKey
            ? Self.uncompressed(key.bytes, on: parameters?.objectIdentifier) : Array(key.bytes)
        switch identifier {
        case .rsaEncryption, .rsassaPSS:
            self.algorithm = .rsa
            self.curve = nil
            self.bits = try Self.modulusSize(ofRSAPublicKey: key.bytes)
        case .ecPublicKey:
            let name = parameters?.objectIdentifier
            let known = name.flatMap { Self.curves[$0] }
            self.algorithm = .ec
            self.curve = known?.name ?? name.map { String(describing: $0) } ?? "explicit"
            self.bits = known?.bits ?? 0
        case .ed25519:
            self.algorithm = .ed25519
            self.curve = nil
            self.bits = 256
        default:
            self.algorithm = Algorithm(
                rawValue: Self.name(of: identifier))
            self.curve = nil
            self.bits = 0
        }
    }

    private static let curves: [ASN1ObjectIdentifier: (name: String, bits: Int)] = [
        .p256: ("P-256", 256), .p384: ("P-384", 384), .p521: ("P-521", 521),
    ]

    /// Returns the usual name of an algorithm, or its object identifier.
    static func name(of algorithm: ASN1ObjectIdentifier) -> String {
        otherAlgorithms[algorithm] ?? String(describing: algorithm)
    }

    /// Unsupported key types that occur in practice, so that messages can name them.
    private static let otherAlgorithms: [ASN1ObjectIdentifier: String] = [
        [1, 2, 840, 10040, 4, 1]: "DSA", [1, 2, 840, 10046, 2, 1]: "DH", [1, 3, 101, 110]: "X25519",
        [1, 3, 101, 111]: "X448", [1, 3, 101, 113]: "Ed448", [1, 2, 643, 2, 2, 19]: "GOST R 34.10-2001",
        [1, 2, 643, 7, 1, 1, 1, 1]: "GOST R 34.10-2012 (256)",
        [1, 2, 643, 7, 1, 1, 1, 2]: "GOST R 34.10-2012 (512)",
        [2, 16, 840, 1, 101, 3, 4, 4, 1]: "ML-KEM-512", [2, 16, 840, 1, 101, 3, 4, 4, 2]: "ML-KEM-768",
        [2, 16, 840, 1, 101, 3, 4, 4, 3]: "ML-KEM-1024", [2, 16, 840, 1, 101, 3, 4, 3, 17]: "ML-DSA-44",
        [2, 16, 840, 1, 101, 3, 4, 3, 18]: "ML-DSA-65", [2, 16, 840, 1, 101, 3, 4, 3, 19]: "ML-DSA-87",
    ]

    /// Returns the uncompressed form of a compressed point (SEC 1, section 2.3.3), and any other point unchanged. A key
    /// must compare equal if a certificate has it in one form and a key file in the other.
    private static func uncompressed(_ point: ArraySlice<UInt8>, on curve: ASN1ObjectIdentifier?) -> [UInt8] {
        guard let first = point.first, first == 2 || first == 3 else { return Array(point) }
        let whole =
            switch curve {
            case .p256: try? P256.Signing.PublicKey(compressedRepresentation: point).x963Representation
            case .p384: try? P384.Signing.PublicKey(compressedRepresentation: point).x963Representation
            case .p521: try? P521.Signing.PublicKey(compressedRepresentation: point).x963Representation
            default: nil as Data?
            }
        return Array(whole ?? Data(point))
    }

    private static func modulusSize(ofRSAPublicKey der: ArraySlice<UInt8>) throws -> Int {
        let modulus = try modulus(ofRSAPublicKey: der)
        return modulus.count * 8 - (modulus.first?.leadingZeroBitCount ?? 0)
    }

    /// `RSAPublicKey` (RFC 8017, appendix A.1.1): a modulus and an exponent.
    private static func modulus(ofRSAPublicKey der: ArraySlice<UInt8>) throws -> ArraySlice<UInt8> {
        try DER.sequence(try DER.parse(der), identifier: .sequence) { nodes in
            let modulus = try ArraySlice<UInt8>(derEncoded: &nodes).drop { $0 == 0 }
            _ = try ArraySlice<UInt8>(derEncoded: &nodes)
            return modulus
        }
    }

    /// The modulus of an RSA key, big-endian without leading zeros; `nil` for any other key.
    public var rsaModulus: [UInt8]? {
        guard algorithm == .rsa else { return nil }
        return (try? Self.modulus(ofRSAPublicKey: ArraySlice(keyBits))).map(Array.init)
    }
}

extension ASN1ObjectIdentifier {
    static let rsaEncryption: Self = [1, 2, 840, 113549, 1, 1, 1]
    static let rsassaPSS: Self = [1, 2, 840, 113549, 1, 1, 10]
    static let ecPublicKey: Self = [1, 2, 840, 10045, 2, 1]
    static let ed25519: Self = [1, 3, 101, 112]
    static let p256: Self = [1, 2, 840, 10045, 3, 1, 7]
    static let p384: Self = [1, 3, 132, 0, 34]
    static let p521: Self = [1, 3, 132, 0, 35]
}
