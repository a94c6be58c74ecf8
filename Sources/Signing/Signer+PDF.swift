public import CertificateProviding
import PDFUpdate
import SignedData

extension Signer {
    /// The room for a time stamp, in bytes.
    private static let timeStampRoom = 16 << 10

    /// Returns a PDF with a signature (ISO 32000-2; EN 319 142-1): level B-B, with a time stamp B-T, with validation data B-LT. The document is
    /// its beginning.
    ///
    /// Suspends for as long as the key and the time-stamp server take.
    ///
    /// - Throws: `documentNotSignable` and `malformedData` for the document, before the key is used; `unsupportedAlgorithm` for
    ///   Ed25519, which readers of PDF do not verify; `keyMismatch` for a signature that does not verify, errors of the key, and
    ///   those of ``TimeStampServer``; for level B-LT those with the reason `validationData`.
    public func signedPDF(
        of document: [UInt8], _ details: PDFSignatureDetails = .init()
    ) async throws(ProviderError) -> [UInt8] {
        let pdf = try PDFToSign(SigningContent(document), details, hasTimeStamp: timeStamps != nil)
        return document + (try await pdfUpdate(of: pdf))
    }

    /// Writes a PDF with a signature.
    ///
    /// - Parameter write: Writes bytes to the result, after all that can fail.
    package func signPDF(
        _ pdf: PDFToSign, write: @escaping @Sendable (UnsafeRawBufferPointer) throws(ProviderError) -> Void
    ) async throws(ProviderError) {
        let update = try await pdfUpdate(of: pdf)
        try await executor.run { () throws(ProviderError) in
            try pdf.content.read(write)
            try SigningContent(update).read(write)
        }
    }

    /// Signs a document, and returns what follows it.
    private func pdfUpdate(of pdf: PDFToSign) async throws(ProviderError) -> [UInt8] {
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
        let (algorithm, date, name) = (signer.digestAlgorithm, now(), pdf.name ?? identity.certificate.signerName)
        let (update, digest) = try await executor.run {
            () throws(ProviderError) -> (PDFSignatureUpdate, [UInt8]) in
            let update = try PDFSignatureUpdate(of: pdf.document, by: name, date: date, room: room)
            let rest = update.bytes[..<update.contents.lowerBound] + update.bytes[update.contents.upperBound...]
            return (update, try pdf.content.digest(by: algorithm, rest: Array(rest)))
        }
        let (signature, data) = try await signature(by: signer, ofDigest: digest, attributes: attributes)
        let filled = try update.filled(with: signature.derRepresentation())
        guard let data else { return filled }
        return try await executor.run { () throws(ProviderError) in
            let more = try PDFValidationDataUpdate(
                of: pdf.source().appending(filled), certificates: data.certificates,
                revocationLists: data.revocationLists, ocspAnswers: data.ocspAnswers)
            return filled + more.bytes
        }
    }
}

extension X509Certificate {
    /// The name that readers show: the common name, or all of the subject where there is none or several.
    fileprivate var signerName: String {
        let names = commonNames.filter { !$0.isEmpty }
        return names.count == 1 ? names[0] : displayName
    }
}
