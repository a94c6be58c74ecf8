public import CertificateProviding
import PDFUpdate

/// The parts of a PDF signature beside the cryptography.
public struct PDFSignatureDetails: Sendable {
    /// The full name of an existing empty signature field; `nil` for a new field, which is invisible.
    public var field: String?
    /// Why the person signs, for readers to show.
    public var reason: String?
    /// The place of the signature, for readers to show.
    public var location: String?

    /// Creates details; by default a new field and no texts.
    public init(field: String? = nil, reason: String? = nil, location: String? = nil) {
        (self.field, self.reason, self.location) = (field, reason, location)
    }
}

/// A PDF whose structure has been read: it can be signed. No key was needed for that.
public struct PDFToSign: Sendable {
    let content: SigningContent
    let request: PDFSignatureRequest
    /// How many pages the document says that it has; `nil` if it does not say so in a usual way.
    package let claimedPages: Int?
    /// The bytes that came from a pipe, for as long as `content` is read.
    private let spool: ContentSpool?

    /// Reads what a signature needs of a document. Blocks.
    ///
    /// - Parameters:
    ///   - details: Of the signature.
    ///   - hasTimeStamp: Whether it will have a time stamp; a field of the document may require one.
    ///   - directory: For a temporary file that holds content from a pipe.
    /// - Throws: `documentNotSignable` with the reason; `malformedData` for a document that other programs would have to repair;
    ///   `storeReadFailed` and `storeWriteFailed`.
    public init(
        _ content: SigningContent, _ details: PDFSignatureDetails = .init(), hasTimeStamp: Bool,
        directory: String = "/tmp"
    ) throws(ProviderError) {
        request = PDFSignatureRequest(
            field: details.field, reason: details.reason, location: details.location, hasTimeStamp: hasTimeStamp)
        if let source = try content.pdfSource() {
            (self.content, spool) = (content, nil)
            claimedPages = try SignableDocument(source, request).claimedPages
        } else {
            let spool = try ContentSpool(in: directory)
            try content.read { piece throws(ProviderError) in try spool.append(piece) }
            (self.content, self.spool) = (spool.content(), spool)
            claimedPages = try SignableDocument(try spool.pdfSource(), request).claimedPages
        }
    }
}
