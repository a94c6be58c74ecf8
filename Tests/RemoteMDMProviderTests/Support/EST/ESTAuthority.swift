import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import X509

/// A throw-away root, and the intermediate that it issues with.
struct ESTAuthority: Sendable {
    let root: X509Certificate
    /// Empty where the root issues.
    let intermediates: [X509Certificate]
    private let rootName: DistinguishedName
    private let rootKey: Certificate.PrivateKey
    private let issuingName: DistinguishedName
    private let issuingKey: Certificate.PrivateKey

    /// - Parameter issuing: The name of the intermediate; `nil` for none.
    init(_ root: String = "Root CA", issuing: String? = "Issuing CA") throws {
        rootName = try Self.name(root)
        rootKey = Certificate.PrivateKey(P256.Signing.PrivateKey())
        self.root = try Self.authority(rootName, rootKey.publicKey, by: rootName, rootKey)
        guard let issuing else {
            (issuingName, issuingKey, intermediates) = (rootName, rootKey, [])
            return
        }
        issuingName = try Self.name(issuing)
        issuingKey = Certificate.PrivateKey(P256.Signing.PrivateKey())
        intermediates = [try Self.authority(issuingName, issuingKey.publicKey, by: rootName, rootKey)]
    }

    /// The root first.
    var certificates: [X509Certificate] { [root] + intermediates }

    static func name(_ commonName: String) throws -> DistinguishedName {
        try DistinguishedName {
            OrganizationName("Enrolment Test"); CommonName(commonName)
        }
    }

    /// The fields of a certificate to issue.
    struct Leaf {
        var subject: DistinguishedName
        var publicKey: Certificate.PublicKey
        var names: SubjectAlternativeNames?
        /// Seconds from now.
        var validity: (start: TimeInterval, end: TimeInterval) = (0, 86_400)
        var purposes = [ExtendedKeyUsage.Usage.clientAuth]
    }

    func issue(_ leaf: Leaf) throws -> X509Certificate {
        try Self.issue(leaf, by: issuingName, issuingKey)
    }

    /// A certificate that its own key has signed, as of an appliance that is new.
    static func selfSigned(_ leaf: Leaf, key: Certificate.PrivateKey) throws -> X509Certificate {
        try issue(leaf, by: leaf.subject, key)
    }

    private static func issue(
        _ leaf: Leaf, by issuer: DistinguishedName, _ key: Certificate.PrivateKey
    ) throws -> X509Certificate {
        try certify(leaf.subject, leaf.publicKey, leaf.validity, by: issuer, key) {
            Critical(BasicConstraints.notCertificateAuthority)
            Critical(KeyUsage(digitalSignature: true))
            try ExtendedKeyUsage(leaf.purposes)
            if let names = leaf.names { names }
        }
    }

    /// OldWithNew and NewWithOld (RFC 4210, section 4.4): each root's key, certified by the other.
    func links(to successor: ESTAuthority) throws -> [X509Certificate] {
        [
            try Self.authority(rootName, rootKey.publicKey, by: successor.rootName, successor.rootKey),
            try Self.authority(successor.rootName, successor.rootKey.publicKey, by: rootName, rootKey),
        ]
    }

    private static func authority(
        _ subject: DistinguishedName, _ key: Certificate.PublicKey, by issuer: DistinguishedName,
        _ issuerKey: Certificate.PrivateKey
    ) throws -> X509Certificate {
        try certify(subject, key, (-86_400, 10 * 86_400), by: issuer, issuerKey) {
            Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
            Critical(KeyUsage(keyCertSign: true, cRLSign: true))
        }
    }

    private static func certify(
        _ subject: DistinguishedName, _ key: Certificate.PublicKey,
        _ validity: (start: TimeInterval, end: TimeInterval), by issuer: DistinguishedName,
        _ issuerKey: Certificate.PrivateKey,
        @ExtensionsBuilder extensions: () throws -> Result<Certificate.Extensions, any Error>
    ) throws -> X509Certificate {
        var all = try Certificate.Extensions(builder: extensions)
        let identifier = SubjectKeyIdentifier(hash: issuerKey.publicKey).keyIdentifier
        try all.append(Certificate.Extension(SubjectKeyIdentifier(hash: key), critical: false))
        try all.append(Certificate.Extension(AuthorityKeyIdentifier(keyIdentifier: identifier), critical: false))
        // A certificate has whole seconds, and rounded up this one would not be valid yet.
        let now = Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down))
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: key, notValidBefore: now + validity.start,
            notValidAfter: now + validity.end, issuer: issuer, subject: subject, extensions: all,
            issuerPrivateKey: issuerKey)
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }
}
