public import CertificateProviding
public import FoundationEssentials

/// An attribute of a signer, signed or unsigned (RFC 5652, section 5.3), with one value.
public struct CMSSignerAttribute: Sendable, Hashable {
    /// The Attribute, DER.
    public let derRepresentation: [UInt8]

    /// Creates an attribute.
    ///
    /// - Parameters:
    ///   - type: The numbers of the object identifier, at least two; the first is at most 2, and the second below 40.
    ///   - value: The value, DER.
    public init(_ type: [UInt], value: [UInt8]) {
        derRepresentation = DER.value(DER.sequence, DER.objectIdentifier(type) + DER.value(DER.set, value))
    }

    /// The type of the content, here always `id-data` (RFC 5652, section 11.1).
    static let contentType = Self([1, 2, 840, 113549, 1, 9, 3], value: DER.data)

    /// The digest of the content (section 11.2).
    static func messageDigest(_ digest: [UInt8]) -> Self {
        Self([1, 2, 840, 113549, 1, 9, 4], value: DER.value(DER.octetString, digest))
    }

    /// The time that the signer claims to sign at, in whole seconds (section 11.3): a UTCTime until 2049. A time before 1950 or
    /// after 9999 is none.
    public static func signingTime(_ date: Date) -> Self {
        // 2026-11-28T08:00:00Z
        let text = date.formatted(.iso8601).utf8.filter {
            $0 != UInt8(ascii: "-") && $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: "T")
        }
        let isShort = (text.starts(with: "19".utf8) || text.starts(with: "20".utf8)) && date < Self.generalizedTimeStart
        return Self(
            [1, 2, 840, 113549, 1, 9, 5],
            value: isShort ? DER.value(0x17, Array(text.dropFirst(2))) : DER.value(0x18, text))
    }

    /// 2050-01-01.
    private static let generalizedTimeStart = Date(timeIntervalSince1970: 2_524_608_000)

    /// The signer's certificate by its SHA-256 digest, so that another one for the same key cannot take its place:
    /// signing-certificate-v2 (RFC 5035, section 3; EN 319 122-1, section 5.2.2.3).
    public static func signingCertificate(_ certificate: X509Certificate) -> Self {
        // ESSCertIDv2 without its hash algorithm, since SHA-256 is the default.
        let identifier = DER.value(DER.sequence, DER.value(DER.octetString, certificate.sha256Fingerprint))
        return Self(
            [1, 2, 840, 113549, 1, 9, 16, 2, 47],
            value: DER.value(DER.sequence, DER.value(DER.sequence, identifier)))
    }

    /// A time stamp of the signature's value, for ``CMSSignature/unsignedAttributes`` (RFC 3161, appendix A).
    ///
    /// - Parameter token: The TimeStampToken, DER.
    public static func timeStamp(_ token: [UInt8]) -> Self {
        Self([1, 2, 840, 113549, 1, 9, 16, 2, 14], value: token)
    }
}
