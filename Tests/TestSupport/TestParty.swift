public import CertificateProviding
public import Crypto
public import FoundationEssentials
import SwiftASN1
public import X509

/// A name and a key that certificates are made for and by, in whatever odd way a test wants.
public struct TestParty: Sendable {
    public let name: DistinguishedName
    public let key: Certificate.PrivateKey

    public init(_ name: String, key: Certificate.PrivateKey = .init(P256.Signing.PrivateKey())) throws {
        self.name = try TestAuthority.name(name)
        self.key = key
    }

    public init(named name: DistinguishedName, key: Certificate.PrivateKey) { (self.name, self.key) = (name, key) }

    /// Certifies another party, or with no other its own name and key.
    public func certify(
        _ other: TestParty? = nil, isAuthority: Bool = true, lifetime: TimeInterval = 86_400,
        version: Certificate.Version = .v3, signature: Certificate.SignatureAlgorithm? = nil,
        _ more: [Certificate.Extension] = []
    ) throws -> X509Certificate {
        let subject = other ?? self
        return try certify(
            subject.key.publicKey, as: subject.name, isAuthority: isAuthority, lifetime: lifetime, version: version,
            signature: signature, more)
    }

    /// - Parameters:
    ///   - lifetime: From now on; the certificate is a day older.
    ///   - signature: `nil` for the usual one of the key.
    public func certify(
        _ publicKey: Certificate.PublicKey, as subject: DistinguishedName, isAuthority: Bool = false,
        lifetime: TimeInterval = 86_400, version: Certificate.Version = .v3,
        signature: Certificate.SignatureAlgorithm? = nil, _ more: [Certificate.Extension] = []
    ) throws -> X509Certificate {
        var extensions = try Certificate.Extensions(more)
        if isAuthority {
            try extensions.append(
                Certificate.Extension(BasicConstraints.isCertificateAuthority(maxPathLength: nil), critical: true))
        }
        let now = Date()
        let certificate =
            if let signature {
                try Certificate(
                    version: version, serialNumber: .init(), publicKey: publicKey, notValidBefore: now - 86_400,
                    notValidAfter: now + lifetime, issuer: name, subject: subject, signatureAlgorithm: signature,
                    extensions: extensions, issuerPrivateKey: key)
            } else {
                try Certificate(
                    version: version, serialNumber: .init(), publicKey: publicKey, notValidBefore: now - 86_400,
                    notValidAfter: now + lifetime, issuer: name, subject: subject, extensions: extensions,
                    issuerPrivateKey: key)
            }
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }
}
