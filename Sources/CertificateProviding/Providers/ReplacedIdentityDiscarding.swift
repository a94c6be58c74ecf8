/// The optional ability of a provider to keep the key of an identity that it has replaced until that is used no more.
///
/// Its ``CertificateProvider/getCertificate(_:)`` leaves the replaced one as it is: connections are made with it until the
/// new one has been taken into use, which may fail. Who obtains identities says here when that is done; a provider that
/// hears nothing destroys it when it obtains the next one.
public protocol ReplacedIdentityDiscarding: Sendable {
    /// Destroys what an identity has replaced. Does nothing where nothing is left of it, where another identity is stored
    /// by now, or while another process obtains one: then it is left to the next call, or the next identity.
    ///
    /// - Parameter identity: The one that is in use now.
    /// - Throws: What the place meets in which it rests.
    func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError)
}
