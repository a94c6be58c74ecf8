import Crypto
public import FoundationEssentials
import SwiftASN1
public import X509

/// A certificate (RFC 5280): its DER bytes as issued, and the fields that the framework reads.
///
/// Unlike `X509.Certificate`, it also represents certificates with unusable keys (small RSA, DSA, GOST), since listings
/// show them. ``certificate()`` returns the swift-certificates value of all others.
public struct X509Certificate: Sendable {
    /// The DER bytes as issued.
    public let derRepresentation: [UInt8]
    /// The subject as an RFC 4514 string, safe to print on a terminal.
    public let subject: String
    /// The issuer as an RFC 4514 string, safe to print on a terminal.
    public let issuer: String
    /// Big-endian two's complement, as in the certificate.
    public let serialNumber: [UInt8]
    /// The start of the validity period.
    public let notValidBefore: Date
    /// The end of the validity period.
    public let notValidAfter: Date
    /// The subject's public key.
    public let publicKey: PublicKeyInfo
    /// The alternative names, in the order of the certificate.
    public let subjectAlternativeNames: [AlternativeName]

    /// Whether this is a CA certificate: the `cA` field of its basic constraints (RFC 5280, section 4.2.1.9).
    public let isAuthority: Bool
    /// The subject as a DER `Name`, for lookups.
    public let subjectDER: [UInt8]
    /// The issuer as a DER `Name`.
    public let issuerDER: [UInt8]

    /// The subject, to be compared with names of issuers.
    package let subjectName: CanonicalName
    /// The issuer, to be compared with names of subjects.
    package let issuerName: CanonicalName

    let subjectKeyIdentifier: [UInt8]?
    let authorityKeyIdentifier: [UInt8]?
    let keyUsage: KeyUsage?
    let extendedKeyUsage: ExtendedKeyUsage?

    /// Reads a DER certificate.
    /// - Throws: `malformedData`.
    public init(derRepresentation: some Collection<UInt8>) throws(ProviderError) {
        do {
            try self.init(derEncoded: try DER.parse(Array(derRepresentation)))
        } catch {
            // The underlying error is a parser's, for programmers: it would not help the reader of the message.
            throw ProviderError(
                .malformedData, "The certificate is damaged, or not a DER certificate.", underlying: error)
        }
    }

    /// Reads every certificate of a PEM text (RFC 7468), such as a server's answer. PEM documents of other types are left
    /// out.
    ///
    /// - Throws: `malformedData`, also for a text without a certificate.
    public static func certificates(pem text: String) throws(ProviderError) -> [X509Certificate] {
        let certificates = try PEMFile(Array(text.utf8), named: "The text").certificates()
        if !certificates.isEmpty { return certificates }
        throw ProviderError(.malformedData, "The text contains no certificate.")
    }

    /// Returns the certificate as a value of swift-certificates.
    /// - Throws: `unsupportedAlgorithm` for a key or signature that swift-certificates does not support.
    public func certificate() throws(ProviderError) -> X509.Certificate {
        do {
            return try X509.Certificate(derEncoded: derRepresentation)
        } catch {
            throw ProviderError(
                .unsupportedAlgorithm, "The certificate '\(subject)' cannot be used: \(reasonNotToBeRead).",
                underlying: error)
        }
    }

    /// The PEM form (RFC 7468), with a final newline.
    public var pemRepresentation: String {
        PEMDocument(type: "CERTIFICATE", derBytes: derRepresentation).pemString + "\n"
    }

    /// The serial number in the usual form: lower-case hex, whole octets, without the zero octet that DER puts before a
    /// number whose first bit is set. A negative number, which RFC 5280 forbids but some certificates have, gets a
    /// minus sign.
    public var serialNumberText: String {
        let isNegative = serialNumber.first.map { $0 & 0x80 != 0 } ?? false
        var magnitude = serialNumber
        if isNegative {
            var carry = true
            for index in magnitude.indices.reversed() {
                (magnitude[index], carry) = (~magnitude[index] &+ (carry ? 1 : 0), carry && magnitude[index] == 0)
            }
        }
        let significant = magnitude.drop { $0 == 0 }
        return (isNegative ? "-" : "") + (significant.isEmpty ? "00" : Array(significant).hexEncoded)
    }

    /// The SHA-256 hash of the DER bytes.
    public var sha256Fingerprint: [UInt8] { Array(SHA256.hash(data: derRepresentation)) }

    /// The subject, or the first alternative name of a certificate without subject.
    package var displayName: String {
        subject.isEmpty ? subjectAlternativeNames.first?.description ?? subject : subject
    }

