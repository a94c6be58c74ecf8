package import CertificateProviding
package import IdentityStore

extension StateDirectory {
    /// The directory of the journal and of the waiting requests: beside the identities.
    ///
    /// - Throws: As ``path()``.
    package static func requests() throws(ProviderError) -> String { try path() + "/requests" }
}
