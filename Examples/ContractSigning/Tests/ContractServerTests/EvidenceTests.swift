import CertificateProviding
import Crypto
import Foundation
import PDFUpdate
import SwiftASN1
import Testing
@_spi(CMS) import X509

@testable import ContractServer
@testable import Contracts

@Suite("Evidence of signatures")
struct EvidenceTests {
    /// A signed version and its documents, one of which a test spoils.
    struct Signed {
        var version: ContractVersion
        var documents: SignedDocuments
    }

    private static let now = Date(timeIntervalSince1970: 1_800_000_000)
    private static let check = EvidenceCheck { now }
    private let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
    private let certificate: Certificate

    init() throws { certificate = try Self.certificate(key) }

    private static func certificate(_ key: Certificate.PrivateKey) throws -> Certificate {
        let name = try DistinguishedName { CommonName("signer") }
        return try Certificate(
            version: .v3, serialNumber: .init(), publicKey: key.publicKey, notValidBefore: Date() - 60,
            notValidAfter: Date() + 3600, issuer: name, subject: name, extensions: .init(), issuerPrivateKey: key)
    }

    /// - Parameter signer: The key of the CMS.
    private func signed(
        _ content: ContractContent? = nil, pdf: [UInt8]? = nil, approved: Date = now - 1,
        signer: Certificate.PrivateKey? = nil, named: Certificate? = nil
    ) throws -> Signed {
        let pdf = try pdf ?? signedPDF()
        let content = try content ?? Fixture.content(attachment: Array("text".utf8))
        let id = Fixture.id()
        let open = ContractVersion(id: id, state: .inProgress, content: content)
        let evidence = ContractEvidence(
            version: open, signed: DocumentReference(of: pdf), approved: approved, receipt: nil,
            certificate: try X509Certificate(derRepresentation: (named ?? certificate).derRepresentation)
        ).bytes
        let cms = try CMS.sign(
            evidence, signatureAlgorithm: .ecdsaWithSHA256, certificate: named ?? certificate,
            privateKey: signer ?? key)
        let signature = ContractSignature(
            pdf: DocumentReference(of: pdf), evidence: DocumentReference(of: evidence),
            evidenceSignature: DocumentReference(of: cms), approved: approved)
        return Signed(
            version: ContractVersion(id: id, state: .toValidate, content: content, signature: signature),
            documents: SignedDocuments(
                original: Fixture.pdf(), pdf: pdf, evidence: evidence, evidenceSignature: cms))
    }

    private static let template = "/ByteRange RANGE /Contents GAP"

    private func cms(
        _ bytes: [UInt8], by signer: Certificate.PrivateKey? = nil, named: Certificate? = nil, detached: Bool = true
    ) throws -> [UInt8] {
        try CMS.sign(
            bytes, signatureAlgorithm: .ecdsaWithSHA256, certificate: named ?? certificate, privateKey: signer ?? key,
            signingTime: Self.now, detached: detached)
    }

    /// The contract's PDF with a signature; with other arguments, one that is not good.
    ///
    /// - Parameters:
    ///   - template: The dictionary, where RANGE and GAP stand for its values.
    ///   - range: Writes /ByteRange.
    ///   - moved: The gap's start, in bytes.
    ///   - room: The digits of the gap.
    ///   - padding: Behind the CMS.
    ///   - sign: Returns the CMS of the signed bytes.
    private func signedPDF(
        _ template: String = template, range: (Int, Int, Int) -> String = { "[0 \($0) \($1) \($2)]" },
        moved: Int = 0, room: Int = 16_000, padding: Character = "0", sign: (([UInt8]) throws -> [UInt8])? = nil
    ) throws -> [UInt8] {
        let text = "\n9 0 obj\n<< /Type /Sig \(template) >>\nendobj\n"
            .replacing("RANGE", with: String(repeating: " ", count: 80))
            .replacing("GAP", with: "<" + String(repeating: padding, count: room) + ">")
        var pdf = Fixture.pdf() + Array(text.utf8)
        let place = try #require(Data(pdf).range(of: Data(String(repeating: " ", count: 80).utf8))).lowerBound
        let gap = try #require(Data(pdf).range(of: Data("<\(padding)\(padding)".utf8))).lowerBound
        let (start, end) = (gap + moved, gap + room + 2)
        let written = Array(range(start, end, pdf.count - end).utf8)
        pdf.replaceSubrange(place..<(place + written.count), with: written)
        let content = Array(pdf[..<start]) + pdf[end...]
        let hex = DisplayText.hexadecimal(try sign?(content) ?? cms(content))
        pdf.replaceSubrange((gap + 1)..<(gap + 1 + hex.utf8.count), with: Array(hex.utf8))
        return pdf
    }

