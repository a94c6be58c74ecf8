import SwiftASN1
import X509

extension X509Certificate {
    /// Why swift-certificates cannot read the certificate, as a clause for a message: what it says itself is for
    /// programmers.
    var reasonNotToBeRead: String {
        if (try? X509.Certificate.PublicKey(derEncoded: publicKey.derRepresentation)) == nil {
            return
                "its key is \(publicKey.displayName), which is too weak or not known here; have another one certified"
        }
        guard let algorithm = signatureAlgorithm else { return "it is damaged" }
        if let name = Self.unusableSignatures[algorithm] {
            return "it is signed with \(name); have its authority sign with SHA-256 and ECDSA or RSA (PKCS #1 v1.5)"
        }
        return "its fields are not as RFC 5280 has them, or its signature (\(algorithm)) is not known here"
    }

    private var signatureAlgorithm: ASN1ObjectIdentifier? {
        try? DER.sequence(try DER.parse(derRepresentation), identifier: .sequence) { nodes in
            _ = try nodes.required("tbsCertificate")
            let algorithm = try DER.sequence(try nodes.required("signatureAlgorithm"), identifier: .sequence) {
                fields in
                let identifier = try ASN1ObjectIdentifier(derEncoded: &fields)
                while fields.next() != nil {}
                return identifier
            }
            while nodes.next() != nil {}
            return algorithm
        }
    }

    /// Those that are met in the field.
    private static let unusableSignatures: [ASN1ObjectIdentifier: String] = [
        [1, 2, 840, 113549, 1, 1, 4]: "MD5 and RSA", [1, 2, 840, 113549, 1, 1, 5]: "SHA-1 and RSA",
        [1, 2, 840, 10045, 4, 1]: "SHA-1 and ECDSA", [1, 2, 840, 10040, 4, 3]: "SHA-1 and DSA",
        [1, 2, 840, 113549, 1, 1, 10]: "RSASSA-PSS", [1, 3, 101, 113]: "Ed448",
    ]
}
