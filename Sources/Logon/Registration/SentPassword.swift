import CertificateProviding

/// A password, and the notes about its use with the platform server.
struct SentPassword: Sendable {
    /// The server's answer.
    enum Verdict { case accepted, rejected, errorOfServer }

    let secret: SecretBytes
    /// For one that the server has not accepted yet: called before it is sent, which it is not if this throws.
    var beforeSending: (@Sendable () async throws(ProviderError) -> Void)?
    /// Takes the verdict of the server, if there is one.
    let note: @Sendable (Verdict) async -> Void
}
