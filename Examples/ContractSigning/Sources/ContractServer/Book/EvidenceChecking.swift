import CertificateProviding
import Contracts
import Foundation
import PDFUpdate
import SwiftASN1
@_spi(CMS) import X509

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

/// Compares the evidence with the contract, looks for the original at the begin of the signed PDF, and verifies both signatures: that of
/// the evidence and that of the PDF, by the same certificate.
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
        // A signature is added to a PDF: what was there before stays as it was (ISO 32000-1, section 7.5.6).
        guard documents.pdf.count > documents.original.count, documents.pdf.starts(with: documents.original) else {
            throw Refusal.invalid("signature.pdf", "is not the contract's PDF with something added to it")
        }
        let certificate = try Self.certificate(in: documents.evidence)
        guard await Self.signer(of: documents.evidence, by: documents.evidenceSignature) == certificate else {
            throw Refusal.invalid(
                "signature.evidence_signature", "is not a detached CMS of the evidence by the certificate in it")
        }
        guard let signature = PDFSignature(ofWhole: documents.pdf, after: documents.original.count) else {
            throw Refusal.invalid("signature.pdf", "has no signature over the whole file after the contract's PDF")
        }
        guard await Self.signer(of: signature.content, by: signature.cms) == certificate else {
            throw Refusal.invalid(
                "signature.pdf", "has no valid signature by the certificate in the evidence")
        }
    }

    /// An AlgorithmIdentifier of rsaEncryption, and the tag of the signature behind it.
    private static let rsaEncryption: [UInt8] = [
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00, 0x04,
    ]

    /// Returns the certificate whose key has made a detached CMS of content; `nil` if the CMS is not valid.
    private static func signer(of content: [UInt8], by cms: [UInt8]) async -> Certificate? {
        guard let place = Data(cms).range(of: Data(rsaEncryption))?.lowerBound else {
            return await verified(content, cms)
        }
        // swift-certificates knows sha256WithRSAEncryption, and those of SHA-384 and SHA-512, in this place only. They mean the same
        // (RFC 3370, section 3.2), and the place is not signed.
        for algorithm: UInt8 in [0x0b, 0x0c, 0x0d] {
            var named = cms
            named[place + 12] = algorithm
            if let signer = await verified(content, named) { return signer }
        }
        // It was another place: such as that of the time stamp behind a signature of ECDSA.
        return await verified(content, cms)
    }

    private static func verified(_ content: [UInt8], _ cms: [UInt8]) async -> Certificate? {
        let result = await CMS.isValidSignature(
            dataBytes: content, signatureBytes: cms, trustRoots: CertificateStore()
        ) { RFC5280Policy() }
        return switch result {
        case .success(let valid): valid.signer
        // The signature is valid, and there is no authority to validate the certificate with.
        case .failure(.unableToValidateSigner(let failure)): failure.signer
        case .failure: nil
        }
    }

    private static func certificate(in evidence: [UInt8]) throws -> Certificate {
        guard let text = try JSONValue(parsing: evidence)["certificate"]?.string,
            let der = Data(base64Encoded: text), let certificate = try? Certificate(derEncoded: Array(der))
        else { throw Refusal.invalid("signature.evidence", "has no certificate") }
        return certificate
    }
}

/// Accepts all evidence. For tests of other things.
struct NoEvidenceCheck: EvidenceChecking {
    func check(_ documents: SignedDocuments, of version: ContractVersion) {}
}