    /// Whether subject and issuer are the same name.
    public var isSelfIssued: Bool { subjectName == issuerName }

    /// The common names of the subject, in the order of the certificate.
    package var commonNames: [String] { subjectTexts([2, 5, 4, 3]) }
    /// The organizational units of the subject, in the order of the certificate.
    package var organizationalUnits: [String] { subjectTexts([2, 5, 4, 11]) }

    private func subjectTexts(_ type: ASN1ObjectIdentifier) -> [String] {
        guard let node = try? DER.parse(subjectDER), let name = try? DistinguishedName(derEncoded: node) else {
            return []
        }
        return name.texts(of: type)
    }

    /// Whether the certificate may sign revocation lists: its key usage, if present, permits that (RFC 5280, section
    /// 6.3.3).
    package var permitsRevocationLists: Bool { keyUsage?.cRLSign ?? true }

    /// Whether its key usage, if present, has digitalSignature.
    package var permitsDigitalSignature: Bool { keyUsage?.digitalSignature ?? true }

    /// Returns whether `date` is in, before or after the validity period.
    public func status(at date: Date) -> ValidityStatus {
        if date < notValidBefore { return .notYetValid }
        return date > notValidAfter ? .expired : .valid
    }

    /// A position relative to the validity period.
    public enum ValidityStatus: String, Sendable {
        /// From `notBefore` to `notAfter`, both included (RFC 5280, section 4.1.2.5).
        case valid
        /// After `notAfter`.
        case expired
        /// Before `notBefore`.
        case notYetValid
    }
}

extension X509Certificate: Hashable {
    public static func == (left: Self, right: Self) -> Bool { left.derRepresentation == right.derRepresentation }
    public func hash(into hasher: inout Hasher) { hasher.combine(derRepresentation) }
}

extension X509Certificate {
    /// Reads only the fields that are needed, so that an unusual extension does not hide a certificate.
    private init(derEncoded root: ASN1Node) throws {
        self.derRepresentation = Array(root.encodedBytes)
        let fields = try Self.fields(root)
        let subject = try DistinguishedName(derEncoded: fields.subject)
        let issuer = try DistinguishedName(derEncoded: fields.issuer)
        (self.subject, self.issuer) = (subject.rfc4514, issuer.rfc4514)
        (self.subjectName, self.issuerName) = (CanonicalName(subject), CanonicalName(issuer))
        self.subjectDER = Array(fields.subject.encodedBytes)
        self.issuerDER = Array(fields.issuer.encodedBytes)
        self.serialNumber = Array(fields.serialNumber)
        (self.notValidBefore, self.notValidAfter) = fields.validity
        self.publicKey = fields.publicKey

        let extensions = fields.extensions
        self.subjectAlternativeNames =
            extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.subjectAlternativeName]
            .map { AlternativeName.names(derEncoded: $0.value) } ?? []
        let constraints = extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.basicConstraints]
            .flatMap { try? BasicConstraints($0) }
        if case .isCertificateAuthority = constraints { self.isAuthority = true } else { self.isAuthority = false }
        self.subjectKeyIdentifier =
            extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.subjectKeyIdentifier]
            .flatMap { try? SubjectKeyIdentifier($0) }.map { Array($0.keyIdentifier) }
        self.authorityKeyIdentifier =
            extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.authorityKeyIdentifier]
            .flatMap { try? AuthorityKeyIdentifier($0) }?.keyIdentifier.map(Array.init)
        self.keyUsage = extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.keyUsage].flatMap { try? KeyUsage($0) }
        self.extendedKeyUsage =
            extensions[oid: ASN1ObjectIdentifier.X509ExtensionID.extendedKeyUsage].flatMap { try? ExtendedKeyUsage($0) }
    }

    private static func fields(_ root: ASN1Node) throws -> TBSFields {
        try DER.sequence(root, identifier: .sequence) { nodes in
            let fields = try DER.sequence(
                try nodes.required("tbsCertificate"), identifier: .sequence, TBSFields.init)
            _ = try nodes.required("signatureAlgorithm")
            _ = try ASN1BitString(derEncoded: &nodes)
            return fields
        }
    }

    /// The subjectAlternativeName extension as issued; `nil` if there is none.
    var alternativeNamesExtension: Certificate.Extension? {
        let fields = try? Self.fields(DER.parse(derRepresentation))
        return fields?.extensions[oid: .X509ExtensionID.subjectAlternativeName]
    }
}
