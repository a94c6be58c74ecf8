/// The ability of a ``CertificateProvider`` to announce what its ``CertificateProvider/deleteStoredCertificate()``
/// destroys outside this host's store, so that the user can be asked first.
public protocol DeletionAnnouncing: Sendable {
    /// Returns the objects that would be destroyed permanently, one sentence each; empty if there are none.
    ///
    /// - Throws: Errors of reading them.
    func announcedDeletions() async throws(ProviderError) -> [String]
}
