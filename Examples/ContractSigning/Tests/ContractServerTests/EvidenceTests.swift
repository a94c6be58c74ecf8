import CertificateProviding
import Foundation
import Signing
import Testing

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
    private let alice: Signer

    init() throws { alice = try Fixture.signer() }

    /// - Parameters:
    ///   - signer: Of the CMS. The approval has Alice's certificate.
    private func signed(
        _ content: ContractContent? = nil, pdf: [UInt8]? = nil, approved: Date = now - 1, signer: Signer? = nil
    ) async throws -> Signed {
        let pdf = if let pdf { pdf } else { try await signedPDF() }
        let content = try content ?? Fixture.content(attachment: Array("text".utf8))
        let none = DocumentReference(of: [])
        var version = ContractVersion(
            id: Fixture.id(), state: .toValidate, content: content,
            approvals: [
                ContractApproval(
                    signatory: 0, approved: approved, certificate: Data(alice.identity.certificate.derRepresentation),
                    pdf: DocumentReference(of: pdf), evidence: none, evidenceSignature: none)
            ])
        let evidence = ContractEvidence(version: version).bytes
        let cms = try await (signer ?? alice).detachedCMS(of: SigningContent(evidence))
        version.approvals[0].evidence = DocumentReference(of: evidence)
        version.approvals[0].evidenceSignature = DocumentReference(of: cms)
        return Signed(
            version: version,
            documents: SignedDocuments(original: Fixture.pdf(), pdf: pdf, evidence: [(evidence, cms)]))
    }

    /// By a host for Alice Liddell.
    private func signedPDF(of document: [UInt8] = Fixture.pdf(), by signer: Signer? = nil) async throws -> [UInt8] {
        let signer = signer ?? alice
        let text = ApprovalText(
            of: try Fixture.content().customer, isByOwnIdentity: false, certificate: signer.identity.certificate)
        return try await signer.signedPDF(of: document, PDFSignatureDetails(name: text.name, reason: text.reason))
    }

    /// An update that puts another page into the place of the contract's.
    private static func update(_ document: [UInt8]) throws -> [UInt8] {
        let page = "3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 90 90] >>\nendobj\n"
        let last = try #require(String(decoding: document, as: UTF8.self).split(separator: "\n").dropLast().last)
        let offset = String(repeating: "0", count: 10 - "\(document.count)".count) + "\(document.count)"
        let section = "xref\n3 1\n\(offset) 00000 n \ntrailer\n<< /Size 9 /Root 1 0 R /Prev \(last) >>\n"
        return document
            + Array((page + section + "startxref\n\(document.count + page.utf8.count)\n%%EOF\n").utf8)
    }

    private func reason(_ signed: Signed) async throws -> Refusal.Reason? {
        try await refusal { try await Self.check.check(signed.documents, of: signed.version) }?.reason
    }

    @Test("Evidence that fits is accepted, also where nothing vouches for the certificate")
    func fits() async throws {
        #expect(try await reason(await signed()) == nil)
    }

    @Test("Evidence of another contract, person or time is refused")
    func other() async throws {
        let good = try await signed()
        var spoiled = good
        spoiled.version = ContractVersion(
            id: Fixture.id(), state: .toValidate, content: good.version.content, approvals: good.version.approvals)
        #expect(try await reason(spoiled) == .invalid(member: "approvals[0].evidence"))
        for content in [
            try Fixture.content(number: "C-2", attachment: Array("text".utf8)),
            try Fixture.content(attachment: Array("other".utf8)), try Fixture.content(),
            try Fixture.content(mode: 1, attachment: Array("text".utf8)),
        ] {
            spoiled = good
            spoiled.version.content = content
            #expect(try await reason(spoiled) == .invalid(member: "approvals[0].evidence"))
        }
        spoiled = good
        spoiled.version.approvals[0].approved += 1
        #expect(try await reason(spoiled) == .invalid(member: "approvals[0].evidence"))
        spoiled.version.approvals[0].approved -= 1
        spoiled.documents.evidence[0].text.append(0x20)
        #expect(try await reason(spoiled) == .invalid(member: "approvals[0].evidence"))
    }

    @Test("A CMS by another certificate, of another text or damaged is refused")
    func signature() async throws {
        let member = Refusal.Reason.invalid(member: "approvals[0].evidence_signature")
        // Of the same name.
        #expect(try await reason(await signed(signer: Fixture.signer())) == member)
        let good = try await signed()
        let (text, cms) = good.documents.evidence[0]
        let other = try await alice.detachedCMS(of: SigningContent(text + [0x20]))
        let attached = try await alice.attachedCMS(of: text)
        let wrong = Array(cms.dropLast(3)) + [cms[cms.count - 3] ^ 1] + cms.suffix(2)
        for cms in [other, attached, wrong, [], [0x30, 0x00], text] {
            var spoiled = good
            spoiled.documents.evidence[0].signature = cms
            #expect(try await reason(spoiled) == member)
        }
    }

    @Test("A PDF is refused that is not the contract's with a signature alone, over all of it, by the same certificate")
    func pdf() async throws {
        let (contract, good) = (Fixture.pdf(), try await signedPDF())
        let other = try Fixture.signer()
        let stranger = try await signedPDF(of: contract, by: other)
        var changed = good
        changed[contract.count / 2] ^= 1
        let table: [(String, [UInt8])] = [
            ("the contract", contract), ("nothing", []), ("another one", try await signedPDF(of: Fixture.pdf("2"))),
            ("a comment", contract + Array("\n% forged: no signature here\n".utf8)),
            ("text after it", good + [0x0a]), ("text in it", Array(good.dropLast()) + [0x20]),
            ("cut", Array(good.dropLast(9))),
            ("a changed byte", changed), ("a stranger", stranger),
            ("a stranger last", try await signedPDF(of: good, by: other)),
            ("a stranger before", try await signedPDF(of: stranger)), ("two signatures", try await signedPDF(of: good)),
            ("another name", try await alice.signedPDF(of: contract)),
            ("another page before the signature", try await signedPDF(of: Self.update(contract))),
            ("another page after the signature", try Self.update(good)),
            ("another page between two signatures", try await signedPDF(of: Self.update(good))),
        ]
        for (name, pdf) in table {
            #expect(try await reason(await signed(pdf: pdf)) == .invalid(member: "approvals[0].pdf"), "\(name)")
        }
    }

    @Test(
        "Each signature is there, in its order, for its signatory; one that is missing, of another or more is refused")
    func signatories() async throws {
        let content = try Fixture.content(attachment: Array("text".utf8), contractors: ["Marie", "Paul"])
        let names = content.signatories.map(\.name)
        /// - Parameter people: Those for whom each signature says that it is.
        func signed(_ people: [Int], for signatories: [Int]) async throws -> Signed {
            let none = DocumentReference(of: [])
            var version = ContractVersion(id: Fixture.id(), state: .inProgress, content: content)
            var documents = SignedDocuments(original: Fixture.pdf(), pdf: Fixture.pdf(), evidence: [])
            for (person, signatory) in zip(people, signatories) {
                let text = ApprovalText(
                    of: content.signatories[person], isByOwnIdentity: false, certificate: alice.identity.certificate)
                let pdf = try await alice.signedPDF(
                    of: documents.pdf, PDFSignatureDetails(name: text.name, reason: text.reason))
                version.approvals.append(
                    ContractApproval(
                        signatory: signatory, approved: Self.now - 1,
                        certificate: Data(alice.identity.certificate.derRepresentation),
                        pdf: DocumentReference(of: pdf), evidence: none, evidenceSignature: none))
                let evidence = ContractEvidence(version: version).bytes
                let cms = try await alice.detachedCMS(of: SigningContent(evidence))
                version.approvals[version.approvals.count - 1].evidence = DocumentReference(of: evidence)
                version.approvals[version.approvals.count - 1].evidenceSignature = DocumentReference(of: cms)
                documents = SignedDocuments(
                    original: documents.original, pdf: pdf, evidence: documents.evidence + [(evidence, cms)])
            }
            if signatories.count == names.count { version.state = .toValidate }
            return Signed(version: version, documents: documents)
        }
        for order in [[0], [2, 0], [1, 2, 0]] {
            let good = try await signed(order, for: order)
            #expect(good.version.flaw == nil)
            #expect(try await reason(good) == nil, "\(order)")
        }
        #expect(try await reason(await signed([1, 0], for: [0, 1])) == .invalid(member: "approvals[0].pdf"))
        // The first signature alone, and the second one with a document that has more.
        let (two, three) = (try await signed([0, 1], for: [0, 1]), try await signed([0, 1, 2], for: [0, 1, 2]))
        var spoiled = two
        spoiled.version.approvals.removeLast()
        #expect(try await reason(spoiled) == .invalid(member: "approvals[0].pdf"))
        spoiled = three
        spoiled.documents = SignedDocuments(
            original: three.documents.original,
            pdf: Array(three.documents.pdf.prefix(three.version.approvals[1].pdf.size)),
            evidence: three.documents.evidence)
        #expect(try await reason(spoiled) == .invalid(member: "approvals[2].pdf"))
        spoiled = three
        spoiled.version.approvals.swapAt(1, 2)
        #expect(try await reason(spoiled) == .invalid(member: "approvals[1].evidence"))
    }

    @Test("An approval more than five minutes ahead of the server's clock is refused")
    func approvedInTheFuture() async throws {
        #expect(try await reason(await signed(approved: Self.now + 300)) == nil)
        #expect(try await reason(await signed(approved: Self.now + 301)) == .invalid(member: "approvals[0].approved"))
    }

    @Test("The server checks it before it stores a version")
    func stored() async throws {
        let server = try TestServer(evidence: Self.check)
        let good = try await signed()
        let documents = good.documents
        let evidence = documents.evidence[0]
        for document in [
            documents.original, documents.pdf, evidence.text, evidence.signature, Array("text".utf8),
        ] { _ = try await server.book.putDocument(document, for: TestServer.alice) }
        var spoiled = good.version
        spoiled.approvals[0].approved += 1
        let found = try await refusal {
            _ = try await server.book.put(spoiled, of: TestServer.alice, after: nil)
        }
        #expect(found?.reason == .invalid(member: "approvals[0].evidence"))
        let answer = try await server.book.put(good.version, of: TestServer.alice, after: nil)
        #expect(answer.isNew)
    }
}
