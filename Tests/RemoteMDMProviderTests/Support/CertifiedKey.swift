import CertificateProviding
import Foundation
import OpenSSLSupport
import SwiftASN1
import X509

/// A certificate with its key: an authority, a registration authority, or anyone.
struct CertifiedKey: Sendable {
    let certificate: X509Certificate
    let key: SoftwareKey

    func cmsIdentity(in library: OpenSSLLibrary) throws -> CMSIdentity {
        try CMSIdentity(certificate: certificate.derRepresentation, key: key.pkcs8Representation(), in: library)
    }

    /// - Parameter issuer: nil for a self-signed one.
    init(
        _ name: String, key: SoftwareKey, issuer: CertifiedKey? = nil, isAuthority: Bool = true,
        usage: KeyUsage? = KeyUsage(keyCertSign: true, cRLSign: true), purposes: [ExtendedKeyUsage.Usage] = [],
        maxPathLength: Int? = nil, permittedName: String? = nil,
        notBefore: Date = Date(timeIntervalSinceNow: -7200), notAfter: Date = Date(timeIntervalSinceNow: 864_000)
    ) throws {
        self.key = key
        let subject = try DistinguishedName { CommonName(name) }
        certificate = try Self.certify(
            Self.publicKey(key.publicKey), subject, issuer: issuer?.certificate.certificate().subject ?? subject,
            signedWith: issuer?.key ?? key,
            extensions: try Certificate.Extensions {
                if isAuthority { Critical(BasicConstraints.isCertificateAuthority(maxPathLength: maxPathLength)) }
                if let permittedName { Critical(NameConstraints(permittedSubtrees: [.dnsName(permittedName)])) }
                if let usage { Critical(usage) }
                if !purposes.isEmpty { try ExtendedKeyUsage(purposes) }
            },
            notBefore: notBefore, notAfter: notAfter)
    }

    /// Issues what a CSR asks for.
    func issue(_ csr: CertificateSigningRequest) throws -> X509Certificate {
        try Self.certify(
            csr.publicKey, csr.subject, issuer: certificate.certificate().subject, signedWith: key,
            extensions: Certificate.Extensions())
    }

    private static func publicKey(_ key: PublicKeyInfo) throws -> Certificate.PublicKey {
        try Certificate.PublicKey(pemDocument: PEMDocument(type: "PUBLIC KEY", derBytes: key.derRepresentation))
    }

    private static func certify(
        _ publicKey: Certificate.PublicKey, _ subject: DistinguishedName, issuer: DistinguishedName,
        signedWith key: SoftwareKey, extensions: Certificate.Extensions,
        notBefore: Date = Date(timeIntervalSinceNow: -7200), notAfter: Date = Date(timeIntervalSinceNow: 86_400)
    ) throws -> X509Certificate {
        let pkcs8 = try key.pkcs8Representation().withUnsafeBytes { Array($0) }
        let privateKey = try Certificate.PrivateKey(pemDocument: PEMDocument(type: "PRIVATE KEY", derBytes: pkcs8))
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: publicKey,
            notValidBefore: notBefore, notValidAfter: notAfter, issuer: issuer,
            subject: subject, extensions: extensions, issuerPrivateKey: privateKey)
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }

    static let authority = Result { try CertifiedKey("SCEP CA", key: TestKeys.make()) }
    /// Of the same name, and another.
    static let impostor = Result { try CertifiedKey("SCEP CA", key: TestKeys.otherRSA.get()) }
}
