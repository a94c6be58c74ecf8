package import CertificateProviding

/// The revisions after a signature: how many, and their changes of the signed document.
package struct PDFLaterRevisions: Sendable {
    /// The worst of what they change.
    package enum Change: Int, Comparable, Sendable {
        /// There is no later byte.
        case nothing
        /// Signatures, their fields, validation data (`/DSS`), metadata and extensions: nothing that is shown.
        case signatures
        /// Values of form fields and how they are shown.
        case formValues
        /// Anything else: shown content may have come later.
        case other

        package static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
    }

    /// The number of cross-reference sections that came later; 0 for later bytes without one.
    package let count: Int
    package let change: Change
    /// For ``Change/other``: the first that was found, as a clause for a message.
    package let reason: String?

    /// Compares the document that ends at a byte with the whole file.
    ///
    /// All objects that can be reached from the catalog are compared, and each is looked at in both. Nothing is told apart by what it looks like:
    /// only what an update for a signature changes, and values of fields, counts as such.
    package init(after end: Int, of source: PDFSource) throws(ProviderError) {
        guard end < source.count else {
            (count, change, reason) = (0, .nothing, nil)
            return
        }
        var (old, new): (PDFReader, PDFReader)
        do throws(ProviderError) {
            old = try PDFReader(source.prefix(end))
            try old.readSections()
            new = try PDFReader(source)
            try new.readSections()
        } catch {
            (count, change, reason) = (0, .other, "the bytes that were signed are not a document of their own")
            return
        }
        var comparison = RevisionComparison(old, new)
        try comparison.run()
        count = max(0, new.sections.count - old.sections.count)
        change = max(.signatures, comparison.change)
        reason = comparison.reason
    }
}
