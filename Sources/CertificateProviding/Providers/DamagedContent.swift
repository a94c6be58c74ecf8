import Logging

/// The underlying error of stored content that is damaged, or sealed with a key that is lost. Content that cannot be read
/// for another reason, such as an I/O error or a newer version, may be readable later.
package struct DamagedContent: Error {
    package init() {}
}

extension ProviderEnvironment {
    /// Reads what is to be deleted. Content that is damaged names no key, and is deleted all the same.
    ///
    /// - Parameter warns: Whether a warning is logged then.
    /// - Throws: The other errors of `read`.
    package func toleratingDamage(
        warns: Bool, _ read: () throws(CertificateProviderError) -> Void
    ) throws(CertificateProviderError) {
        do throws(CertificateProviderError) { try read() } catch {
            guard error.underlying is DamagedContent else { throw error }
            guard warns else { return }
            logger.warning(
                "a damaged entry or record is deleted, and its key may be left in a key store",
                metadata: ["reason": "\(error)"])
        }
    }
}
