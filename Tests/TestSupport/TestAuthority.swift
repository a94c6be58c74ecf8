public import CertificateProviding
import Crypto
import CryptoExtras
public import FoundationEssentials
import SwiftASN1
public import X509

/// A throw-away certificate authority: a root, an intermediate under it, and as many leaves as a test wants. Made at
/// run time, so that nothing expires. Its own certificates are valid at any time that a test may turn a clock to.
public struct TestAuthority: Sendable {
    public enum KeyKind: String, Sendable, CaseIterable {
        case p256, p384, p521, rsa2048, ed25519
    }

    public let root: X509Certificate
    public let intermediate: X509Certificate
    private let (rootKey, intermediateKey): (Certificate.PrivateKey, Certificate.PrivateKey)
    private let (rootName, intermediateName): (DistinguishedName, DistinguishedName)

    /// - Parameters:
    ///   - name: Two authorities of one name differ only in their keys.
    ///   - end: The end of the intermediate.
    ///   - purposes: The extended key usage of the intermediate; `nil` for none.
    public init(
        _ name: String = "Test", from start: Date = Self.start, until rootEnd: Date = Self.end,
        intermediateUntil end: Date = Self.end, for purposes: ExtendedKeyUsage? = nil
    ) throws {
        rootKey = Certificate.PrivateKey(P256.Signing.PrivateKey())
        rootName = try Self.name("\(name) Root")
        root = try Self.issue(
            rootName, key: rootKey.publicKey, by: rootName, signedWith: rootKey, isAuthority: true,
            notBefore: start, notAfter: rootEnd)
        intermediateKey = Certificate.PrivateKey(P256.Signing.PrivateKey())
        intermediateName = try Self.name("\(name) Intermediate")
        intermediate = try Self.issue(
            intermediateName, key: intermediateKey.publicKey, by: rootName, signedWith: rootKey, isAuthority: true,
            purposes: purposes, notBefore: Self.start, notAfter: end)
    }

    /// The validity of the authority's own certificates: 1980 to 2200.
    /// At most 20 octets (RFC 5280, section 4.1.2.2): one that is made without octets may have 21 in DER.
    private static func serialNumber() -> Certificate.SerialNumber {
        .init(bytes: (0..<16).map { _ in UInt8.random(in: 1...127) })
    }

    public static let start = Date(timeIntervalSince1970: 315_532_800)
    public static let end = Date(timeIntervalSince1970: 7_258_118_400)

    /// Issues an identity whose chain is leaf, intermediate.
    ///
    /// - Parameters:
    ///   - isForClients: Whether its extended key usage permits both sides of TLS, or mail only.
    ///   - purposes: Another extended key usage.
    ///   - usage: The usage of the identity, whatever its certificate permits.
    ///   - isByRoot: Whether the root issues it, so that the chain is the leaf.
    public func issue(
        _ commonName: String, kind: KeyKind = .p256, dnsNames: [String] = ["localhost"],
        addresses: [[UInt8]] = [], permitsSignatures: Bool = true,
        notBefore: Date = Date(timeIntervalSinceNow: -3600), notAfter: Date = Date(timeIntervalSinceNow: 86400),
        isForClients: Bool = true, for purposes: [ExtendedKeyUsage.Usage]? = nil,
        usage: IdentityUsage = .client, provider: ProviderID = ProviderID("test"), isByRoot: Bool = false
    ) throws -> Identity {
        let (key, pkcs8) = try Self.makeKey(kind)
        let leaf = try Self.issue(
            try Self.name(commonName), key: key.publicKey, by: isByRoot ? rootName : intermediateName,
            signedWith: isByRoot ? rootKey : intermediateKey,
            isAuthority: false, isForClients: isForClients, purposes: try purposes.map { try ExtendedKeyUsage($0) },
            permitsSignatures: permitsSignatures,
            alternativeNames: dnsNames.map { .dnsName($0) }
                + addresses.map { .ipAddress(ASN1OctetString(contentBytes: $0[...])) },
            notBefore: notBefore, notAfter: notAfter)
        return try Identity(
            certificateChain: isByRoot ? [leaf] : [leaf, intermediate],
            key: try SoftwareKey(pkcs8: pkcs8, location: .file),
            usage: usage, provenance: .init(provider: provider, alias: commonName))
    }

    /// Issues another certificate for the key of `identity`.
    /// - Parameter namesUsage: Whether it has an extended key usage.
    public func renew(
        _ identity: Identity, as commonName: String, notBefore: Date, namesUsage: Bool = true
    ) throws -> X509Certificate {
        let publicKey = PEMDocument(type: "PUBLIC KEY", derBytes: identity.key.publicKey.derRepresentation)
        return try Self.issue(
            try Self.name(commonName), key: try Certificate.PublicKey(pemDocument: publicKey), by: intermediateName,
            signedWith: intermediateKey, isAuthority: false, namesUsage: namesUsage, notBefore: notBefore,
            // Two with one beginning have one end.
            notAfter: notBefore.addingTimeInterval(864_000))
    }

