import SwiftASN1
import X509

extension X509Certificate {
    /// The reason why swift-certificates cannot read the certificate, as a clause for a message. Its own errors are
    /// written for programmers.
    var reasonNotToBeRead: String {
        if (try? X509.Certificate.PublicKey(derEncoded: publicKey.derRepresentation)) == nil {
            return
                "its key (\(publicKey.displayName)) is too weak or not supported; have another key certified"
        }
        guard let algorithm = signatureAlgorithm else { return "it is damaged" }
        if let name = Self.unusableSignatures[algorithm] {
            return "its signature (\(name)) is not supported; have the CA use SHA-256 and ECDSA or RSA (PKCS #1 v1.5)"
        }
        return "its fields violate RFC 5280, or its signature algorithm (\(algorithm)) is not supported"
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

    /// Unsupported signature algorithms that occur in practice.
    private static let unusableSignatures: [ASN1ObjectIdentifier: String] = [
        [1, 2, 840, 113549, 1, 1, 4]: "MD5 and RSA", [1, 2, 840, 113549, 1, 1, 5]: "SHA-1 and RSA",
        [1, 2, 840, 10045, 4, 1]: "SHA-1 and ECDSA", [1, 2, 840, 10040, 4, 3]: "SHA-1 and DSA",
        [1, 2, 840, 113549, 1, 1, 10]: "RSASSA-PSS", [1, 3, 101, 113]: "Ed448",
    ]
}
