import CertificateProviding

/// The revisions after a signature: how many, and their changes of the signed document.
package struct PDFLaterRevisions: Sendable {
    /// The worst of what they change.
    package enum Change: Int, Comparable, Sendable {
        /// There is no later byte.
        case nothing
        /// Signatures, their fields, validation data (`/DSS`), metadata and extensions.
        case signatures
        /// Values of form fields and how they are shown.
        case formValues
        /// Anything else: shown content may have come later.
        case other

        package static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
    }

    /// The number of cross-reference sections that came later; 0 for later bytes without one.
    package private(set) var count = 0
    package private(set) var change = Change.nothing
    /// The first of the worst changes, as a clause for a message; for ``Change/signatures``, that a later signature is seen on a page.
    package private(set) var reason: String?

    /// Compares a document with an earlier revision of it.
    ///
    /// All objects that can be reached from the two catalogs are compared. Nothing is told apart by what it looks like: only what an update for one
    /// of the given signatures changes, and values of fields, count as such.
    ///
    /// - Parameters:
    ///   - end: The end of the earlier revision.
    ///   - signatures: The objects of signatures that came later and sign the bytes in front of them.
    init(after end: Int, of source: PDFSource, signatures: Set<PDFReference>) throws(ProviderError) {
        guard end < source.count else { return }
        var (old, new): (PDFReader, PDFReader)
        do throws(ProviderError) {
            old = try PDFReader(source.prefix(end))
            try old.readSections()
            new = try PDFReader(source)
            try new.readSections()
            count = max(0, new.sections.count - old.sections.count)
            if let flaw = try UpdateLayout.flaw(after: end, old, new) {
                (change, reason) = (.other, flaw)
                return
            }
        } catch {
            (change, reason) = (.other, "the revisions cannot be read apart: \(error.message)")
            return
        }
        (old.comparesIndexes, new.comparesIndexes) = (true, true)
        var comparison = RevisionComparison(old, new, signatures: signatures)
        try comparison.run()
        (change, reason) = (max(.signatures, comparison.change), comparison.reason)
    }

    init() {}

    /// Adds those that came before.
    mutating func add(_ earlier: PDFLaterRevisions) {
        count += earlier.count
        if earlier.change > change || reason == nil { reason = earlier.reason ?? reason }
        change = max(change, earlier.change)
    }
}
