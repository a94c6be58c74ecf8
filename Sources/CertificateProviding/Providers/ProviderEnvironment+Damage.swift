import Logging

extension ProviderEnvironment {
    /// Reads an entry or a record that is to be deleted, for the keys that it names. One that is damaged
    /// (``ProviderError/Reason/damaged``) names none, and may be deleted all the same.
    ///
    /// - Parameters:
    ///   - warns: Whether a warning is logged then.
    ///   - read: Reads from the storage. Called once.
    /// - Throws: The other errors of `read`.
    public func toleratingDamage(
        warns: Bool, _ read: () throws(ProviderError) -> Void
    ) throws(ProviderError) {
        do throws(ProviderError) { try read() } catch {
            guard error.reason == .damaged else { throw error }
            guard warns else { return }
            logger.warning(
                "a damaged entry or record is deleted, and its key may be left in a key store",
                metadata: ["reason": "\(error)"])
        }
    }
}
