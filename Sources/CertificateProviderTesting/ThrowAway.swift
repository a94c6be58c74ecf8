import CertificateProviding
import Crypto
import FoundationEssentials
import SwiftASN1
import X509

/// Certificates for checks and examples, that no one trusts.
package enum ThrowAway {
    /// A certificate for a key of a new authority, with that, both valid for an hour.
    static func chain(for publicKey: PublicKeyInfo) throws -> [X509Certificate] {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let name = try DistinguishedName { CommonName("certprov conformance CA") }
        let subject = try DistinguishedName { CommonName("certprov conformance") }
        let leaf = try DER.parse(publicKey.derRepresentation)
        return [
            try issue(subject, try Certificate.PublicKey(derEncoded: leaf), name, key, hours: 1, isAuthority: false),
            try issue(name, key.publicKey, name, key, hours: 1, isAuthority: true),
        ]
    }

    /// A self-signed certificate for client and server on `localhost` and its P-256 key in PKCS#8, both in PEM, valid for ten
    /// years.
    package static func selfSigned(_ commonName: String) throws -> (certificate: String, key: String) {
        let secret = P256.Signing.PrivateKey()
        let key = Certificate.PrivateKey(secret)
        let name = try DistinguishedName { CommonName(commonName) }
        let certificate = try issue(name, key.publicKey, name, key, hours: 10 * 365 * 24, isAuthority: false)
        return (certificate.pemRepresentation, secret.pemRepresentation + "\n")
    }

    private static func issue(
        _ subject: DistinguishedName, _ publicKey: Certificate.PublicKey, _ issuer: DistinguishedName,
        _ key: Certificate.PrivateKey, hours: Double, isAuthority: Bool
    ) throws -> X509Certificate {
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: publicKey,
            notValidBefore: Date(timeIntervalSinceNow: -3600), notValidAfter: Date(timeIntervalSinceNow: hours * 3600),
            issuer: issuer, subject: subject, signatureAlgorithm: .ecdsaWithSHA256,
            extensions: try .init {
                SubjectAlternativeNames([.dnsName("localhost")])
                Critical(
                    isAuthority ? BasicConstraints.isCertificateAuthority(maxPathLength: nil) : .notCertificateAuthority
                )
            }, issuerPrivateKey: key)
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }
}