    private func reason(_ signed: Signed) async throws -> Refusal.Reason? {
        try await refusal { try await Self.check.check(signed.documents, of: signed.version) }?.reason
    }

    @Test("Evidence that fits is accepted, also where nothing vouches for the certificate")
    func fits() async throws {
        #expect(try await reason(signed()) == nil)
    }

    @Test("Evidence of another contract, person or time is refused")
    func other() async throws {
        let good = try signed()
        var spoiled = good
        spoiled.version = ContractVersion(
            id: Fixture.id(), state: .toValidate, content: good.version.content, signature: good.version.signature)
        #expect(try await reason(spoiled) == .invalid(member: "signature.evidence"))
        for content in [
            try Fixture.content(number: "C-2", attachment: Array("text".utf8)),
            try Fixture.content(attachment: Array("other".utf8)), try Fixture.content(),
            try Fixture.content(mode: 1, attachment: Array("text".utf8)),
        ] {
            spoiled = good
            spoiled.version.content = content
            #expect(try await reason(spoiled) == .invalid(member: "signature.evidence"))
        }
        spoiled = good
        spoiled.version.signature?.approved += 1
        #expect(try await reason(spoiled) == .invalid(member: "signature.evidence"))
        spoiled.version.signature?.approved -= 1
        spoiled.documents = SignedDocuments(
            original: good.documents.original, pdf: good.documents.pdf, evidence: good.documents.evidence + [0x20],
            evidenceSignature: good.documents.evidenceSignature)
        #expect(try await reason(spoiled) == .invalid(member: "signature.evidence"))
    }

    @Test("A CMS by another key or certificate, or of another text, is refused")
    func signature() async throws {
        let member = Refusal.Reason.invalid(member: "signature.evidence_signature")
        let other = Certificate.PrivateKey(P256.Signing.PrivateKey())
        #expect(try await reason(signed(signer: other)) == member)
        let good = try signed()
        let another = try signed(signer: other, named: Self.certificate(other))
        for cms in [another.documents.evidenceSignature, [], [0x30, 0x00], good.documents.evidence] {
            var spoiled = good
            spoiled.documents = SignedDocuments(
                original: good.documents.original, pdf: good.documents.pdf, evidence: good.documents.evidence,
                evidenceSignature: cms)
            #expect(try await reason(spoiled) == member)
        }
    }

    @Test("A signed PDF that does not begin with the contract's is refused")
    func pdf() async throws {
        for pdf in [Fixture.pdf(), Fixture.pdf("2") + [1], [], Array(Fixture.pdf().dropLast()) + [0, 0]] {
            #expect(try await reason(signed(pdf: pdf)) == .invalid(member: "signature.pdf"))
        }
    }

