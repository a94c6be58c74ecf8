import CertificateProviding
import Contracts
import Foundation
import Signing

/// The documents of a contract's approvals.
struct SignedDocuments: Sendable {
    let original: [UInt8]
    /// The last one, with all signatures.
    let pdf: [UInt8]
    /// The evidence of each approval, and its detached CMS.
    var evidence: [(text: [UInt8], signature: [UInt8])]
    /// How many approvals, the earliest, the server has taken before: whom they are of was judged then, and certificates end.
    var accepted = 0
}

/// Finds out whether the signatures and the evidence of approvals are those of a contract.
protocol EvidenceChecking: Sendable {
    /// - Throws: ``Refusal``, with a member of the approval.
    func check(_ documents: SignedDocuments, of version: ContractVersion) async throws
}

/// Compares the evidence of each approval with the contract, and verifies both of its signatures, by its certificate: that of the evidence, and
/// that of the PDF, which says for whom it is. The PDF has these signatures in their order, and nothing else was added.
///
/// Whose the certificates are is for the back office to judge, but where an identity takes the place of a code.
struct EvidenceCheck: EvidenceChecking {
    /// Of the time of approval, ahead of the server's clock, in seconds.
    private static let maximumSkew: TimeInterval = 300

    /// The CAs of identities that people sign with instead of a code. Without one, all need their codes.
    var signatoryAnchors: [X509Certificate] = []
    var now: @Sendable () -> Date = { Date() }

    func check(_ documents: SignedDocuments, of version: ContractVersion) async throws {
        let verifier = try SignatureVerifier(anchors: signatoryAnchors.isEmpty ? nil : signatoryAnchors, now: now)
        for (index, approval) in version.approvals.enumerated() {
            let (text, signature) = documents.evidence[index]
            do throws(ProviderError) {
                try version.check(evidence: text, of: index)
            } catch {
                throw Refusal(error)
            }
            if approval.approved > now() + Self.maximumSkew {
                throw Refusal.invalid(
                    "approvals[\(index)].approved",
                    "is more than five minutes ahead of the server's clock; check the host's clock")
            }
            guard let verdict = try? await verifier.cms(signature, content: SigningContent(text)), verdict.isIntact,
                verdict.isBy(approval)
            else {
                throw Refusal.invalid(
                    "approvals[\(index)].evidence_signature",
                    "is not a detached CMS of the evidence by the certificate of the approval")
            }
        }
        try await checkPDF(documents, of: version, verifier)
    }

    /// Signatures are added to a PDF: what was there before stays as it was (ISO 32000-2, 7.5.6), and shows the same.
    private func checkPDF(
        _ documents: SignedDocuments, of version: ContractVersion, _ verifier: SignatureVerifier
    ) async throws {
        let (original, pdf) = (documents.original, documents.pdf)
        let last = "approvals[\(version.approvals.count - 1)].pdf"
        let addition: SignatureVerdict.Part
        var verdicts: [SignatureVerdict] = []
        do throws(ProviderError) {
            addition = try SignatureVerifier.addsOnlySignatures(to: original, in: pdf)
            if addition.holds == true { verdicts = try await verifier.pdf(SigningContent(pdf)) }
        } catch { throw Refusal.invalid(last, "cannot be read: \(error.message)") }
        guard addition.holds == true else {
            throw Refusal.invalid(
                last, "is not the contract's PDF with signatures alone added: \(addition.reason ?? "")")
        }
        // Those of the contract's own PDF come first.
        let added = verdicts.filter { ($0.coverage?.signedBytes ?? 0) > original.count }
        guard added.count == version.approvals.count else {
            throw Refusal.invalid(last, "has \(added.count) signatures, of \(version.approvals.count) approvals")
        }
        for (index, (verdict, approval)) in zip(added, version.approvals).enumerated() {
            let member = "approvals[\(index)].pdf"
            guard verdict.form == .pdf, verdict.isIntact, verdict.isBy(approval),
                verdict.coverage?.signedBytes == approval.pdf.size,
                DocumentReference(of: pdf.prefix(approval.pdf.size)) == approval.pdf
            else {
                throw Refusal.invalid(
                    member, "has no valid signature over all of it by the certificate of the approval")
            }
            let signatory = version.content.signatories[approval.signatory]
            let text = verdict.certificate.map {
                ApprovalText(of: signatory, isByOwnIdentity: approval.isByOwnIdentity, certificate: $0)
            }
            guard let text, verdict.claimedName == text.name, verdict.claimedReason == text.reason else {
                throw Refusal.invalid(
                    member, "says another name or reason than that \(signatory.member) has approved")
            }
            guard
                !approval.isByOwnIdentity || signatory.codes.isEmpty || verdict.isTrustedPerson
                    || index < documents.accepted
            else {
                throw Refusal.invalid(
                    "approvals[\(index)].certificate",
                    "is of no identity that this server accepts instead of a code (--signatory-anchors)")
            }
        }
        guard added.last?.coverage?.change == .nothing else {
            throw Refusal.invalid(last, "has something behind its last signature")
        }
    }
}

extension SignatureVerdict {
    fileprivate func isBy(_ approval: ContractApproval) -> Bool {
        certificate.map { Data($0.derRepresentation) == approval.certificate } ?? false
    }

    /// Whether the certificate is of a CA whose identities take the place of codes.
    fileprivate var isTrustedPerson: Bool { isTrusted.holds == true && maySign.holds == true }
}

/// Accepts all evidence. For tests of other things.
struct NoEvidenceCheck: EvidenceChecking {
    func check(_ documents: SignedDocuments, of version: ContractVersion) {}
}
