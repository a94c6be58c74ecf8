public import CertificateProviding
import PDFUpdate
import SignedData

extension Signer {
    /// The room for a time stamp, in bytes.
    private static let timeStampRoom = 16 << 10

    /// Returns a PDF with a signature (ISO 32000-2; EN 319 142-1, level B-B, and B-T with a time stamp). The document is its beginning.
    ///
    /// Suspends for as long as the key and the time-stamp server take.
    ///
    /// - Throws: `documentNotSignable` and `malformedData` for the document, before the key is used; `unsupportedAlgorithm` for
    ///   Ed25519, which readers of PDF do not verify; `keyMismatch` for a signature that does not verify, errors of the key, and
    ///   those of ``TimeStampServer``.
    public func signedPDF(
        of document: [UInt8], _ details: PDFSignatureDetails = .init()
    ) async throws(ProviderError) -> [UInt8] {
        let pdf = try PDFToSign(SigningContent(document), details, hasTimeStamp: timeStamps != nil)
        return document + (try await pdfUpdate(of: pdf, hold: { _ in }, source: { PDFSource(document) }))
    }

    /// Writes a PDF with a signature. The document is copied into a temporary file without a name until the signature is there.
    ///
    /// - Parameters:
    ///   - spool: Holds the document, so that the bytes that are signed are written, even if the file changes.
    ///   - write: Writes bytes to the result, after all that can fail.
    package func signPDF(
        _ pdf: PDFToSign, spool: ContentSpool,
        write: @escaping @Sendable (UnsafeRawBufferPointer) throws(ProviderError) -> Void
    ) async throws(ProviderError) {
        let update = try await pdfUpdate(
            of: pdf, hold: { (piece) throws(ProviderError) in try spool.append(piece) },
            source: { () throws(ProviderError) in try spool.pdfSource() })
        try await executor.run { () throws(ProviderError) in
            try spool.content().read(write)
            try SigningContent(update).read(write)
        }
    }

    /// Reads the document once, signs it, and returns what follows it.
    private func pdfUpdate(
        of pdf: PDFToSign, hold: @escaping @Sendable (UnsafeRawBufferPointer) throws(ProviderError) -> Void,
        source: @escaping @Sendable () throws(ProviderError) -> PDFSource
    ) async throws(ProviderError) -> [UInt8] {
        guard scheme != .ed25519 else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "Readers of PDF do not verify Ed25519. Sign with an identity whose key is EC or RSA, or use CMS.",
                provider: identity.provenance.provider)
        }
        let signer = try cmsSigner()
        // Readers take the time from /M (EN 319 142-1, 6.3).
        let attributes: [CMSSignerAttribute] = [.signingCertificate(identity.certificate)]
        let room = signer.maximumSize(attributes: attributes) + (timeStamps == nil ? 0 : Self.timeStampRoom)
        let (algorithm, date) = (signer.digestAlgorithm, now())
        let (update, digest) = try await executor.run {
            () throws(ProviderError) -> (PDFSignatureUpdate, [UInt8]) in
            var update: PDFSignatureUpdate?
            let digest = try pdf.content.digest(by: algorithm, copy: hold) { () throws(ProviderError) in
                let new = try PDFSignatureUpdate(
                    of: try SignableDocument(try source(), pdf.request), date: date, room: room)
                update = new
                return Array(new.bytes[..<new.contents.lowerBound]) + new.bytes[new.contents.upperBound...]
            }
            guard let update else { throw ProviderError(.internal, "The PDF has no update. Report this.") }
            return (update, digest)
        }
        return try update.filled(
            with: try await signature(by: signer, ofDigest: digest, attributes: attributes).derRepresentation())
    }
}