    /// Issues a certificate for a key that another party has, such as a token.
    /// - Parameters:
    ///   - publicKey: A DER `SubjectPublicKeyInfo`.
    ///   - purposes: Another extended key usage than both sides of TLS.
    public func certify(
        _ publicKey: [UInt8], as commonName: String, for purposes: [ExtendedKeyUsage.Usage]? = nil
    ) throws -> X509Certificate {
        try Self.issue(
            try Self.name(commonName),
            key: try Certificate.PublicKey(pemDocument: PEMDocument(type: "PUBLIC KEY", derBytes: publicKey)),
            by: intermediateName, signedWith: intermediateKey, isAuthority: false,
            purposes: try purposes.map { try ExtendedKeyUsage($0) }, alternativeNames: [.dnsName("localhost")])
    }

    /// Returns an identity with one more certificate in its chain: the root, as an older one has certified it until `end`. A peer
    /// that has the root does not need it.
    public func crossCertified(_ identity: Identity, until end: Date) throws -> Identity {
        let older = try Self.certificate(subject: "Test Root", issuer: "Older Root", notAfter: end)
        return try Identity(
            certificateChain: identity.certificateChain + [older], key: identity.key, provenance: identity.provenance)
    }

    /// Returns a certificate with these names, whose signature is worth nothing.
    public static func certificate(
        subject: String, issuer: String, notAfter: Date = Date(timeIntervalSinceNow: 86400)
    ) throws -> X509Certificate {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        return try issue(
            try name(subject), key: key.publicKey, by: try name(issuer), signedWith: key, isAuthority: true,
            notBefore: min(notAfter, Date()) - 7200, notAfter: notAfter)
    }

    /// Returns a certificate with these names, which has signed itself.
    public static func leaf(
        _ commonName: String, units: [String] = [], dnsNames: [String] = [], uris: [String] = []
    ) throws -> X509Certificate {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let name = try DistinguishedName {
            for unit in units { OrganizationalUnitName(unit) }
            CommonName(commonName)
        }
        return try issue(
            name, key: key.publicKey, by: name, signedWith: key, isAuthority: false,
            alternativeNames: dnsNames.map { .dnsName($0) } + uris.map { .uniformResourceIdentifier($0) })
    }

    static func name(_ commonName: String) throws -> DistinguishedName {
        try DistinguishedName {
            OrganizationName("certprov tests"); CommonName(commonName)
        }
    }

    private static func makeKey(_ kind: KeyKind) throws -> (Certificate.PrivateKey, SecretBytes) {
        switch kind {
        case .p256:
            let key = P256.Signing.PrivateKey()
            return (Certificate.PrivateKey(key), SecretBytes(copying: key.derRepresentation))
        case .p384:
            let key = P384.Signing.PrivateKey()
            return (Certificate.PrivateKey(key), SecretBytes(copying: key.derRepresentation))
        case .p521:
            let key = P521.Signing.PrivateKey()
            return (Certificate.PrivateKey(key), SecretBytes(copying: key.derRepresentation))
        case .rsa2048:
            let key = try _RSA.Signing.PrivateKey(keySize: .bits2048)
            return (Certificate.PrivateKey(key), try der(ofPEM: key.pkcs8PEMRepresentation))
        case .ed25519:
            let key = Certificate.PrivateKey(Curve25519.Signing.PrivateKey())
            return (key, SecretBytes(copying: try key.serializeAsPEM().derBytes))
        }
    }

    private static func der(ofPEM text: String) throws -> SecretBytes {
        SecretBytes(copying: try PEMDocument(pemString: text).derBytes)
    }

    private static func issue(
        _ subject: DistinguishedName, key: Certificate.PublicKey, by issuer: DistinguishedName,
        signedWith issuerKey: Certificate.PrivateKey, isAuthority: Bool, isForClients: Bool = true,
        purposes: ExtendedKeyUsage? = nil, permitsSignatures: Bool = true, namesUsage: Bool = true,
        alternativeNames: [GeneralName] = [],
        notBefore: Date = Date(timeIntervalSinceNow: -7200), notAfter: Date = Date(timeIntervalSinceNow: 864_000)
    ) throws -> X509Certificate {
        let certificate = try Certificate(
            version: .v3, serialNumber: Self.serialNumber(), publicKey: key, notValidBefore: notBefore,
            notValidAfter: notAfter,
            issuer: issuer, subject: subject, signatureAlgorithm: .ecdsaWithSHA256,
            extensions: try Certificate.Extensions {
                Critical(
                    isAuthority
                        ? BasicConstraints.isCertificateAuthority(maxPathLength: nil)
                        : BasicConstraints.notCertificateAuthority)
                if isAuthority {
                    Critical(KeyUsage(keyCertSign: true, cRLSign: true))
                    if let purposes { purposes }
                } else {
                    Critical(KeyUsage(digitalSignature: permitsSignatures, keyAgreement: !permitsSignatures))
                    if namesUsage {
                        try purposes
                            ?? ExtendedKeyUsage(isForClients ? [.clientAuth, .serverAuth] : [.emailProtection])
                    }
                    if !alternativeNames.isEmpty { SubjectAlternativeNames(alternativeNames) }
                }
            },
            issuerPrivateKey: issuerKey)
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }
}
