import CertificateProviding
import OpenSSLSupport

/// The capabilities that a CA announces (RFC 8894, section 3.5.2). Unknown words are ignored.
struct SCEPCapabilities: Sendable {
    /// In lower case.
    private let words: Set<String>

    /// The capabilities of a server that announces none.
    static let none = SCEPCapabilities(text: "")

    /// - Parameter text: One word per line; a final newline is often missing.
    init(text: String) {
        // A CR and LF are one character.
        words = Set(text.lowercased().split(whereSeparator: \.isNewline).map { $0.filter { !$0.isWhitespace } })
    }

    private func contains(_ word: String) -> Bool { words.contains(word.lowercased()) }

    /// AES, SHA-256 and POST, together.
    private var isStandard: Bool { contains("SCEPStandard") }

    var canPost: Bool { isStandard || contains("POSTPKIOperation") }
    var canRenew: Bool { contains("Renewal") }
    var hasNextAuthority: Bool { contains("GetNextCACert") }

    /// Returns the digest for messages to the CA, by its OpenSSL name. A CA that announces nothing is sent SHA-256,
    /// which RFC 8894 makes mandatory: an attacker who removes the announcement gains nothing.
    ///
    /// - Throws: `unsupportedAlgorithm` for a CA that supports only MD5 and SHA-1.
    func digest() throws(ProviderError) -> String {
        if contains("SHA-512") { return "SHA512" }
        guard isStandard || contains("SHA-256") || !contains("SHA-1") else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The SCEP server supports no digest but SHA-1, which is not used for signatures; configure it for "
                    + "SHA-256.")
        }
        return "SHA256"
    }

    /// Returns the cipher for messages to the CA. A CA that announces nothing is sent AES, unless triple DES is
    /// permitted.
    ///
    /// - Throws: `unsupportedAlgorithm` for a CA that supports only triple DES, if that is not permitted.
    func cipher(permittingTripleDES: Bool) throws(ProviderError) -> CMSCipher {
        if isStandard || contains("AES") { return .aes128CBC }
        if permittingTripleDES { return .tripleDESCBC }
        guard !contains("DES3") else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The SCEP server supports no cipher but triple DES; configure it for AES, or set 'scep-allow-3des' to "
                    + "true.")
        }
        return .aes128CBC
    }
}
