/// The ability of a ``CertificateProvider`` to keep the key of a replaced identity until that is no longer in use.
///
/// ``CertificateProvider/getCertificate(_:)`` leaves the replaced identity usable: connections use it until the new one
/// is installed, which may fail. The caller reports here that it is. Without a report, the provider destroys the
/// replaced identity when it obtains the next one.
public protocol ReplacedIdentityDiscarding: Sendable {
    /// Destroys the identity that `identity` has replaced. Does nothing if it is gone already, if another identity is
    /// stored by now, or while another process obtains one: then the next call, or the next identity, takes care of it.
    ///
    /// - Parameter identity: The identity in use now.
    /// - Throws: Errors of the store or token that holds the replaced identity.
    func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError)
}
