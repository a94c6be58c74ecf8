import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import PDFUpdate

/// Updates with validation data behind a signature.
@Suite struct ValidationDataUpdateTests {
    private static let old = "<< /Type /DSS /Certs [4 0 R] /OCSPs 5 0 R >>"
    private static let more = [4: "<< /Length 1 >>\nstream\na\nendstream", 5: "[4 0 R]"]

    static let documents: [[UInt8]] = [
        Documents.table(), Documents.stream(), Documents.stream(compressed: [1, 2, 3]),
        Array(Documents.table().dropLast()),
        Documents.table(Documents.objects(catalog: "/DSS \(old)", more)),
        Documents.stream(
            Documents.objects(catalog: "/DSS 6 0 R", more.merging([6: old]) { $1 }), compressed: [1, 5, 6]),
    ]

    private func signed(_ document: [UInt8]) throws -> [UInt8] {
        let update = try PDFSignatureUpdate(
            of: try SignableDocument(PDFSource(document), PDFSignatureRequest()), by: "Signer",
            date: Date(timeIntervalSince1970: 1_795_000_000), room: 100)
        return document + (try update.filled(with: [0x30, 0x03, 0x02, 0x01, 0x07]))
    }

    @Test(
        "The data is in the store, what was there stays, and it counts as signatures to the verifier",
        arguments: documents)
    func everyKind(document: [UInt8]) throws {
        let file = try signed(document)
        let data: [[UInt8]] = [[1, 2, 3], [], Array("endstream endobj".utf8)]
        let update = try PDFValidationDataUpdate(
            of: PDFSource(document).appending(Array(file[document.count...])), certificates: data,
            revocationLists: [[4]],
            ocspAnswers: [[5], [6]])
        let whole = file + update.bytes
        var reader = try PDFReader(PDFSource(whole))
        try reader.readSections()
        let catalog = try reader.catalog()
        let store = try #require(try reader.entry("DSS", of: catalog, as: .dictionary)?.place)
        let hadStore = String(decoding: document, as: UTF8.self).contains("/DSS")
        for (name, expected) in [("Certs", data), ("CRLs", [[4]]), ("OCSPs", [[5], [6]])] {
            let list = try #require(try reader.entry(name, of: store, as: .array))
            let streams = try list.value.map { value in
                let stream = try #require(try reader.resolve(value, in: list.place.object))
                return try reader.decodedStream(of: stream.object)
            }
            let before: [[UInt8]] = hadStore && name != "CRLs" ? [[0x61]] : []
            #expect(streams == before + expected)
        }
        let signature = try #require(try PDFSignatures(PDFSource(whole)).signatures.first)
        #expect(signature.later?.change == .signatures && signature.later?.count == 1, "\(signature)")
        // And a signature behind it.
        let again = try PDFSignatures(PDFSource(try signed(whole))).signatures
        #expect(again.map { $0.later?.change } == [.signatures, .nothing] && again.map { $0.later?.count } == [2, 0])
        let folder = try TemporaryDirectory()
        try Subprocess.run(["qpdf", "--check", try folder.write(whole, to: "whole.pdf")])
    }

    @Test("A source with bytes behind it reads across the seam")
    func seam() throws {
        let source = PDFSource([0, 1, 2]).appending([3, 4]).appending([5])
        #expect(source.count == 6)
        for start in 0...6 {
            for end in start...6 { #expect(try source.bytes(start..<end) == (start..<end).map { UInt8($0) }) }
        }
    }
}
