import CertificateProviding
import OpenSSLSupport

/// What a CA says it can do (RFC 8894, section 3.5.2). Words that are not known mean nothing.
struct SCEPCapabilities: Sendable {
    /// In lower case.
    private let words: Set<String>

    /// What a server can do that does not say: what every server can.
    static let none = SCEPCapabilities(text: "")

    /// - Parameter text: A word a line; a final newline is often missing.
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

    /// The digest for messages to the CA, as OpenSSL calls it. One that says nothing is sent SHA-256, which RFC 8894
    /// makes mandatory: whoever cuts the words off on their way gains nothing by it.
    ///
    /// - Throws: `unsupportedAlgorithm` for a CA that knows MD5 and SHA-1 only.
    func digest() throws(CertificateProviderError) -> String {
        if contains("SHA-512") { return "SHA512" }
        guard isStandard || contains("SHA-256") || !contains("SHA-1") else {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "The SCEP server knows no digest but SHA-1, which is not used for signatures; it needs SHA-256.")
        }
        return "SHA256"
    }

    /// The cipher for messages to the CA. As with ``digest()``, one that says nothing is sent AES.
    ///
    /// - Throws: `unsupportedAlgorithm` for a CA that knows triple DES only, where that is not permitted.
    func cipher(permittingTripleDES: Bool) throws(CertificateProviderError) -> CMSCipher {
        if isStandard || contains("AES") { return .aes128CBC }
        if permittingTripleDES { return .tripleDESCBC }
        guard !contains("DES3") else {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "The SCEP server knows no cipher but triple DES; the configuration must permit it, or the server learn AES."
            )
        }
        return .aes128CBC
    }
}
