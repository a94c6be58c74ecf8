import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import PDFUpdate

/// Updates of a signed document: shown content that came later is never taken for signed.
@Suite struct LaterRevisionsTests {
    private typealias Change = PDFLaterRevisions.Change

    private static func stream(_ text: String, _ entries: String = "") -> String {
        "<< /Length \(text.utf8.count) \(entries) >>\nstream\n\(text)\nendstream"
    }

    private static let form = "/AcroForm << /Fields [6 0 R 13 0 R] /DR << /Font << /F 5 0 R >> >> >>"
    private static let layers = "/OCProperties << /OCGs [8 0 R] /D << /OFF [8 0 R] >> >>"
    private static let page =
        "/Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Resources << /Font << /F 5 0 R >> /XObject << /X 40 0 R /Y 9 0 R >> >>"
    private static let text = "/Type /Annot /Subtype /Widget /FT /Tx /T (amount) /Rect [0 0 90 20] /P 3 0 R"

    /// A document with all that an attacker can prepare: a layer that is off, a stream whose length is an object, a name without an object.
    private static let document = Documents.table([
        1: "<< /Type /Catalog /Pages 2 0 R \(form) \(layers) >>", 2: "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        3: "<< \(page) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R] >>", 4: stream("0 0 50 50 re f"),
        5: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        6: "<< \(text) /V (1) /AP << /N 7 0 R >> >>",
        7: stream("BT (1) Tj ET", "/Type /XObject /Subtype /Form /BBox [0 0 90 20]"), 8: "<< /Type /OCG /Name (x) >>",
        9:
            "<< /Length 11 0 R /Type /XObject /Subtype /Form /BBox [0 0 90 20] >>\nstream\n0 0 9 9 re f 0 0 99 99 re f\nendstream",
        10: "<< /Type /Annot /Subtype /FreeText /F 2 /Rect [0 0 9 9] /Contents (pay 1) >>", 11: "27",
        12: stream("0 0 180 180 re f"),
        13: "<< /Type /Annot /Subtype /Widget /FT /Sig /T (S) /Rect [0 0 9 9] /P 3 0 R >>",
    ])

    /// An earlier signature locks a field, and refers to the catalog.
    private static let locked = Documents.table([
        1: "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [6 0 R] >> >>",
        2: "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        3: "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] >>", 6: "<< /FT /Sig /T (locks) /V 7 0 R >>",
        7:
            "<< /Type /Sig /Reference [<< /TransformMethod /FieldMDP /TransformParams << /Action /Include /Fields [(a)] >> /Data 1 0 R >>] >>",
    ])

    private static let signature = "<< /Type /Sig /SubFilter /ETSI.CAdES.detached /Contents <00> >>"
    private static func catalog(_ more: String, form: String = form, layers: String = layers) -> String {
        "<< /Type /Catalog /Pages 2 0 R \(form) \(layers) \(more) >>"
    }

    static let updates: [(name: String, objects: [Int: String], change: Int)] = [
        ("nothing", [50: "null"], 1),
        ("validation data", [1: catalog("/DSS 50 0 R"), 50: "<< >>"], 1),
        ("metadata", [1: catalog("/Metadata 50 0 R"), 50: stream("<x/>")], 1),
        (
            "an empty field with a signature of nothing",
            [
                13:
                    "<< /Type /Annot /Subtype /Widget /FT /Sig /T (S) /Rect [0 0 9 9] /P 3 0 R /V 50 0 R /AP << /N 51 0 R >> /F 132 >>",
                50: signature, 51: stream("q Q"),
            ], 3
        ),
        (
            "an empty field that moves when it is signed",
            [
                13: "<< /Type /Annot /Subtype /Widget /FT /Sig /T (S) /Rect [0 0 200 200] /P 3 0 R /V 50 0 R >>",
                50: signature,
            ], 3
        ),
        (
            "numbers that are written anew",
            [
                3:
                    "<< \(page.replacing("0 0 200", with: "0.0 -.0 200.00")) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R] >>"
            ], 1
        ),
        ("a value", [6: "<< \(text) /V (2) /AP << /N 51 0 R >> >>", 51: stream("BT (2) Tj ET")], 2),
        (
            "an appearance without a value",
            [6: "<< \(text) /V (1) /AP << /N 51 0 R >> >>", 51: stream("BT (2) Tj ET")], 3
        ),
        ("the appearance in its place", [7: stream("BT (2) Tj ET")], 3),
        ("a field's flags", [6: "<< \(text) /V (1) /AP << /N 7 0 R >> /F 2 >>"], 3),
        (
            "a field's place",
            [6: "<< \(text.replacing("[0 0 90 20]", with: "[0 0 90 90]")) /V (2) /AP << /N 7 0 R >> >>"], 3
        ),
        ("the content of a page", [4: stream("0 0 60 60 re f")], 3),
        ("the prepared content", [3: "<< \(page) /Contents 12 0 R /Annots [6 0 R 10 0 R 13 0 R] >>"], 3),
        ("one more content", [3: "<< \(page) /Contents [4 0 R 12 0 R] /Annots [6 0 R 10 0 R 13 0 R] >>"], 3),
        ("the object of a name without one", [40: stream("0 0 60 60 re f")], 3),
        ("the length of a stream", [11: "12"], 3),
        ("a font", [5: "<< /Type /Font /Subtype /Type3 >>"], 3),
        (
            "the place of an annotation, written anew",
            [10: "<< /Type /Annot /Subtype /FreeText /F 2 /Rect [0 0.0 9 9.] /Contents (pay 1) >>"], 1
        ),
        (
            "a flag as a real number, which readers ignore",
            [10: "<< /Type /Annot /Subtype /FreeText /F 2.0 /Rect [0 0 9 9] /Contents (pay 1) >>"], 3
        ),
        ("an annotation", [10: "<< /Type /Annot /Subtype /FreeText /F 2 /Rect [0 0 9 9] /Contents (pay 2) >>"], 3),
        ("an annotation less", [3: "<< \(page) /Contents 4 0 R /Annots [6 0 R] >>"], 3),
        (
            "one more annotation",
            [
                3: "<< \(page) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R 50 0 R] >>",
                50: "<< /Type /Annot /Subtype /FreeText /Rect [0 0 200 200] >>",
            ], 3
        ),
        ("a layer", [1: catalog("", layers: "/OCProperties << /OCGs [8 0 R] /D << >> >>")], 3),
        ("a script", [1: catalog("/OpenAction << /S /JavaScript /JS (x) >>")], 3),
        (
            "one more page",
            [
                2: "<< /Type /Pages /Kids [3 0 R 50 0 R] /Count 2 >>",
                50: "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
            ], 3
        ),
        (
            "the size of a page",
            [
                3:
                    "<< \(page.replacing("0 0 200 200", with: "0 0 90 90")) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R] >>"
            ], 3
        ),
        (
            "a field that is none of a signature",
            [
                1: catalog("", form: form.replacing("13 0 R]", with: "13 0 R 50 0 R]")),
                50: "<< /FT /Tx /T (new) /V (x) >>",
            ], 3
        ),
        (
            "an unsigned field with an appearance",
            [
                1: catalog("", form: form.replacing("13 0 R]", with: "13 0 R 50 0 R]")),
                3: "<< \(page) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R 50 0 R] >>",
                50: "<< /FT /Sig /T (new) /Rect [0 0 200 200] /AP << /N 12 0 R >> >>",
            ], 3
        ),
        (
            "a field with a signature of nothing",
            [
                1: catalog("", form: form.replacing("13 0 R]", with: "13 0 R 50 0 R]")),
                3: "<< \(page) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R 50 0 R] >>",
                50: "<< /FT /Sig /T (new) /Rect [0 0 0 0] /V 51 0 R >>", 51: signature,
            ], 3
        ),
        (
            "a signed field before others",
            [
                1: catalog("", form: form.replacing("[6 0 R", with: "[50 0 R 6 0 R")),
                50: "<< /FT /Sig /T (new) /V 51 0 R >>", 51: signature,
            ], 3
        ),
        ("fields of the form that are gone", [1: catalog("", form: "/AcroForm << /Fields [6 0 R] >>")], 3),
        (
            "a field of another kind, which a viewer draws",
            [
                1: catalog("", form: form.replacing("13 0 R]", with: "13 0 R 50 0 R]")),
                3: "<< \(page) /Contents 4 0 R /Annots [6 0 R 10 0 R 13 0 R 50 0 R] >>",
                50: "<< /Subtype /FreeText /FT /Sig /T (new) /Rect [0 0 200 200] /Contents (pay 2) >>",
            ], 3
        ),
        (
            "the flags of the form, in an object",
            [1: catalog("", form: form.replacing("/DR", with: "/SigFlags 50 0 R /DR")), 50: "3"], 3
        ),
        ("the flags of the form", [1: catalog("", form: form.replacing("/DR", with: "/SigFlags 3 /DR"))], 1),
        ("a version", [1: catalog("/Version /1.7")], 1), ("an odd version", [1: catalog("/Version /x")], 3),
        ("validation data that is not there", [1: catalog("/DSS 55 0 R")], 3),
        ("a dictionary with two values", [4: stream("0 0 50 50 re f", "/Length 3")], 3),
    ]

    @Test("Each change counts as what it is, in a table and in a stream", arguments: updates)
    func changes(name: String, objects: [Int: String], change: Int) throws {
        let later = try PDFSignatures(PDFSource(Documents.updated(Self.document, objects))).later(
            after: Self.document.count)
        #expect(later.change.rawValue == change, "\(name): \(later.reason ?? "")")
        #expect((later.reason != nil) == (change > 1) && later.count == 1, "\(name): \(later)")
    }

    @Test("Another catalog, a document of another beginning, and bytes behind the last revision")
    func ends() throws {
        let document = Self.document
        let updated = Documents.updated(document, [50: "<< /Type /Catalog /Pages 2 0 R >>"])
        let place = try #require(Data(updated).range(of: Data("/Root 1 0 R".utf8), options: .backwards))
        let other = updated[..<place.lowerBound] + Array("/Root 50 0 R".utf8) + updated[place.upperBound...]
        #expect(try PDFSignatures(PDFSource(Array(other))).later(after: document.count).change == .other)
        #expect(try PDFSignatures(PDFSource(document)).later(after: document.count - 40).change == .other)
        let whole = try PDFSignatures(PDFSource(document)).later(after: document.count)
        #expect(whole.change == .nothing && whole.count == 0)
        for end in ["% x\n", "4 0 obj\nnull\nendobj\n", "%%EOF\n"] {
            let more = try PDFSignatures(PDFSource(document + Array(end.utf8))).later(after: document.count)
            #expect(more.change == .other && more.count == 0, "\(end)")
        }
        let line = try PDFSignatures(PDFSource(document + [0x0a])).later(after: document.count)
        #expect(line.change == .signatures && line.count == 0)
        // Objects that no entry names, where a reader that repairs the file looks for them; and what makes it repair.
        let withObject = Documents.updated(document, [50: "null"])
        let update = String(decoding: withObject[document.count...], as: UTF8.self)
        func change(_ text: String) -> Change {
            (try? PDFSignatures(PDFSource(document + Array(text.utf8))).later(after: document.count))?.change ?? .other
        }
        #expect(change(update) == .signatures)
        let (one, more) = ("50 0 obj\nnull\nendobj\n", "4 0 obj\nnull\nendobj\n")
        let start = try #require(update.split(separator: "\n").dropLast().last)
        let dead = update.replacing(one, with: one + more).replacing(
            "startxref\n\(start)\n", with: "startxref\n\((Int(start) ?? 0) + more.utf8.count)\n")
        #expect(dead != update && change(dead) == .other)
        for (old, new) in [
            ("startxref\n", "startxref % 1\n"), ("xref\n50", "xref %\n50"), ("/Size 64", "/Size 20"),
            ("/Size 64", "/Size 6.5"),
            ("endobj\nxref", "endobj % x\nxref"), ("%%EOF\n", "%%EOX\n"),
        ] {
            let place = try #require(update.range(of: old, options: .backwards))
            #expect(change(update.replacingCharacters(in: place, with: new)) == .other, "\(new)")
        }
    }

    @Test("A document that is signed again has only signatures added, whatever kind of sections it has")
    func signedAgain() throws {
        for document in [
            Documents.table(), Documents.stream(), Documents.stream(compressed: [1, 2, 3]), Self.document, Self.locked,
        ] {
            var file = document
            for _ in 0..<3 {
                let update = try PDFSignatureUpdate(
                    of: try SignableDocument(PDFSource(file), PDFSignatureRequest()), by: "Signer",
                    date: Date(timeIntervalSince1970: 1_795_000_000), room: 100)
                file += try update.filled(with: [0x30, 0x03, 0x02, 0x01, 0x07])
            }
            let later = try PDFSignatures(PDFSource(file)).later(after: document.count)
            #expect(later.change == .signatures && later.count == 3, "\(later)")
            let signatures = try PDFSignatures(PDFSource(file)).signatures.suffix(3)
            #expect(signatures.count == 3 && signatures.allSatisfy { $0.problem == nil && $0.contents.count == 5 })
            #expect(signatures.map { $0.later?.count } == [2, 1, 0])
            #expect(signatures.map { $0.later?.change } == [.signatures, .signatures, .nothing])
        }
    }

    @Test("Ranges that leave out more than the signature's own value are not accepted")
    func ranges() throws {
        let document = Documents.table()
        let update = try PDFSignatureUpdate(
            of: try SignableDocument(PDFSource(document), PDFSignatureRequest()), by: "Signer",
            date: Date(timeIntervalSince1970: 1_795_000_000), room: 100)
        let file = document + (try update.filled(with: [0x30, 0x03, 0x02, 0x01, 0x07]))
        func problem(_ range: [Int], _ bytes: [UInt8] = file) throws -> String? {
            let old = "/ByteRange [" + update.byteRange.map(String.init).joined(separator: " ")
            let new = "/ByteRange [" + range.map(String.init).joined(separator: " ")
            let place = try #require(Data(bytes).range(of: Data(old.utf8)))
            var changed = bytes
            let text = new + String(repeating: " ", count: max(0, old.utf8.count - new.utf8.count))
            changed.replaceSubrange(place, with: Array(text.utf8.prefix(old.utf8.count)))
            return try PDFSignatures(PDFSource(changed)).signatures.first?.problem
        }
        let right = update.byteRange
        #expect(try problem(right) == nil)
        for wrong in [
            [right[0], right[1] - 1, right[2], right[3]], [right[0], right[1], right[2] + 1, right[3] - 1],
            [right[0], 9, right[2], right[3]], [1, right[1] - 1, right[2], right[3]], [right[0], right[1], right[2]],
            [0, 0, right[2], right[3]], [0, right[1], right[1], right[3]],
        ] {
            #expect(try problem(wrong) != nil, "\(wrong)")
        }
        // The value of another place.
        let text = Data(file)
        let gap = try #require(text.range(of: Data("/Contents <".utf8)))
        var moved = file
        moved.replaceSubrange(gap, with: Array("/Kontents <".utf8))
        #expect(try PDFSignatures(PDFSource(moved)).signatures.first?.problem != nil)
        for (bytes, isWhole) in [
            ([0x30, 0x80, 0x02, 0x01, 0x07, 0, 0] as [UInt8], true), ([0x30, 0x80, 0x02, 0x7f, 0x07], false),
            ([0x30, 0x03, 0x02, 0x01, 0x07, 0x01], false), ([0x31, 0x00], false),
            ([0x30, 0x84, 0xff, 0xff, 0xff, 0xff], false),
        ] {
            let file = document + (try update.filled(with: bytes))
            #expect(try (PDFSignatures(PDFSource(file)).signatures.first?.problem == nil) == isWhole, "\(bytes)")
        }
    }
}
