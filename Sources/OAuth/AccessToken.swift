public import CertificateProviding

/// A token that a server takes in place of credentials, for some time (RFC 6749, section 1.4; RFC 6750).
public struct AccessToken: Sendable {
    /// The token itself, printable ASCII without blanks.
    public let value: SecretBytes
    /// What it is good for, where the server has said so; else all that was asked for (section 3.3).
    public let scopes: [String]?
    /// Which of its source's tokens it is.
    let number: UInt64

    /// The `Authorization` field of a request: `Bearer`, and the token. As secret as the token.
    public var authorization: String { "Bearer " + value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
