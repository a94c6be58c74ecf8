/// The ability of a ``CertificateProvider`` to have its identity revoked, and its account with the server closed.
public protocol IdentityRevoking: Sendable {
    /// Has the stored certificate revoked by its issuer. The identity stays in the store.
    ///
    /// - Throws: `notFound` if none is stored, `operationNotAllowed` while another process is enrolling, `unavailable`, `rejected`.
    func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(ProviderError)

    /// Closes the account that the server has for this host, for good, and destroys its key. Succeeds if there is none.
    ///
    /// - Throws: As ``revokeStoredCertificate(_:_:)``.
    func closeAccount(_ interaction: any UserInteraction) async throws(ProviderError)
}

/// The reason of a revocation (RFC 5280, section 5.3.1).
public struct RevocationReason: RawRepresentable, Hashable, Sendable {
    public let rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// No reason is given.
    public static let unspecified = Self(rawValue: 0)
    /// Others may have the private key.
    public static let keyCompromise = Self(rawValue: 1)
    /// The names or other contents have changed.
    public static let affiliationChanged = Self(rawValue: 3)
    /// Another certificate has replaced it.
    public static let superseded = Self(rawValue: 4)
    /// It is no longer needed.
    public static let cessationOfOperation = Self(rawValue: 5)
}
