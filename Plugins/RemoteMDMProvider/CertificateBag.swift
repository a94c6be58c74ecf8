import CertificateProviding
import FoundationEssentials
import OpenSSLSupport

/// A certs-only `SignedData` (RFC 5652, section 5; RFC 8951, section 3.2), in which enrolment protocols send
/// certificates. Their order has no meaning.
enum CertificateBag {
    private static let maximumCount = 64

    /// Returns the certificates. Reads DER, and BER, which some servers send.
    /// - Throws: `protocolError`.
    static func certificates(in bytes: [UInt8]) throws(ProviderError) -> [X509Certificate] {
        var seen: Set<[UInt8]> = []
        let encoded: [[UInt8]]
        // Some servers send the same one several times.
        do throws(OpenSSLError) {
            encoded = try OpenSSLLibrary().certificates(inSignedData: bytes).filter { seen.insert($0).inserted }
        } catch {
            throw ProviderError(
                .protocolError,
                "The server's answer is damaged: expected a certs-only SignedData (RFC 5652). Check 'url', or ask the server's "
                    + "administrator.",
                underlying: error)
        }
        guard !encoded.isEmpty else {
            throw ProviderError(
                .protocolError, "The server's answer holds no certificate; ask its administrator.")
        }
        guard encoded.count <= maximumCount else {
            throw ProviderError(
                .protocolError,
                "The server's answer holds \(encoded.count) certificates; at most \(maximumCount) are accepted. Ask its "
                    + "administrator."
            )
        }
        return try encoded.map { der throws(ProviderError) in
            do { return try X509Certificate(derRepresentation: der) } catch {
                throw ProviderError(
                    .protocolError, "The server's answer holds a damaged certificate; ask its administrator.",
                    underlying: error)
            }
        }
    }
}

/// The base64 bodies of EST (RFC 7030, section 4; RFC 8951, section 3.1).
enum Base64Body {
    /// Returns lines of 64 characters, each with a line feed, which every server accepts.
    static func encode(_ bytes: [UInt8]) -> [UInt8] {
        Array(Data(bytes).base64EncodedData(options: [.lineLength64Characters, .endLineWithLineFeed])) + [0x0a]
    }

    /// Reads lines of any length, and ignores the NUL that libest sends after its sample, and
    /// `Content-Transfer-Encoding`.
    /// - Throws: `protocolError`.
    static func decode(_ body: [UInt8]) throws(ProviderError) -> [UInt8] {
        let digits = body.filter { ![0x20, 0x09, 0x0a, 0x0d, 0x00].contains($0) }
        guard !digits.isEmpty, let bytes = Data(base64Encoded: Data(digits)) else {
            throw ProviderError(
                .protocolError,
                "The server's answer is not base64, which EST requires (RFC 8951); check 'url', or ask its administrator."
            )
        }
        return Array(bytes)
    }
}
