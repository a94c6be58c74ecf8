public import CertificateProviding

/// The documents of the queue, by their content. All calls block for a short time, and may be made from any thread.
///
/// Documents are written and removed, and records that name them are changed, inside ``whileKept(_:)`` and ``whileAlone(_:)``: so none is
/// removed between its writing and the record's.
public protocol DocumentKeeping: Sendable {
    /// Stores a content; harmless when repeated. When it returns, the content is on disk.
    /// - Throws: `storeWriteFailed`; nothing is stored then.
    @discardableResult func write(_ content: [UInt8]) throws(ProviderError) -> DocumentReference
    /// Returns a content, whose digest and size have been verified.
    /// - Throws: `storeReadFailed`; with the reason `damaged` for one that is missing, or another one.
    func read(_ document: DocumentReference) throws(ProviderError) -> [UInt8]
    /// Whether there is a content of this size, unread.
    /// - Throws: `storeReadFailed`.
    func contains(_ document: DocumentReference) throws(ProviderError) -> Bool
    /// Removes a content; succeeds if there is none.
    /// - Throws: `storeWriteFailed`.
    func remove(sha256 digest: String) throws(ProviderError)
    /// Returns the digests of all contents.
    /// - Throws: `storeReadFailed`.
    func all() throws(ProviderError) -> [String]
    /// The file of a content, for people; it must not be written to.
    func path(of document: DocumentReference) -> String
    /// Runs work while no process removes documents. Many may do so at a time.
    /// - Throws: `operationNotAllowed` with the reason `busy` if another process removes documents for long; the error of the work.
    func whileKept<R>(_ body: () throws(ProviderError) -> R) throws(ProviderError) -> R
    /// Runs work while no other work runs, of this kind or the other.
    /// - Returns: `nil` if other work runs; this one was not started then.
    func whileAlone<R>(_ body: () throws(ProviderError) -> R) throws(ProviderError) -> R?
}
