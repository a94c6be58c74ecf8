/// The optional ability of a provider to make keys where its identities live, and to keep the certificates that are
/// issued for them: what an enrolment needs of a token.
///
/// A key is made, a request is signed with it, and the issued chain is stored beside it. Whoever gives up in between
/// calls ``discard(_:_:)``. A renewal makes a new key, and discards the old one after the new identity has worked.
public protocol KeyGenerating: CertificateProvider {
    /// Makes a key pair that never leaves its home.
    ///
    /// - Parameters:
    ///   - label: What people call it; shown by other tools as well.
    ///   - use: What the key will be allowed to do. One that may decrypt is a ``DecryptingIdentityKey``.
    ///   - remember: Writes the key down where it will be found again. A key that nobody has written down, since this
    ///     has thrown or the process has ended before, is destroyed. May block for a short time.
    /// - Throws: `unsupportedAlgorithm` for a type or a use that the home cannot make, `storeWriteFailed` where nothing
    ///   can be written, what asking for access meets, and what `remember` throws. Nothing is left behind then.
    func generateKey(
        _ type: KeyType, label: String, for use: KeyUse, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey

    /// Finds the private key of a public key, which need not have a certificate yet; `nil` when there is none. Whoever
    /// asks for a key shows that it is remembered.
    ///
    /// - Throws: What asking for access meets, and what the key's home reports.
    func key(
        for publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)?

    /// As ``key(for:_:)``, where nobody has to be asked; `nil` where somebody would have to be. Blocks for the key's
    /// home, for a bounded time.
    ///
    /// - Throws: `notFound` where there is no such key, and what the key's home reports.
    func keyAtHand(for publicKey: PublicKeyInfo) throws(CertificateProviderError) -> (any IdentityKey)?

    /// Writes an issued chain beside its key and lets the key sign a probe. What is there already stays, also other
    /// certificates for the same key.
    ///
    /// - Parameter certificateChain: Leaf first.
    /// - Throws: `keyMismatch` when the leaf is for another key, `storeWriteFailed`. Nothing of the chain is left
    ///   behind then; the key is.
    func store(
        certificateChain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity

    /// Destroys every other certificate of the identity's key, which a renewal with the same key has replaced.
    ///
    /// - Throws: `deleteFailed`, and what asking for access meets.
    func removeReplacedCertificates(
        of identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError)

    /// Destroys a key pair and the certificates for it, for good.
    ///
    /// - Throws: `notFound` when there is no such key; `deleteFailed`, naming what is left.
    func discard(_ key: any IdentityKey, _ interaction: any UserInteraction) async throws(CertificateProviderError)

    /// Destroys what a ``discard(_:_:)`` that was interrupted has left of a key pair whose private key is gone.
    /// Succeeds when there is nothing.
    ///
    /// - Throws: `deleteFailed`, and what asking for access meets.
    func removeRemains(
        of publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError)
}

extension KeyGenerating {
    /// Makes a key pair that the caller has no need to find again.
    public func generateKey(
        _ type: KeyType, label: String, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await generateKey(type, label: label, for: .signing, interaction) { _ in }
    }
}

/// What a private key is allowed to do. Nothing else: a key that does two things can be made to do one by way of the
/// other.
public struct KeyUse: OptionSet, Sendable {
    public let rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }

    public static let signing = Self(rawValue: 1)
    /// RSA only.
    public static let decryption = Self(rawValue: 2)
}

/// The optional ability of a provider to say what its ``CertificateProvider/deleteStoredCertificate()`` destroys
/// outside this host's store, so that a person can be asked before.
public protocol DeletionAnnouncing: Sendable {
    /// Returns what would be destroyed for good, one sentence each; empty when nothing would.
    ///
    /// - Throws: What looking at it meets.
    func announcedDeletions() async throws(CertificateProviderError) -> [String]
}