    @Test("A PDF without a signature over all of it, by the certificate of the evidence, is refused")
    func forged() async throws {
        let other = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let stranger = try Self.certificate(other)
        let (template, good) = (Self.template, try signedPDF())
        let table: [(String, [UInt8])] = [
            ("a comment", Fixture.pdf() + Array("\n% forged: no signature here\n".utf8)),
            ("text after it", good + [0x0a]), ("text in it", Array(good.dropLast()) + [0x20]),
            ("a part", try signedPDF { "[0 \($0) \($1) \($2 - 1)]" }), ("none", try signedPDF { _, _, _ in "[]" }),
            ("not from the begin", try signedPDF { "[1 \($0) \($1) \($2)]" }),
            ("three", try signedPDF { b, c, _ in "[0 \(b) \(c)]" }),
            ("five", try signedPDF { "[0 \($0) \($1) \($2) 0]" }), ("open", try signedPDF { "[0 \($0) \($1) \($2)" }),
            ("backwards", try signedPDF { "[0 \($1) \($0) \($2)]" }),
            ("negative", try signedPDF { "[0 \($0) -\($1) \($2)]" }),
            ("the largest", try signedPDF { b, c, _ in "[0 \(b) \(c) \(Int.max)]" }),
            ("the largest gap", try signedPDF { b, _, d in "[0 \(b) \(Int.max) \(d)]" }),
            ("the least", try signedPDF { _, _, _ in "[0 \(Int.min) \(Int.min) \(Int.min)]" }),
            ("too large", try signedPDF { b, c, _ in "[0 \(b) \(c) 99999999999999999999999]" }),
            ("in the original", try signedPDF { _, c, d in "[0 100 \(c) \(d)]" }),
            ("a wider gap", try signedPDF(moved: -1)), ("a smaller gap", try signedPDF(moved: 2)),
            ("other key", try signedPDF(template.replacing("Contents", with: "Content"))),
            ("padding", try signedPDF(padding: "1")), ("no digits", try signedPDF(padding: "g")),
            ("an odd gap", try signedPDF(room: 16_001)),
            ("a gap in a gap", try signedPDF(template.replacing("GAP", with: "<0GAP"), moved: -2)),
            ("a huge gap", try hugeGap()), ("only zeros", try signedPDF(sign: { _ in [] })),
            ("no DER", try signedPDF(sign: { _ in [0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x01] })),
            ("no CMS", try signedPDF(sign: { _ in [0x30, 0x03, 0x02, 0x01, 0x01] })),
            ("other bytes", try signedPDF(sign: { try cms($0 + [1]) })),
            ("attached", try signedPDF(sign: { try cms($0, detached: false) })),
            ("a stranger", try signedPDF(sign: { try cms($0, by: other, named: stranger) })),
            ("a stranger under the name", try signedPDF(sign: { try cms($0, by: other) })),
        ]
        for (name, pdf) in table {
            #expect(try await reason(signed(pdf: pdf)) == .invalid(member: "signature.pdf"), "\(name)")
        }
        #expect(try await reason(signed(pdf: signedPDF("/Contents  GAP/ByteRange\tRANGE"))) == nil)
        // Other places with the name, before it and after it: of earlier signatures, or text.
        let old = "/Old << /ByteRange [0 10 20 30] /Contents <3000> >> (/ByteRange) "
        #expect(try await reason(signed(pdf: signedPDF("\(old)\(template) \(old)"))) == nil)
        let many = String(repeating: "/ByteRange [0 1 2 3] ", count: 1000)
        #expect(
            try await reason(signed(pdf: signedPDF("\(template) \(many)"))) == .invalid(member: "signature.pdf"))
        // Any cut, and any place where the original may end.
        for count in stride(from: 0, to: good.count, by: 61) {
            #expect(PDFSignature(ofWhole: Array(good[..<count]), after: min(count, Fixture.pdf().count)) == nil)
            _ = PDFSignature(ofWhole: good, after: count)
        }
    }

    private func hugeGap() throws -> [UInt8] {
        let start = Fixture.pdf().count + 60
        let end = start + 1 << 21
        var text = "\n/ByteRange [0 \(start) \(end) 1] /Contents"
        text += String(repeating: " ", count: 60 - text.utf8.count) + "<3000"
        return Fixture.pdf() + Array(text.utf8) + [UInt8](repeating: 0x30, count: end - start - 6) + Array(">\n".utf8)
    }

    @Test("An approval more than five minutes ahead of the server's clock is refused")
    func approvedInTheFuture() async throws {
        #expect(try await reason(signed(approved: Self.now + 300)) == nil)
        #expect(try await reason(signed(approved: Self.now + 301)) == .invalid(member: "signature.approved"))
    }

    @Test("The server checks it before it stores a version")
    func stored() async throws {
        let server = try TestServer(evidence: Self.check)
        let good = try signed()
        let documents = good.documents
        for document in [
            documents.original, documents.pdf, documents.evidence, documents.evidenceSignature, Array("text".utf8),
        ] { _ = try await server.book.putDocument(document, for: TestServer.alice) }
        var spoiled = good.version
        spoiled.signature?.approved += 1
        let found = try await refusal {
            _ = try await server.book.put(spoiled, of: TestServer.alice, after: nil)
        }
        #expect(found?.reason == .invalid(member: "signature.evidence"))
        let answer = try await server.book.put(good.version, of: TestServer.alice, after: nil)
        #expect(answer.isNew)
    }
}
