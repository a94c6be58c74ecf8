import CertificateProviding
import Foundation
import Signing
import TestSupport
import Testing

@testable import PDFUpdate

/// Visible signatures as poppler draws them: who signed is read in the rectangle, and nothing outside of it changes.
@Suite(.enabled(if: TestLength.hasSeconds)) struct VisibleSignatureTests {
    /// A page that is drawn on everywhere, and one without a content.
    static func document(
        root: String = "", page: String = "", catalog: String = "", _ more: Documents.Objects = [:]
    ) -> [UInt8] {
        let content = (0..<20).map { "\($0 * 10) 0 m 200 \($0 * 10) l S" }.joined(separator: " ")
        return Documents.table(
            Documents.objects(catalog: catalog, page: "/Contents 9 0 R \(page)", more).merging([
                2: "<< /Type /Pages /Kids [3 0 R 10 0 R] /Count 2 \(root) >>",
                9: "<< /Length \(content.utf8.count) >>\nstream\n\(content)\nendstream",
                10: "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] >>",
            ]) { $1 })
    }

    /// A form whose field has its widget as a kid, which names no page.
    static func kid(_ rectangle: String, root: String = "") -> [UInt8] {
        document(
            root: root, page: "/Annots [5 0 R]", catalog: "/AcroForm << /Fields [4 0 R] >>",
            [
                4: "<< /FT /Sig /T (Author) /Kids [5 0 R] >>",
                5: "<< /Type /Annot /Subtype /Widget /Parent 4 0 R /Rect [\(rectangle)] >>",
            ])
    }

    private struct Picture: Equatable {
        var width, height: Int
        var pixels: [UInt8]

        /// One pixel for each point, from the upper left corner.
        init(_ path: String, page: Int, in folder: TemporaryDirectory) throws {
            let name = UUID().uuidString
            try Subprocess.run(
                ["pdftoppm", "-gray", "-r", "72", "-cropbox", "-singlefile", "-f", "\(page)", path, folder[name]])
            let bytes = try folder.read(name + ".pgm")
            let numbers = String(decoding: bytes.prefix(20), as: UTF8.self).split(whereSeparator: \.isWhitespace)
            (width, height) = (try #require(Int(numbers[1])), try #require(Int(numbers[2])))
            pixels = Array(bytes.suffix(width * height))
        }

        /// The number of pixels that differ within a rectangle, and outside of it.
        func differences(from other: Picture, _ place: PDFSignatureDetails.Place) -> (inside: Int, outside: Int) {
            var (inside, outside) = (0, 0)
            for index in pixels.indices where pixels[index] != other.pixels[index] {
                let (x, y) = (Double(index % width) + 0.5, Double(height - index / width) - 0.5)
                let isInside = (place.x...(place.x + place.width)).contains(x)
                if isInside && (place.y...(place.y + place.height)).contains(y) { inside += 1 } else { outside += 1 }
            }
            return (inside, outside)
        }
    }

    private struct Case {
        var name: String
        var document: [UInt8]
        var details: PDFSignatureDetails
        /// As it is shown.
        var place: PDFSignatureDetails.Place
        var signer = "Zoë Example"
        var shown = "Zoë Example"
        /// A signature whose field has a widget of its own: to pdfsig it is none.
        var isKnownToPdfsig = true
    }

    private static let long = "Łukasz Иван the Director of the Department of very long names"
    private static let spelled =
        "[U+0141]ukasz [U+0418 0432 0430 043D] the Director of the Department of very long names"

    private static func cases(_ folder: TemporaryDirectory) throws -> [Case] {
        let author = PDFSignatureDetails(field: "Author", reason: "I agree (really)")
        let place = PDFSignatureDetails.Place(page: 1, x: 20, y: 10, width: 170, height: 60)
        func new(_ place: PDFSignatureDetails.Place) -> PDFSignatureDetails {
            PDFSignatureDetails(visible: place, reason: "I agree (really)")
        }
        var cases = [
            Case(name: "kid", document: kid("190 69.5 20.0 10"), details: author, place: place, isKnownToPdfsig: false),
            Case(
                name: "turned-kid", document: kid("140 10 190 190", root: "/Rotate 90"), details: author,
                place: .init(page: 1, x: 10, y: 10, width: 180, height: 50), isKnownToPdfsig: false),
            Case(
                name: "long", document: document(), details: new(place), place: place, signer: long, shown: spelled),
            Case(
                name: "small", document: document(), details: new(.init(page: 1, x: 5, y: 5, width: 60, height: 12)),
                place: .init(page: 1, x: 5, y: 5, width: 60, height: 12)),
            Case(
                name: "second", document: document(), details: new(.init(page: 2, x: 0, y: 0, width: 100, height: 40)),
                place: .init(page: 2, x: 0, y: 0, width: 100, height: 40)),
        ]
        for degrees in [0, 90, 180, 270, -90] {
            let cropped = document(root: "/CropBox [10 20 190 150] /Rotate \(degrees)")
            let place = PDFSignatureDetails.Place(page: 1, x: 5, y: 7, width: 120, height: 40)
            cases.append(Case(name: "turned\(degrees)", document: cropped, details: new(place), place: place))
        }
        for (name, bytes) in [("table", document()), ("stream", Documents.stream())] {
            let path = try folder.write(bytes, to: "\(name)-plain.pdf")
            try Verifiers.addFields(["1/20,10,190,70/Author"], to: path, as: folder[name + "-form.pdf"])
            let form = try folder.read(name + "-form.pdf")
            cases.append(Case(name: "hanko-" + name, document: form, details: author, place: place))
        }
        return cases
    }

    @Test(
        "Name, time and reason are read in the rectangle, upright, and no pixel outside of it changes; all programs find the signature valid",
        .enabled(if: Verifiers.hasHanko, "pyHanko is not installed: make .build/pyhanko/bin/pyhanko"))
    func eachIsDrawn() async throws {
        let (folder, authority, date) = (try TemporaryDirectory(), try TestAuthority(), Date())
        let time = date.formatted(.iso8601).replacing("T", with: " ").replacing("Z", with: " +00:00")
        let cases = try Self.cases(folder)
        for one in cases {
            let signer = try Signer(try authority.signer(one.signer), now: { date })
            try folder.write(one.document, to: one.name + ".pdf")
            try folder.write(try await signer.signedPDF(of: one.document, one.details), to: one.name + "-signed.pdf")
        }
        let paths = cases.map { folder[$0.name + "-signed.pdf"] }
        let verdicts = try Verifiers.hanko(paths, anchors: [authority.root], in: folder)
        for (one, path) in zip(cases, paths) {
            let original = folder[one.name + ".pdf"]
            let before = try Picture(original, page: one.place.page, in: folder)
            let after = try Picture(path, page: one.place.page, in: folder)
            let differences = after.differences(from: before, one.place)
            #expect(differences.inside > 50 && differences.outside == 0, "\(one.name): \(differences)")
            let output = try Subprocess(["pdftotext", "-layout", path, "-"], .captured(), seconds: 60).wait().stdout
            let text = output.split(whereSeparator: \.isWhitespace).joined(separator: " ")
            #expect(text.contains("\(one.shown) \(time) I agree (really)"), "\(one.name): \(text)")
            if one.isKnownToPdfsig {
                try Verifiers.expectValid(path, from: original, verdicts[path] ?? [], in: folder)
            } else {
                let verdict = verdicts[path]?.first
                #expect(verdict?.trusted == true && verdict?.coverage == "ENTIRE_FILE", "\(one.name): \(verdicts)")
                #expect(try Verifiers.qpdf(path).subtracting(try Verifiers.qpdf(original)).isEmpty)
            }
        }
    }

    @Test(
        "A second visible signature leaves the first one what it was, to pyHanko and here",
        .enabled(if: Verifiers.hasHanko, "pyHanko is not installed: make .build/pyhanko/bin/pyhanko"))
    func earlierSignatures() async throws {
        let (folder, authority) = (try TemporaryDirectory(), try TestAuthority())
        let signer = try Signer(try authority.signer("Signer"))
        let path = try folder.write(Documents.stream(), to: "plain.pdf")
        try Verifiers.addFields(["1/10,10,90,60/A", "1/100,10,190,60/Author"], to: path, as: folder["form.pdf"])
        // The widget that is a kid stays as it is.
        for (form, count) in [(try folder.read("form.pdf"), 3), (Self.kid("100 10 190 60"), 2)] {
            let place = PDFSignatureDetails.Place(page: 1, x: 10, y: 100, width: 100, height: 50)
            var signed = form
            for details in [PDFSignatureDetails(visible: place), .init(field: "Author"), .init(visible: place)] {
                signed = try await signer.signedPDF(of: signed, details)
            }
            #expect(signed.dropFirst(form.count).split(separator: Array("/Subtype /Form".utf8)).count == count + 1)
            let file = try folder.write(signed, to: "signed-\(count).pdf")
            let verdicts = try Verifiers.hanko([file], anchors: [authority.root], in: folder)[file] ?? []
            #expect(verdicts.count == 3 && verdicts.allSatisfy { $0.trusted == true && $0.docmdp == true })
            #expect(verdicts.prefix(2).allSatisfy { $0.level == "FORM_FILLING" }, "\(verdicts)")
            let own = try await SignatureVerifier(anchors: [authority.root]).pdf(SigningContent(signed))
            let changes: [SignatureVerdict.Coverage.Change?] = own.map { $0.coverage?.change }
            let (later, last) = (changes.filter { $0 == .signatures }.count, changes.filter { $0 == .nothing }.count)
            #expect(later == 2 && last == 1, "\(own)")
        }
    }
}

/// The update of a visible signature, its texts and its refusals.
@Suite struct VisibleFieldTests {
    private static func form(_ widget: String) -> [UInt8] {
        Documents.table(
            Documents.objects(
                catalog: "/AcroForm << /Fields [4 0 R] /SigFlags 3 >>", page: "/Annots [4 0 R]",
                [4: "<< /FT /Sig /T (A) \(widget) >>", 5: "<< /N 6 0 R >>"]))
    }

    static let widgets: [(widget: String, changed: String)] = [
        ("/Rect [0 0 99 50]", "/Rect [0 0 99 50]  /V 6 0 R /AP << /N 7 0 R >> /F 132>>"),
        ("/AP 5 0 R /Rect [0 0 99 50] /F 4", "/AP << /N 7 0 R >> /Rect [0 0 99 50] /F 4  /V 6 0 R>>"),
        ("/AP 5 0 R /Rect [0 0 99 50] /F 2", "/AP 5 0 R /Rect [0 0 99 50] /F 2  /V 6 0 R>>"),
        ("/AP 5 0 R /Rect [0 0 99 7]", "/AP 5 0 R /Rect [0 0 99 7]  /V 6 0 R>>"),
        ("/Rect [0 0 99 (x)]", "/Rect [0 0 99 (x)]  /V 6 0 R>>"), ("", "  /V 6 0 R>>"),
    ]

    @Test(
        "A field gets its value, and an appearance and flags where it is seen; nothing else changes", arguments: widgets
    )
    func existingField(widget: String, changed: String) throws {
        let text = try update(of: Self.form(widget), PDFSignatureRequest(field: "A"))
        #expect(text.contains("4 0 obj\n<< /FT /Sig /T (A) \(changed)\nendobj"), "\(text)")
        #expect(text.contains("/Subtype /Form") == changed.contains("7 0 R") && !text.contains("\n5 0 obj"))
        #expect(text.contains("/Name (Signer)"))
    }

    @Test("A place that is not on the page, too small, or beside a field is refused")
    func refusals() throws {
        let cases: [(PDFSignatureRequest, ProviderError.Code, String)] = [
            (request(2, 0, 0, 50, 50), .documentNotSignable, "no page 2 for a visible signature: it has 1."),
            (
                request(1, 0, 151, 50, 50), .documentNotSignable,
                "outside of page 1, which is 200 points wide and 200 high"
            ),
            (request(1, -1, 0, 50, 50), .documentNotSignable, "outside"),
            (request(1, .nan, 0, 50, 50), .documentNotSignable, "outside"),
            (request(1, 0, 0, .infinity, 50), .documentNotSignable, "outside"),
            (request(1, 0, 0, 50, 7), .configurationInvalid, "too small"),
            (request(1, 0, 0, -50, 50), .configurationInvalid, "too small"),
            (request(1, 0, 0, 50, 50, field: "A"), .configurationInvalid, "Name one of the two"),
        ]
        for (request, code, says) in cases {
            let found = failure { try SignableDocument(PDFSource(Self.form("")), request) }
            #expect(
                found?.code == code && found?.message.contains(says) == true, "\(says): \(String(describing: found))")
        }
        let pageless = Documents.table(
            Documents.objects([3: "<< /Type /Page /Parent 2 0 R >>"]))
        #expect(failure { try SignableDocument(PDFSource(pageless), request(1, 0, 0, 50, 50)) }?.code == .malformedData)
    }

    @Test(
        "A text has the bytes of WinAnsiEncoding, and other characters are spelled",
        arguments: [
            ("a~é€Ÿ", [0x61, 0x7e, 0xe9, 0x80, 0x9f]), ("Ł", Array("[U+0141]".utf8)),
            ("a\u{81}\n", Array("a[U+0081 000A]".utf8)),
            ("Ии😀", Array("[U+0418 0438 1F600]".utf8)), ("\u{ad}\u{202e}", Array("[U+00AD 202E]".utf8)),
        ] as [(String, [UInt8])])
    func encoding(text: String, bytes: [UInt8]) {
        #expect(HelveticaText(text).bytes == bytes)
    }

    @Test("Lines have all characters, end at spaces, and break words that are too long")
    func lines() {
        func lines(_ text: String, _ width: Int) -> [String] {
            HelveticaText(text).lines(width: width).map { String(decoding: $0, as: UTF8.self) }
        }
        // i has 222 thousandths, a space 278.
        #expect(lines("iii iii", 1000) == ["iii ", "iii"] && lines("iii iii", 2000) == ["iii iii"])
        #expect(lines("iiiiii i", 700) == ["iii", "iii ", "i"] && lines("i Wi", 1000) == ["i ", "W", "i"])
        #expect(lines("", 100) == [] && lines("WW", 1) == ["W", "W"] && lines("   i", 600) == ["   ", "i"])
    }

    @Test("A text that fits in no size is cut off, and the update stays small")
    func aLongText() throws {
        let box = SignatureBox(PDFRectangle(x: 0, y: 0, width: 20, height: 8), turns: 0)
        let object = SignatureAppearance(["Signer", String(repeating: "W", count: 100_000)], in: box).object(
            font: PDFReference(number: 9, generation: 0))
        #expect(object.utf8.count < 400 && object.contains("/F 1 Tf"), "\(object)")
    }

    private func request(
        _ page: Int, _ x: Double, _ y: Double, _ width: Double, _ height: Double, field: String? = nil
    ) -> PDFSignatureRequest {
        PDFSignatureRequest(field: field, place: (page, PDFRectangle(x: x, y: y, width: width, height: height)))
    }

    private func update(of document: [UInt8], _ request: PDFSignatureRequest) throws -> String {
        let update = try PDFSignatureUpdate(
            of: try SignableDocument(PDFSource(document), request), by: "Signer",
            date: Date(timeIntervalSince1970: 1_795_000_000), room: 100)
        return String(decoding: update.bytes, as: UTF8.self)
    }
}
