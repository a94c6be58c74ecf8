import CertificateProviding
import Crypto
import Foundation
import Signing
import SwiftASN1
import Testing
import X509

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

    init() throws { alice = try Self.signer() }

    /// A person with a certificate of its own, which nothing vouches for.
    private static func signer(_ name: String = "signer") throws -> Signer {
        let key = P256.Signing.PrivateKey()
        let subject = try DistinguishedName { CommonName(name) }
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: .init(key.publicKey), notValidBefore: Date() - 60,
            notValidAfter: Date() + 3600, issuer: subject, subject: subject, extensions: .init(),
            issuerPrivateKey: .init(key))
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        let identity = try Identity(
            certificateChain: [X509Certificate(derRepresentation: serializer.serializedBytes)],
            key: SoftwareKey(pkcs8: SecretBytes(copying: Array(key.derRepresentation)), location: .file),
            provenance: .init(provider: ProviderID("test")))
        return try Signer(identity)
    }

    /// - Parameters:
    ///   - signer: Of the CMS. The evidence has Alice's certificate.
    private func signed(
        _ content: ContractContent? = nil, pdf: [UInt8]? = nil, approved: Date = now - 1, signer: Signer? = nil
    ) async throws -> Signed {
        let pdf = if let pdf { pdf } else { try await signedPDF() }
        let content = try content ?? Fixture.content(attachment: Array("text".utf8))
        let id = Fixture.id()
        let open = ContractVersion(id: id, state: .inProgress, content: content)
        let evidence = ContractEvidence(
            version: open, signed: DocumentReference(of: pdf), approved: approved, receipt: nil,
            certificate: alice.identity.certificate
        ).bytes
        let cms = try await (signer ?? alice).detachedCMS(of: SigningContent(evidence))
        let signature = ContractSignature(
            pdf: DocumentReference(of: pdf), evidence: DocumentReference(of: evidence),
            evidenceSignature: DocumentReference(of: cms), approved: approved)
        return Signed(
            version: ContractVersion(id: id, state: .toValidate, content: content, signature: signature),
            documents: SignedDocuments(
                original: Fixture.pdf(), pdf: pdf, evidence: evidence, evidenceSignature: cms))
    }

    private func signedPDF(of document: [UInt8] = Fixture.pdf()) async throws -> [UInt8] {
        try await alice.signedPDF(of: document)
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

    @Test("A CMS by another certificate, of another text or damaged is refused")
    func signature() async throws {
        let member = Refusal.Reason.invalid(member: "signature.evidence_signature")
        // Of the same name.
        #expect(try await reason(await signed(signer: Self.signer())) == member)
        let good = try await signed()
        let cms = good.documents.evidenceSignature
        let other = try await alice.detachedCMS(of: SigningContent(good.documents.evidence + [0x20]))
        let attached = try await alice.attachedCMS(of: good.documents.evidence)
        let wrong = Array(cms.dropLast(3)) + [cms[cms.count - 3] ^ 1] + cms.suffix(2)
        for cms in [other, attached, wrong, [], [0x30, 0x00], good.documents.evidence] {
            var spoiled = good
            spoiled.documents = SignedDocuments(
                original: good.documents.original, pdf: good.documents.pdf, evidence: good.documents.evidence,
                evidenceSignature: cms)
            #expect(try await reason(spoiled) == member)
        }
    }

    @Test("A PDF is refused that is not the contract's with a signature alone, over all of it, by the same certificate")
    func pdf() async throws {
        let (contract, good) = (Fixture.pdf(), try await signedPDF())
        let stranger = try await Self.signer().signedPDF(of: contract)
        var changed = good
        changed[contract.count / 2] ^= 1
        let table: [(String, [UInt8])] = [
            ("the contract", contract), ("nothing", []), ("another one", try await signedPDF(of: Fixture.pdf("2"))),
            ("a comment", contract + Array("\n% forged: no signature here\n".utf8)),
            ("text after it", good + [0x0a]), ("text in it", Array(good.dropLast()) + [0x20]),
            ("cut", Array(good.dropLast(9))),
            ("a changed byte", changed), ("a stranger", stranger),
            ("a stranger last", try await Self.signer().signedPDF(of: good)),
            ("another page before the signature", try await signedPDF(of: Self.update(contract))),
            ("another page after the signature", try Self.update(good)),
            ("another page between two signatures", try await signedPDF(of: Self.update(good))),
        ]
        for (name, pdf) in table {
            #expect(try await reason(await signed(pdf: pdf)) == .invalid(member: "signature.pdf"), "\(name)")
        }
        // After a signature of another person.
        #expect(try await reason(await signed(pdf: try await signedPDF(of: stranger))) == nil)
    }

    @Test("An approval more than five minutes ahead of the server's clock is refused")
    func approvedInTheFuture() async throws {
        #expect(try await reason(await signed(approved: Self.now + 300)) == nil)
        #expect(try await reason(await signed(approved: Self.now + 301)) == .invalid(member: "signature.approved"))
    }

    @Test("The server checks it before it stores a version")
    func stored() async throws {
        let server = try TestServer(evidence: Self.check)
        let good = try await signed()
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
