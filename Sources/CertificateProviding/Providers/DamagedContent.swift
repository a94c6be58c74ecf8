import Logging

/// The underlying error of stored content that is damaged, or sealed with a key that is lost. Content that cannot be read
/// for another reason, such as an I/O error or a newer version, may be readable later.
public struct DamagedContent: Error {
    /// Creates the error, for implementations of ``IdentityStorage`` and for records of a provider.
    public init() {}
}

/// The underlying error of `operationNotAllowed` while another process or task is at work on the same thing: the same call
/// may succeed soon. A renewal that meets it is pending, and not failed.
public struct OperationInProgress: Error {
    /// Creates the error.
    public init() {}
}

extension ProviderEnvironment {
    /// Reads an entry or a record that is to be deleted, for the keys that it names. One that is damaged
    /// (``DamagedContent``) names none, and may be deleted all the same.
    ///
    /// - Parameters:
    ///   - warns: Whether a warning is logged then.
    ///   - read: Reads from the storage. Called once.
    /// - Throws: The other errors of `read`.
    public func toleratingDamage(
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
