import CertificateProviding
import Contracts
import Foundation
import Signing

/// The documents of a signature.
struct SignedDocuments: Sendable {
    let original: [UInt8]
    let pdf: [UInt8]
    let evidence: [UInt8]
    let evidenceSignature: [UInt8]
}

/// Finds out whether the evidence of a signature is that of a contract.
protocol EvidenceChecking: Sendable {
    /// - Throws: ``Refusal``, with the member `signature.evidence` or another one.
    func check(_ documents: SignedDocuments, of version: ContractVersion) async throws
}

/// Compares the evidence with the contract, and verifies both signatures: that of the evidence, and that of the PDF, to which nothing else
/// was added, by the same certificate.
///
/// Who signed is not its business: the certificate in the evidence may be of any authority, and is for the back office to judge.
struct EvidenceCheck: EvidenceChecking {
    /// Of the time of approval, ahead of the server's clock, in seconds.
    private static let maximumSkew: TimeInterval = 300

    var now: @Sendable () -> Date = { Date() }

    func check(_ documents: SignedDocuments, of version: ContractVersion) async throws {
        do {
            try version.check(evidence: documents.evidence)
        } catch {
            throw Refusal(error)
        }
        if let approved = version.signature?.approved, approved > now() + Self.maximumSkew {
            throw Refusal.invalid(
                "signature.approved", "is more than five minutes ahead of the server's clock; check the host's clock")
        }
        let certificate = try Self.certificate(in: documents.evidence)
        let verifier = try SignatureVerifier(anchors: nil)
        guard
            await Self.isIntact(
                certificate,
                { () async throws(ProviderError) in
                    try await verifier.cms(documents.evidenceSignature, content: SigningContent(documents.evidence))
                })
        else {
            throw Refusal.invalid(
                "signature.evidence_signature", "is not a detached CMS of the evidence by the certificate in it")
        }
        // A signature is added to a PDF: what was there before stays as it was (ISO 32000-2, 7.5.6), and shows the same.
        let addition: SignatureVerdict.Part
        do throws(ProviderError) {
            addition = try SignatureVerifier.addsOnlySignatures(to: documents.original, in: documents.pdf)
        } catch { throw Refusal.invalid("signature.pdf", "cannot be read: \(error.message)") }
        guard addition.holds == true else {
            throw Refusal.invalid(
                "signature.pdf", "is not the contract's PDF with a signature alone added: \(addition.reason ?? "")")
        }
        guard
            await Self.isIntact(
                certificate,
                { () async throws(ProviderError) in
                    guard let last = try await verifier.pdf(SigningContent(documents.pdf)).last else { return nil }
                    return last.coverage?.change == .nothing ? last : nil
                })
        else {
            throw Refusal.invalid(
                "signature.pdf", "has no valid signature over the whole file by the certificate in the evidence")
        }
    }

    /// Whether a signature is intact, and by a certificate.
    private static func isIntact(
        _ certificate: X509Certificate, _ verdict: () async throws(ProviderError) -> SignatureVerdict?
    ) async -> Bool {
        guard let verdict = try? await verdict() else { return false }
        return verdict.isIntact && verdict.certificate == certificate
    }

    private static func certificate(in evidence: [UInt8]) throws -> X509Certificate {
        guard let text = try JSONValue(parsing: evidence)["certificate"]?.string,
            let der = Data(base64Encoded: text),
            let certificate = try? X509Certificate(derRepresentation: Array(der))
        else { throw Refusal.invalid("signature.evidence", "has no certificate") }
        return certificate
    }
}

/// Accepts all evidence. For tests of other things.
struct NoEvidenceCheck: EvidenceChecking {
    func check(_ documents: SignedDocuments, of version: ContractVersion) {}
}
