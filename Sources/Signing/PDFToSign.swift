public import CertificateProviding
import PDFUpdate

/// The parts of a PDF signature beside the cryptography.
public struct PDFSignatureDetails: Sendable {
    /// The place of a visible signature on a page, as a reader sees the page: turned, if the document says so.
    public struct Place: Sendable {
        /// The number of the page, from 1.
        public var page: Int
        /// In points, from the left and the lower edge of the shown part of the page.
        public var x, y: Double
        /// In points: at least 20 wide and 8 high.
        public var width, height: Double

        /// Creates a place. A document without it is refused when it is read.
        public init(page: Int, x: Double, y: Double, width: Double, height: Double) {
            (self.page, self.x, self.y, self.width, self.height) = (page, x, y, width, height)
        }
    }

    /// The full name of an existing empty signature field; `nil` for a new field. One that has a rectangle on a page shows the name
    /// of the signer, the time and the reason there.
    public var field: String?
    /// The place where a new field shows them; `nil` for an invisible one. An existing field has its own place.
    public var visible: Place?
    /// The name of the person who signs, for readers to show; `nil` for that of the certificate. A host that signs for a person says here
    /// for whom.
    public var name: String?
    /// Why the person signs, for readers to show.
    public var reason: String?
    /// The place of the signature, for readers to show.
    public var location: String?

    /// Creates details; by default a new field, which is invisible, and no texts.
    public init(
        field: String? = nil, visible: Place? = nil, name: String? = nil, reason: String? = nil,
        location: String? = nil
    ) {
        (self.visible, self.name) = (visible, name)
        (self.field, self.reason, self.location) = (field, reason, location)
    }
}

/// A PDF whose structure has been read: it can be signed. No key was needed for that.
///
/// It has the bytes that were read. A file that changes later is not signed unseen.
public struct PDFToSign: Sendable {
    let document: SignableDocument
    /// ``PDFSignatureDetails/name``.
    let name: String?
    private let memory: SigningContent
    /// The bytes of a file or pipe.
    private let spool: ContentSpool?

    /// Reads a document, and what a signature needs of it. Blocks.
    ///
    /// - Parameters:
    ///   - content: A copy of a file or pipe is made, in a temporary file without a name.
    ///   - details: Of the signature.
    ///   - hasTimeStamp: Whether it will have a time stamp; a field of the document may require one.
    ///   - directory: For the temporary file.
    /// - Throws: `documentNotSignable` with the reason, also for a page or rectangle that is not there; `configurationInvalid` for a
    ///   rectangle that is too small, or beside a field; `malformedData` for a document that other programs would have to repair;
    ///   `storeReadFailed` and `storeWriteFailed`.
    public init(
        _ content: SigningContent, _ details: PDFSignatureDetails = .init(), hasTimeStamp: Bool,
        directory: String = "/tmp"
    ) throws(ProviderError) {
        name = details.name
        let place = details.visible.map {
            (page: $0.page, rectangle: PDFRectangle(x: $0.x, y: $0.y, width: $0.width, height: $0.height))
        }
        let request = PDFSignatureRequest(
            field: details.field, place: place, reason: details.reason, location: details.location,
            hasTimeStamp: hasTimeStamp)
        if let bytes = content.memory {
            (memory, spool) = (content, nil)
            document = try SignableDocument(PDFSource(bytes), request)
        } else {
            let spool = try ContentSpool(in: directory)
            try content.read { piece throws(ProviderError) in try spool.append(piece) }
            (memory, self.spool) = (SigningContent([]), spool)
            document = try SignableDocument(try spool.pdfSource(), request)
        }
    }

    /// Notes for a person about the document before it is signed, as clauses without subject: scripts, changes after an earlier
    /// signature, and text fields that show another text than their value. Blocks.
    package func notes() -> [String] {
        guard let source = try? self.source(), let read = try? PDFSignatures(source) else {
            return []
        }
        var notes = read.hasScripts ? ["has scripts, which may change its pages"] : []
        for signature in read.signatures {
            switch signature.later?.change {
            case .formValues: notes.append("has other form values than when \(signature.field) was signed")
            case .other:
                notes.append(
                    "was changed after the signature \(signature.field) (\(signature.later?.reason ?? "")); look at it before you sign"
                )
            default: break
            }
        }
        let differing = FieldAppearances.differing(in: source)
        if let first = differing.first {
            let more = differing.count > 1 ? " and \(differing.count - 1) more" : ""
            notes.append(
                "may show another text in its field \(first)\(more) than the value that programs read; look at both")
        }
        return notes.map(\.withVisibleControls)
    }

    /// The bytes, from their start. Valid as long as this.
    var content: SigningContent { spool?.content() ?? memory }

    /// The bytes as a document. Valid as long as this.
    ///
    /// - Throws: `malformedData`.
    func source() throws(ProviderError) -> PDFSource {
        if let spool { try spool.pdfSource() } else { try memory.pdfSource() }
    }

    /// How many pages the document says that it has; `nil` if it does not say so in a usual way.
    package var claimedPages: Int? { document.claimedPages }
}
