import CertificateProviding
import Crypto

/// The answer to the challenge of one authorisation (RFC 8555, section 8).
struct ChallengeAnswer: Sendable {
    let kind: ChallengeKind
    /// The URL of the challenge.
    let url: String
    /// Whether the server is looking already.
    let isProcessing: Bool
    let token: String
    /// Token and thumbprint of the account's key (section 8.1).
    let keyAuthorization: String
    /// As it is configured: the server's spelling of the name goes to no program and into no certificate.
    let identifier: ACMEOrder.Identifier

    /// - Throws: `protocolError` for a token that is none: it becomes part of a file's name.
    init(
        _ challenge: ACMEAuthorization.Challenge, for name: ACMEIdentifier, thumbprint: String
    ) throws(ProviderError) {
        guard let kind = ChallengeKind(rawValue: challenge.type), let token = challenge.token,
            token.isBase64URL, token.utf8.count <= 128
        else {
            throw ProviderError(
                .protocolError,
                "The challenge for \(name) has no valid token (RFC 8555, section 8.3); it is not answered."
            )
        }
        self.kind = kind
        (url, self.token) = (challenge.url, token)
        isProcessing = challenge.status == .processing
        keyAuthorization = "\(token).\(thumbprint)"
        identifier = ACMEOrder.Identifier(type: name.type, value: name.provenValue)
    }

    /// SHA-256 of the key authorisation.
    var digest: [UInt8] { Array(SHA256.hash(data: Array(keyAuthorization.utf8))) }

    /// The name of the TXT record (section 8.4), without a final dot.
    var recordName: String { "_acme-challenge.\(identifier.value)" }
    /// The value of the TXT record.
    var recordValue: String { ByteText.base64URL(digest) }
}
