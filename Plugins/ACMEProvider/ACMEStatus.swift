import CertificateProviding

/// The status of an account, an order, an authorisation or a challenge (RFC 8555, section 7.1.6).
enum ACMEStatus: String, Codable, CaseIterable, Sendable {
    case pending, processing, ready, valid, invalid, deactivated, expired, revoked

    /// - Throws: `protocolError` for another word.
    init(from decoder: any Decoder) throws {
        let word = try decoder.singleValueContainer().decode(String.self)
        guard let known = Self(rawValue: word) else {
            throw ProviderError(
                .protocolError,
                """
                The server's answer has the status '\(word.shown)', which ACME does not have (RFC 8555, section 7.1.6); look for the \
                reason in the server's log.
                """)
        }
        self = known
    }
}
