import CertificateProviding
import Foundation
import Signing
import Testing

@testable import PDFUpdate

/// Text fields whose appearance and value differ.
@Suite struct FieldAppearanceTests {
    private static func document(_ field: String, _ content: String, form: String = "", stream: String = "") -> [UInt8]
    {
        Documents.table([
            1: "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [5 0 R] \(form) >> >>",
            2: "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            3: "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Annots [5 0 R] >>",
            5: "<< /Type /Annot /Subtype /Widget /FT /Tx /T (amount) /Rect [0 0 90 20] /AP << /N 6 0 R >> \(field) >>",
            6: "<< \(stream) /Length \(content.utf8.count) >>\nstream\n\(content)\nendstream",
        ])
    }

    static let fields: [(field: String, content: String, differs: Bool)] = [
        ("/V (1000000)", "0 0 99 99 re f", true), ("/V (1000000)", "BT (1) Tj ET", true),
        ("/V (1)", "BT (1000000) Tj ET", true), ("/V (1)", "BT (100) Tj ET", true), ("", "BT (pay) Tj ET", true),
        ("/V (pay 1)", "BT (pay 1) Tj (more) ' ET", true), ("/V 7 0 R", "BT (pay) Tj ET", true),
        ("", "", false), ("", "/Tx BMC EMC", false), ("/V ()", "q 0 0 9 9 re W n Q", false),
        ("/V (pay 1)", "/Tx BMC q BT /F 9 Tf 2 0 Td (pay 1) Tj ET Q EMC", false),
        // Lines, single characters, kerning, octal and hexadecimal strings, UTF-16.
        ("/V (one two\\nthree)", "BT (one) Tj T* (two ) Tj (three) ' ET", false),
        ("/V (1234)", "BT (1) Tj (2) Tj (3) Tj (4) Tj ET", false),
        ("/V (pay)", "BT [(p) -20 (\\141) 10.5 <79>] TJ ET", false), ("/V <FEFF007000E9>", "BT (p\\351) Tj ET", false),
        // Numbers as the country writes them.
        ("/V (1)", "BT (1.00) Tj ET", false), ("/V (302.8)", "BT (302,80 ) Tj ET", false),
        ("/V (232324)", "BT ($ 232,324.00) Tj ET", false),
        // Asterisks, glyphs of a font by their numbers, a value of another kind.
        ("/V (secret) /Ff 8192", "BT (******) Tj ET", false), ("/V (pay)", "BT <0001000200030004> Tj ET", false),
        ("/V /Name", "BT (x) Tj ET", false),
    ]

    @Test("A text field that shows another text than its value is noted before a signature", arguments: fields)
    func differing(field: String, content: String, differs: Bool) throws {
        let document = Self.document(field, content)
        #expect(FieldAppearances.differing(in: PDFSource(document)) == (differs ? ["amount"] : []))
        let notes = try PDFToSign(SigningContent(document), hasTimeStamp: false).notes()
        #expect(notes.count { $0.contains("in its field amount") } == (differs ? 1 : 0), "\(notes)")
    }

    @Test("A blank appearance that readers draw anew is not noted, and one that cannot be read neither")
    func redrawn() {
        func names(_ field: String, _ content: String, form: String = "", stream: String = "") -> [String] {
            FieldAppearances.differing(
                in: PDFSource(Self.document(field, content, form: form, stream: stream)))
        }
        let need = "/NeedAppearances true"
        #expect(names("/V (Alice)", "", form: need).isEmpty && !names("/V (Alice)", "").isEmpty)
        #expect(!names("/V (Alice)", "BT (Bob) Tj ET", form: need).isEmpty)
        #expect(names("/V (Alice)", "BT (Bob) Tj ET", stream: "/Filter /ASCIIHexDecode").isEmpty)
        #expect(names("/V (Alice) /V (Bob)", "BT (Bob) Tj ) ET").isEmpty)
    }
}
