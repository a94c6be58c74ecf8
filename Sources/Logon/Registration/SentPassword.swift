import CertificateProviding

/// A password, and what is noted when it is sent to the platform server.
struct SentPassword: Sendable {
    let secret: SecretBytes
    /// For one that the server has not accepted yet: called before it is sent, which it is not if this throws.
    var beforeSending: (@Sendable () async throws(CertificateProviderError) -> Void)?
    /// Takes the server's answer: whether it has rejected the password.
    let note: @Sendable (_ isRejected: Bool) async -> Void
}
