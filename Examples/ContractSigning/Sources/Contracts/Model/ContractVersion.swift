import FoundationEssentials

/// What host and server exchange of a contract.
public struct ContractVersion: Equatable, Sendable {
    /// A UUID in lower case, which names the contract everywhere.
    public let id: String
    public var state: ContractState
    public var content: ContractContent
    /// The earliest first. All signatories' in the states that ``ContractState/isSigned`` names.
    public var approvals: [ContractApproval]
    /// In the state ``ContractState/abandoned`` only.
    public var abandonment: ContractAbandonment?

    public init(
        id: String, state: ContractState, content: ContractContent, approvals: [ContractApproval] = [],
        abandonment: ContractAbandonment? = nil
    ) {
        (self.id, self.state, self.content) = (id, state, content)
        (self.approvals, self.abandonment) = (approvals, abandonment)
    }

    /// The SHA-256 of the version as it is sent, in hexadecimal.
    var digest: String { DocumentReference(of: json.bytes).sha256 }

    /// The PDF with all signatures so far.
    public var pdf: DocumentReference { approvals.last?.pdf ?? content.pdf.document }

    /// All documents, those of the approvals too.
    public var documents: [DocumentReference] { content.documents + approvals.documents }

    /// The indexes of the signatories who may approve next: all who have not, or the next one where the contract has an order.
    public var pending: [Int] {
        state == .inProgress ? Array(remaining.prefix(content.isOrdered ? 1 : content.signatories.count)) : []
    }

    /// The indexes of the signatories who have not approved: each may decline.
    public var remaining: [Int] {
        content.signatories.indices.filter { index in !approvals.contains { $0.signatory == index } }
    }

    /// Whether a text is a UUID in lower case.
    public static func isID(_ text: String) -> Bool {
        text == text.lowercased() && UUID(uuidString: text) != nil
    }

    /// The first member that does not fit the others, and how; `nil` for a version that is whole.
    ///
    /// Whether the documents fit is for others to say.
    public var flaw: (member: String, problem: String)? {
        guard Self.isID(id) else { return ("id", "is not a UUID in lower case") }
        let missing = content.missing
        guard state == .abandoned || missing.isEmpty == (state != .incomplete) else {
            return (
                "state",
                missing.isEmpty
                    ? "is incomplete, and nothing is missing"
                    : "is \(state), while values are missing: \(missing.joined(separator: ", "))"
            )
        }
        let (count, all) = (approvals.count, content.signatories.count)
        guard state.isSigned ? count == all : missing.isEmpty ? count < all : count == 0 else {
            return ("approvals", "are \(count), of \(all) signatories, in the state \(state)")
        }
        var size = content.pdf.document.size
        var seen: Set<Int> = []
        for (index, approval) in approvals.enumerated() {
            let member = "approvals[\(index)]"
            guard content.signatories.indices.contains(approval.signatory), seen.insert(approval.signatory).inserted,
                !content.isOrdered || approval.signatory == index
            else { return ("\(member).signatory", "is not one who approves next") }
            let codes = approval.isByOwnIdentity ? 0 : content.signatories[approval.signatory].codes.count
            guard approval.receipts.count == codes else {
                return ("\(member).receipts", "are \(approval.receipts.count), of \(codes) codes")
            }
            guard approval.pdf.size > size else { return ("\(member).pdf", "is not larger than the one before") }
            size = approval.pdf.size
        }
        guard let abandonment else { return nil }
        guard state == .abandoned else { return ("abandonment", "must not be there in the state \(state)") }
        if let signatory = abandonment.signatory, !remaining.contains(signatory) {
            return ("abandonment.signatory", "is no signatory, or one who has approved")
        }
        return ContractAbandonment.flaw(of: abandonment.reason).map { ("abandonment.reason", $0) }
    }

    /// Whether a host may put a version in the place of this one: in a later state, with these approvals and perhaps more, which are of
    /// this content.
    public func mayBecome(_ other: ContractVersion) -> Bool {
        [.incomplete, .inProgress].contains(state) && state.mayBecome(other.state)
            && other.approvals.starts(with: approvals) && (approvals.isEmpty || other.content == content)
    }
}
