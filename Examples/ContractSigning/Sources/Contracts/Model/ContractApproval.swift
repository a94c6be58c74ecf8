public import FoundationEssentials

/// What one signatory has approved: a signature of the PDF, and the evidence of it.
public struct ContractApproval: Codable, Equatable, Sendable {
    /// The index in ``ContractContent/signatories``.
    public var signatory: Int
    /// When the person approved, to the second.
    public var approved: Date
    /// The server's own proofs that the signatory's codes were confirmed, in the order of ``Signatory/codes``: a server that was restored
    /// to a time before knows them by that. Opaque. None in mode 2, and with an identity of the person's own.
    public var receipts: [String]
    /// Whether the identity that signed is the person's own, and not the host's.
    public var isByOwnIdentity: Bool
    /// Of the identity that signed, in DER.
    public var certificate: Data
    /// The PDF with this signature as its last one. It begins with that of the approval before.
    public var pdf: DocumentReference
    /// JSON: see the page's section Evidence.
    public var evidence: DocumentReference
    /// Detached CMS of ``evidence``, by the same identity.
    public var evidenceSignature: DocumentReference

    public init(
        signatory: Int, approved: Date, receipts: [String] = [], isByOwnIdentity: Bool = false, certificate: Data,
        pdf: DocumentReference, evidence: DocumentReference, evidenceSignature: DocumentReference
    ) {
        (self.signatory, self.receipts, self.isByOwnIdentity) = (signatory, receipts, isByOwnIdentity)
        (self.certificate, self.pdf) = (certificate, pdf)
        (self.evidence, self.evidenceSignature) = (evidence, evidenceSignature)
        self.approved = Date(timeIntervalSince1970: approved.timeIntervalSince1970.rounded(.down))
    }
}

extension [ContractApproval] {
    /// The last PDF, which has all signatures, and the evidence of each.
    public var documents: [DocumentReference] {
        (last.map { [$0.pdf] } ?? []) + flatMap { [$0.evidence, $0.evidenceSignature] }
    }
}

/// Why a contract was given up.
public struct ContractAbandonment: Codable, Equatable, Sendable {
    /// The index in ``ContractContent/signatories`` of one who declines; `nil` for a decision of others.
    public var signatory: Int?
    /// In the person's words.
    public var reason: String

    /// In Unicode scalars.
    public static let maximumReason = 1000

    public init(signatory: Int?, reason: String) { (self.signatory, self.reason) = (signatory, reason) }

    /// What is wrong with a reason; `nil` for one that is taken.
    public static func flaw(of reason: String) -> String? {
        guard (1...maximumReason).contains(reason.unicodeScalars.count) else {
            return "is not a text of 1 to \(maximumReason) characters"
        }
        let isPlain = !reason.unicodeScalars.contains { $0.properties.generalCategory == .control && $0 != "\n" }
        return isPlain ? nil : "has control characters"
    }
}
