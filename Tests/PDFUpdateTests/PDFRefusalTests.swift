import CertificateProviding
import Foundation
import Signing
import TestSupport
import Testing

@testable import PDFUpdate

/// Documents that cannot be signed are refused with the reason, before a key is at hand.
@Suite struct PDFRefusalTests {
    struct Case: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var document: [UInt8]
        var code = ProviderError.Code.documentNotSignable
        var field: String?
        var reason: String?
        /// Part of the message; `nil` for a document that can be signed.
        var says: String?
    }

    /// A signed field whose signature has this reference.
    private static func signed(_ reference: String, lock: String = "", certified: Bool = false, more: String = "")
        -> [UInt8]
    {
        Documents.table(
            Documents.objects(
                catalog: "/AcroForm << /Fields [4 0 R \(more.isEmpty ? "" : "6 0 R")] /SigFlags 3 >>"
                    + (certified ? " /Perms << /DocMDP 5 0 R >>" : ""),
                [
                    4: "<< /FT /Sig /T (Signature1) /V 5 0 R \(lock) >>",
                    5: "<< /Type /Sig /Reference [ \(reference) ] >>",
                    6: more.isEmpty ? "null" : more,
                ]))
    }
    private static func transform(_ method: String, _ parameters: String) -> String {
        "<< /Type /SigRef /TransformMethod /\(method) /TransformParams << \(parameters) >> >>"
    }
    private static func empty(_ more: String) -> [UInt8] {
        Documents.table(
            Documents.objects(
                catalog: "/AcroForm << /Fields [4 0 R] >>",
                [
                    4: "<< /T (form) /FT /Sig /Kids [5 0 R] >>", 5: "<< /T (a) /Parent 4 0 R \(more) >>",
                ]))
    }
    private static func seed(_ entries: String, field: String? = "form.a", reason: String? = nil, says: String?) -> Case
    {
        Case(
            testDescription: "seed \(entries)", document: empty("/SV << \(entries) >>"), field: field, reason: reason,
            says: says)
    }

    static let cases: [Case] = [
        Case(
            testDescription: "a name that is equal in Unicode alone",
            document: Documents.table(
                Documents.objects([2: "<< /Type /Pages /#E2#84#AAids [3 0 R] /Count 1 >>"])),
            code: .malformedData, says: "/Kids"),
        Case(testDescription: "encrypted", document: Documents.table(trailer: "/Encrypt 9 0 R"), says: "encrypted"),
        Case(
            testDescription: "encrypted, and damaged", document: Documents.table(trailer: "/Encrypt [] /Prev (x)"),
            says: "encrypted"),
        Case(testDescription: "P 1", document: signed(transform("DocMDP", "/P 1"), certified: true), says: "P 1"),
        Case(testDescription: "P 2", document: signed(transform("DocMDP", "/P 2"), certified: true)),
        Case(testDescription: "P by default", document: signed(transform("DocMDP", ""), certified: true)),
        Case(
            testDescription: "all fields", document: signed(transform("FieldMDP", "/Action /All")),
            says: "locks all fields"),
        Case(
            testDescription: "all but some", document: signed(transform("FieldMDP", "/Action /Exclude /Fields [(b)]")),
            says: "locks all fields"),
        Case(testDescription: "some", document: signed(transform("FieldMDP", "/Action /Include /Fields [(b)]"))),
        Case(
            testDescription: "some, with P 1",
            document: signed(transform("FieldMDP", "/Action /Include /Fields [(b)] /P 1")), says: "P 1"),
        Case(
            testDescription: "lock with P 1",
            document: signed("", lock: "/Lock << /Action /Include /Fields [(b)] /P 1 >>"), says: "lock with P 1"),
        Case(
            testDescription: "some, and that is asked for",
            document: signed(transform("FieldMDP", "/Action /Include /Fields [(b)]"), more: "<< /FT /Sig /T (b) >>"),
            field: "b", says: "locked the field b"),
        Case(
            testDescription: "XFA",
            document: Documents.table(Documents.objects(catalog: "/NeedsRendering true /AcroForm << /XFA [] >>")),
            says: "XFA"),
        Case(
            testDescription: "XFA that is static",
            document: Documents.table(Documents.objects(catalog: "/AcroForm << /XFA [] >>"))),
        Case(
            testDescription: "no page",
            document: Documents.table(Documents.objects([2: "<< /Type /Pages /Kids [] /Count 0 >>"])), says: "no page"),
        Case(testDescription: "no such field", document: empty(""), field: "a", says: "no signature field a"),
        Case(
            testDescription: "a field that is signed", document: signed(""), field: "Signature1",
            says: "has a signature"),
        Case(testDescription: "a field", document: empty(""), field: "form.a"),
        Case(
            testDescription: "a field with a lock", document: empty("/Lock << /Action /All >>"), field: "form.a",
            says: "lock"),
        seed("/Ff 2 /SubFilter [/adbe.pkcs7.detached]", says: "/SubFilter"),
        seed("/Ff 2 /SubFilter [/adbe.pkcs7.detached /ETSI.CAdES.detached]", says: nil),
        seed("/Ff 0 /SubFilter [/adbe.pkcs7.detached]", says: nil),
        seed("/Ff 2 /SubFilter [/adbe.pkcs7.detached]", field: nil, says: nil),
        seed("/Ff 8 /Reasons [(Yes)]", reason: "No", says: "/Reasons"),
        seed("/Ff 8 /Reasons [(Yes)]", reason: "Yes", says: nil),
        seed("/Ff 64 /DigestMethod [(SHA1)]", says: "/DigestMethod"),
        seed("/MDP << /P 2 >>", says: "/MDP"),
        seed("/MDP << /P 0 >>", says: nil),
        seed("/Cert << /Ff 1 >>", says: "/Cert"),
        seed("/TimeStamp << /URL (http://a) /Ff 1 >>", says: "/TimeStamp"),
        damaged("no header", Array(Documents.table().dropFirst(8)), "%PDF-"),
        damaged("junk in front", Array("junk\n".utf8) + Documents.table(), "before its header"),
        damaged("no startxref", Array(Documents.table().dropLast(30)), "startxref"),
        damaged("two catalogs", Documents.table(trailer: "/Root 1 0 R"), "two values of /Root"),
        damaged("chain outside", Documents.table(trailer: "/Prev 99999"), "outside the file"),
        damaged(
            "nested too deeply", Documents.table(Documents.objects(page: "/X " + String(repeating: "[", count: 1000))),
            "nested"),
        damaged("page tree with a loop", Documents.table(Documents.objects([2: "<< /Kids [2 0 R] >>"])), "loop"),
        damaged("page that is missing", Documents.table(Documents.objects([2: "<< /Kids [7 0 R] >>"])), "missing"),
        damaged(
            "fields with a loop",
            Documents.table(Documents.objects(catalog: "/AcroForm << /Fields [4 0 R] >>", [4: "<< /Kids [4 0 R] >>"])),
            "loop"),
        damaged("another generation", Documents.table(Documents.objects(catalog: "/AcroForm 3 7 R")), "generation"),
        damaged("two values", Documents.table(Documents.objects(page: "/Annots [] /Annots []")), "two values"),
        damaged(
            "a reference to a reference",
            Documents.table(Documents.objects(page: "/Annots 4 0 R", [4: "5 0 R", 5: "[]"])), "reference"),
        damaged("size", Documents.table(trailer: "/X 1 /Size 2"), "two values of /Size"),
        damaged("ranges beyond the end", signedRange("[0 10 20 99999]"), "beyond the end"),
    ]
    private static func damaged(_ name: String, _ document: [UInt8], _ says: String) -> Case {
        Case(testDescription: name, document: document, code: .malformedData, says: says)
    }
    private static func signedRange(_ range: String) -> [UInt8] {
        Documents.table(
            Documents.objects(
                catalog: "/AcroForm << /Fields [4 0 R] >>", [4: "<< /FT /Sig /T (a) /V << /ByteRange \(range) >> >>"]))
    }

    @Test("A document that must not be signed is refused with its reason", arguments: cases)
    func eachIsRefused(_ one: Case) throws {
        let found = failure {
            try SignableDocument(PDFSource(one.document), PDFSignatureRequest(field: one.field, reason: one.reason))
        }
        #expect(found?.code == (one.says == nil ? nil : one.code), "\(found.map { "\($0)" } ?? "signed")")
        if let says = one.says { #expect(found?.message.contains(says) == true, "\(found?.message ?? "")") }
    }

    @Test("Ed25519 is refused for PDF")
    func ed25519() async throws {
        let signer = try Signer(try TestAuthority().issue("Signer", kind: .ed25519))
        #expect(await code { try await signer.signedPDF(of: Documents.table()) } == .unsupportedAlgorithm)
    }
}
