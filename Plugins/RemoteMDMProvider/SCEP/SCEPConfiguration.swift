import CertificateProviding
import Crypto

/// Where a SCEP server (RFC 8894) is, and by what its CA is known.
struct SCEPConfiguration: Sendable {
    /// The path of the server's program, and a query where it has one; percent-encoded.
    let target: String
    /// Which of the server's CAs is meant, where it has several.
    let authorityIdentifier: String?
    /// The SHA-256 digest of the CA's certificate.
    let fingerprint: [UInt8]?
    /// What the CA's certificate must lead to. Where there is a fingerprint too, both must fit.
    let trustAnchors: [X509Certificate]
    /// Whether requests may be encrypted with triple DES where the server does not know AES.
    let permitsTripleDES: Bool

    /// - Parameter fingerprint: Hexadecimal, with or without colons. Only SHA-256: a certificate that has the SHA-1 or
    ///   MD5 digest of another can be made, and this digest is all that stands between the challenge and a stranger.
    /// - Throws: `configurationInvalid`.
    init(
        target: String, authorityIdentifier: String? = nil, fingerprint: String? = nil,
        trustAnchors: [X509Certificate] = [], permitsTripleDES: Bool = false
    ) throws(CertificateProviderError) {
        guard fingerprint != nil || !trustAnchors.isEmpty else {
            throw CertificateProviderError(
                .configurationInvalid,
                "Nothing says which CA to trust; give the SHA-256 fingerprint of its certificate, or a trust anchor.")
        }
        self.target = target
        self.authorityIdentifier = authorityIdentifier
        self.fingerprint = try fingerprint.map(Self.digest)
        self.trustAnchors = trustAnchors
        self.permitsTripleDES = permitsTripleDES
    }

    private static func digest(_ text: String) throws(CertificateProviderError) -> [UInt8] {
        let digits = text.filter { $0 != ":" && !$0.isWhitespace }.compactMap { $0.isASCII ? $0.hexDigitValue : nil }
        let isHexadecimal = text.allSatisfy { $0 == ":" || $0.isWhitespace || $0.isHexDigit && $0.isASCII }
        guard isHexadecimal, digits.count == SHA256.byteCount * 2 else {
            throw CertificateProviderError(
                .configurationInvalid,
                """
                The fingerprint of the CA must be the SHA-256 digest of its certificate, which has 64 hexadecimal digits; \
                'openssl x509 -noout -fingerprint -sha256' prints it.
                """)
        }
        return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
    }
}
