import CertificateProviding
import Crypto

/// The SHA-256 hash of a CA certificate, in its text form.
enum CAFingerprint {
    /// Reads hexadecimal digits, with or without colons. Only SHA-256 is accepted: certificates with a given SHA-1 or
    /// MD5 digest can be forged, and this hash alone keeps secrets from an unknown server.
    ///
    /// - Throws: `configurationInvalid`.
    static func parse(_ text: String) throws(ProviderError) -> [UInt8] {
        let digits = text.filter { $0 != ":" && !$0.isWhitespace }
        guard let bytes = ByteText.bytes(hexadecimal: digits), bytes.count == SHA256.byteCount else {
            throw ProviderError(
                .configurationInvalid,
                """
                The fingerprint of the CA must be the SHA-256 digest of its certificate, which has 64 hexadecimal \
                digits; 'openssl x509 -noout -fingerprint -sha256' prints it.
                """)
        }
        return bytes
    }

    /// Returns the fingerprint as OpenSSL prints it, for comparison.
    static func text(of certificate: X509Certificate) -> String {
        certificate.sha256Fingerprint.map { DisplayText.hexadecimal([$0]).uppercased() }.joined(separator: ":")
    }
}
