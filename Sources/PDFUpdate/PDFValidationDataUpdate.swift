package import CertificateProviding

/// The bytes that are appended to a signed document, with what verifies its signatures when the servers of the CAs are gone: entries of the
/// document security store (ISO 32000-2, 12.8.4.3; EN 319 142-1, 5.4.2).
///
/// There is no `/VRI`: all data is for all signatures. The store keeps the entries that it has already.
package struct PDFValidationDataUpdate: Sendable {
    /// The bytes that follow the document.
    package let bytes: [UInt8]

    /// Writes the update.
    ///
    /// - Parameters:
    ///   - source: The document, with the signature.
    ///   - certificates: Each DER, as are revocation lists and the OCSPResponses.
    /// - Throws: `documentNotSignable` when the result has too many bytes; `malformedData` for a store that another reader would have to repair.
    package init(
        of source: PDFSource, certificates: [[UInt8]], revocationLists: [[UInt8]], ocspAnswers: [[UInt8]]
    ) throws(ProviderError) {
        var reader = try PDFReader(source)
        var base = try UpdateBase(&reader)
        base.gaps = []
        let store = try reader.entry("DSS", of: base.catalog, as: .dictionary)?.place
        var (splices, new, writer) = (Splices(), "", UpdateWriter(base))
        var number = base.nextNumber
        for (name, values) in [("Certs", certificates), ("CRLs", revocationLists), ("OCSPs", ocspAnswers)]
        where !values.isEmpty {
            var references: [String] = []
            for value in values {
                references.append("\(number) 0 R")
                writer.begin(PDFReference(number: number, generation: 0))
                writer.write("<< /Length \(value.count) >>\nstream\n")
                writer.bytes += value
                writer.write("\nendstream")
                writer.end()
                number += 1
            }
            let list = references.joined(separator: " ")
            new += " /\(name) [\(list)]"
            if let store { try splices.append(Array(list.utf8), to: name, of: store, &reader) }
        }
        if store == nil { try splices.set("DSS", to: Array("<< /Type /DSS\(new) >>".utf8), of: base.catalog) }
        writer.write(splices.changedObjects)
        writer.writeSection()
        guard base.size + writer.bytes.count <= SignableDocument.maximumSize else { throw SignableDocument.tooLarge }
        bytes = writer.bytes
    }
}
