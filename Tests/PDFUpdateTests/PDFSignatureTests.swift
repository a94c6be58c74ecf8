import CertificateProviding
import Foundation
import Signing
import TestSupport
import Testing

@testable import PDFUpdate

/// Small documents of each kind, signed three times in a row, and judged by programs of others.
@Suite(.enabled(if: TestLength.hasSeconds)) struct PDFSignatureTests {
    private static let form = "/AcroForm << /Fields [4 0 R] /DA (/Helv 0 Tf 0 g) >>"
    private static let field = "<< /FT /Tx /T (name) /Type /Annot /Subtype /Widget /Rect [10 10 90 30] /P 3 0 R /F 4 >>"

    static let documents: [(name: String, bytes: [UInt8])] = [
        ("table", Documents.table()),
        (
            "table-info-id",
            Documents.table(
                Documents.objects(catalog: "", [4: "<< /Title (Contract) >>"]),
                trailer: "/Info 4 0 R /ID [(a\\)b) <00>]")
        ),
        ("table-gaps", Documents.table(Documents.objects([9: "<< >>"]))),
        ("table-updated", Documents.updated(Documents.table(), [3: Documents.objects(page: "/Rotate 0")[3] ?? ""])),
        ("no-line-end", Array(Documents.table().dropLast())),
        ("stream", Documents.stream()),
        (
            "stream-objects",
            Documents.stream(
                Documents.objects(catalog: form, page: "/Annots [4 0 R]", [4: field]), compressed: [1, 2, 3, 4])
        ),
        (
            "hybrid",
            Documents.hybrid(
                Documents.objects(
                    catalog: "/AcroForm 5 0 R", page: "/Annots 6 0 R",
                    [
                        4: field, 5: "<< /Fields [4 0 R] >>", 6: "[4 0 R]",
                    ]), hidden: [5, 6])
        ),
        ("form-direct", Documents.table(Documents.objects(catalog: form, page: "/Annots [4 0 R]", [4: field]))),
        (
            "form-indirect",
            Documents.table(
                Documents.objects(
                    catalog: "/AcroForm 5 0 R", page: "/Annots 6 0 R",
                    [
                        4: field, 5: "<< /Fields 7 0 R /SigFlags 1 >>", 6: "[4 0 R % a comment ]\n]", 7: "[4 0 R]",
                    ]))
        ),
        (
            "one-array",
            Documents.table(
                Documents.objects(
                    catalog: "/AcroForm << /Fields 5 0 R >>", page: "/Annots 5 0 R", [4: field, 5: "[4 0 R]"]))
        ),
        ("null", Documents.table(Documents.objects(catalog: "/AcroForm null", page: "/Annots null/Rotate 0"))),
        (
            "name-taken",
            Documents.table(
                Documents.objects(
                    catalog: form,
                    [
                        4: "<< /T <FEFF005300690067006E006100740075007200650031> /Kids [5 0 R] >>",
                        5: "<< /T (Signature2) /FT /Tx /Parent 4 0 R >>",
                    ]))
        ),
    ]

    @Test(
        "A document of each kind is signed by three identities, and all programs find all signatures valid",
        .enabled(if: Verifiers.hasHanko, "pyHanko is not installed: make .build/pyhanko/bin/pyhanko"))
    func eachKindIsSignedThreeTimes() async throws {
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        var (files, all): ([(original: String, signed: [String])], [String]) = ([], [])
        for (name, bytes) in Self.documents {
            var (document, signed) = (bytes, [String]())
            let original = try directory.write(bytes, to: name + ".pdf")
            for (round, kind) in [TestAuthority.KeyKind.p256, .rsa2048, .p384].enumerated() {
                let signer = try Signer(try authority.signer("Signer \(round)", kind: kind))
                document = try await signer.signedPDF(of: document, .init(reason: "Grüße (1)", location: "Bern \\"))
                signed.append(try directory.write(document, to: "\(name)-\(round).pdf"))
            }
            files.append((original, signed))
            all += signed
        }
        let verdicts = try Verifiers.hanko(all, anchors: [authority.root], in: directory)
        for (original, signed) in files {
            for (before, after) in zip([original] + signed, signed) {
                try Verifiers.expectValid(after, from: before, verdicts[after] ?? [], in: directory)
            }
            let last = verdicts[signed[2]] ?? []
            #expect(last.map(\.intact) == [true, true, true] && last.map(\.trusted) == [true, true, true], "\(last)")
            #expect(
                last.allSatisfy { $0.level == "FORM_FILLING" || $0.level == "NONE" || $0.level == "LTA_UPDATES" },
                "\(last)")
            #expect(Set(last.map(\.field)).count == 3, "\(last)")
        }
    }

    @Test(
        "A changed byte in the signed ranges makes the signature invalid to all programs",
        .enabled(if: Verifiers.hasHanko, "pyHanko is not installed: make .build/pyhanko/bin/pyhanko"))
    func aChangedByteIsFound() async throws {
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        var document = try await Signer(try authority.signer("Signer")).signedPDF(of: Documents.table())
        let index = try #require(document.firstRange(of: Array("200 200".utf8))).lowerBound
        document[index] = UInt8(ascii: "3")
        let path = try directory.write(document, to: "changed.pdf")
        #expect(try Verifiers.hanko([path], anchors: [authority.root], in: directory)[path]?.first?.intact == false)
        #expect(try Verifiers.pdfsig(path, in: directory).first?.contains("Digest Mismatch") == true)
    }

    @Test("An update changes nothing but the entry")
    func theUpdateHasTheOldBytes() throws {
        let document = Documents.table(
            Documents.objects(
                catalog: "/X <</AcroForm 1>>/AcroForm 4 0 R % c\n", page: "/Annots[5 0 R]/Y(\\))",
                [4: "<</Fields[5 0 R]/DR<<>>/SigFlags 2/Z 1>>", 5: "<</FT/Tx/T(Signature1)>>"]))
        let text = String(decoding: try update(of: document).bytes, as: UTF8.self)
        #expect(text.contains("\n4 0 obj\n<</Fields[5 0 R 7 0 R]/DR<<>>/SigFlags 3/Z 1>>\nendobj\n"))
        #expect(text.contains("/Annots[5 0 R 7 0 R]/Y(\\)) >>\nendobj\n"))
        #expect(text.contains("/T (Signature2)") && !text.contains("1 0 obj"))
        #expect(text.contains("xref\n3 2\n") && text.contains("\n6 2\n") && text.contains("<< /Size 8 /Prev "))
    }

    @Test("The trailer keeps /Root, /Info and /ID; numbers without an entry become free, unless a signature is there")
    func theTrailer() throws {
        let objects = Documents.objects([6: "<< >>"])
        let text = String(
            decoding: try update(of: Documents.table(objects, trailer: "/Info 6 0 R /ID [<00><01>] /X 1")).bytes,
            as: UTF8.self)
        #expect(text.contains("/Root 1 0 R /Info 6 0 R /ID [<00><01>] >>\nstartxref") && !text.contains("/X"))
        #expect(text.contains("\n3 3\n") && text.contains("\n0000000000 65535 f \n0000000000 65535 f \n"))
        let signed = Documents.objects(
            catalog: "/AcroForm << /Fields [6 0 R] /SigFlags 3 >>", [6: "<< /FT /Sig /T (a) /V << /Type /Sig >> >>"])
        #expect(!String(decoding: try update(of: Documents.table(signed)).bytes, as: UTF8.self).contains(" f \n"))
    }

    @Test("The ranges cover all but the value of /Contents, and a signature that does not fit is an error")
    func theRanges() throws {
        let document = Documents.stream()
        let update = try update(of: document)
        let whole = document + (try update.filled(with: [0xab, 0xcd]))
        let range = update.byteRange
        #expect(range[0] == 0 && range[2] + range[3] == whole.count)
        #expect(
            whole[range[1]..<range[2]].elementsEqual(
                Array("<abcd".utf8) + [UInt8](repeating: 0x30, count: 196) + Array(">".utf8)))
        let text = "/ByteRange [0 \(range[1]) \(range[2]) \(range[3])"
        #expect(
            String(decoding: whole, as: UTF8.self).contains(
                text + String(repeating: " ", count: 34 + 12 - text.utf8.count) + "]"))
        #expect(failure { try update.filled(with: [UInt8](repeating: 0, count: 101)) }?.code == .documentNotSignable)
    }

    private func update(of document: [UInt8]) throws -> PDFSignatureUpdate {
        try PDFSignatureUpdate(
            of: try SignableDocument(PDFSource(document), PDFSignatureRequest()), by: "Signer",
            date: Date(timeIntervalSince1970: 1_795_000_000),
            room: 100)
    }
}
