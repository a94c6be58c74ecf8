import Crypto
import CryptoExtras
import SwiftASN1
import X509

/// A responder's demands on requests (RFC 7030, section 4.5.2): `challengePassword`, `key:rsa:3072`, `key:ec:P-384`,
/// `key:ed25519`, `hash:sha384`, `extension:OID`.
struct ESTWishes {
    private let words: [[String]]

    static let challengePassword: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 7]
    private static let curves: [String: ASN1ObjectIdentifier] = [
        "P-256": [1, 2, 840, 10045, 3, 1, 7], "P-384": [1, 3, 132, 0, 34], "P-521": [1, 3, 132, 0, 35],
    ]
    private static let hashes: [String: ASN1ObjectIdentifier] = [
        "sha256": [2, 16, 840, 1, 101, 3, 4, 2, 1], "sha384": [2, 16, 840, 1, 101, 3, 4, 2, 2],
        "sha512": [2, 16, 840, 1, 101, 3, 4, 2, 3],
    ]
    /// Of RSA, for which a hash is named by its signature algorithm.
    private static let signatures: [String: ASN1ObjectIdentifier] = [
        "sha256": [1, 2, 840, 113549, 1, 1, 11], "sha384": [1, 2, 840, 113549, 1, 1, 12],
        "sha512": [1, 2, 840, 113549, 1, 1, 13],
    ]

    init(_ words: [String]) { self.words = words.map { $0.split(separator: ":").map(String.init) } }

    private var key: [String]? { words.first { $0[0] == "key" }.map { Array($0.dropFirst()) } }
    private var hash: String? { words.first { $0[0] == "hash" }?.last }
    private var extensions: [ASN1ObjectIdentifier] {
        get throws {
            try words.filter { $0[0] == "extension" }.map { try ASN1ObjectIdentifier(dotRepresentation: $0[1][...]) }
        }
    }

    /// The `CsrAttrs`; `nil` where nothing is wanted.
    func encoded() throws -> [UInt8]? {
        guard !words.isEmpty else { return nil }
        let extensions = try extensions
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { coder in
            if words.contains(["challengePassword"]) { try coder.serialize(Self.challengePassword) }
            if !extensions.isEmpty {
                try Self.attribute([1, 2, 840, 113549, 1, 9, 14], &coder) { coder in
                    for one in extensions { try coder.serialize(one) }
                }
            }
            switch key?.first {
            case "rsa":
                let bits = Int(key?.last ?? "") ?? 0
                try Self.attribute([1, 2, 840, 113549, 1, 1, 1], &coder) { try $0.serialize(bits) }
            case "ec":
                let curve = Self.curves[key?.last ?? ""] ?? []
                try Self.attribute([1, 2, 840, 10045, 2, 1], &coder) { try $0.serialize(curve) }
            case "ed25519": try coder.serialize([1, 3, 101, 112] as ASN1ObjectIdentifier)
            default: break
            }
            let names = key?.first == "rsa" ? Self.signatures : Self.hashes
            if let hash, let name = names[hash] { try coder.serialize(name) }
        }
        return serializer.serializedBytes
    }

    private static func attribute(
        _ type: ASN1ObjectIdentifier, _ coder: inout DER.Serializer, _ values: (inout DER.Serializer) throws -> Void
    ) throws {
        try coder.appendConstructedNode(identifier: .sequence) { coder in
            try coder.serialize(type)
            try coder.appendConstructedNode(identifier: .set, values)
        }
    }

    /// Returns the first demand that a request does not meet. A challenge password is the binding's matter.
    func unmet(by csr: CertificateSigningRequest) throws -> String? {
        if let key, !Self.isKind(key, csr.publicKey) { return "The key is to be \(key.joined(separator: " "))." }
        let algorithms: [String: [Certificate.SignatureAlgorithm]] = [
            "sha256": [.sha256WithRSAEncryption, .ecdsaWithSHA256],
            "sha384": [.sha384WithRSAEncryption, .ecdsaWithSHA384],
            "sha512": [.sha512WithRSAEncryption, .ecdsaWithSHA512],
        ]
        if let hash, algorithms[hash]?.contains(csr.signatureAlgorithm) != true {
            return "The CSR is to be signed with \(hash)."
        }
        let present = try csr.attributes.extensionRequest?.extensions ?? .init()
        return try extensions.first { present[oid: $0] == nil }.map { "The CSR lacks the extension \($0)." }
    }

    private static func isKind(_ wanted: [String], _ key: Certificate.PublicKey) -> Bool {
        switch wanted {
        case ["ed25519"]: Curve25519.Signing.PublicKey(key) != nil
        case ["ec", "P-256"]: P256.Signing.PublicKey(key) != nil
        case ["ec", "P-384"]: P384.Signing.PublicKey(key) != nil
        case ["ec", "P-521"]: P521.Signing.PublicKey(key) != nil
        default: _RSA.Signing.PublicKey(key).map { "\($0.keySizeInBits)" } == wanted.last
        }
    }
}
