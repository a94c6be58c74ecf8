import FoundationEssentials
import CertificateProviding
import Contracts

extension Contract {
    /// How one that cannot be read is deleted.
    static func deletingAdvice(_ id: String) -> String { "To delete it here: contracts resolve \(id) --keep server" }

    /// The contract for a person, line by line.
    ///
    /// - Parameters:
    ///   - hasServer: Whether a server is configured.
    ///   - queue: Has the documents.
    func lines(hasServer: Bool, in queue: ContractQueue) -> [String] {
        func path(_ document: DocumentReference) -> String { queue.path(of: document) }
        /// What a signatory has approved; the PDF of the last one has all signatures.
        func approvalLines(_ approvals: [ContractApproval], _ word: String) -> [String] {
            approvals.flatMap { approval -> [String] in
                let identity = approval.isByOwnIdentity ? "an identity of the person's own" : "the host's identity"
                return [
                    "\(word): signatory \(approval.signatory + 1), \(approval.approved.formatted(.iso8601)), by \(identity)",
                    "  evidence: \(path(approval.evidence))",
                    "  signature of the evidence: \(path(approval.evidenceSignature))",
                ]
            } + (approvals.last.map { ["Signed PDF: \($0.pdf.text)", "  to read: \(path($0.pdf))"] } ?? [])
        }
        var lines = ["Contract \(id)", "State: \(stateText(hasServer: hasServer))"]
        lines.append("Received: \(received.formatted(.iso8601))")
        for (index, signatory) in content.signatories.enumerated() {
            let mode = signatory.mode
            lines.append("Signatory \(index + 1): by mode \(mode.rawValue) (\(mode.text))")
        }
        if content.isOrdered { lines.append("The signatories approve in this order.") }
        lines.append("PDF: \(content.pdf.document.text)")
        lines.append("  to read: \(path(content.pdf.document))")
        for (index, file) in content.attachments.enumerated() {
            lines.append("Attachment \(index + 1): \(file.document.text)")
            lines.append("  to read: \(path(file.document))")
        }
        if !content.missing.isEmpty {
            lines.append("Missing: \(content.missing.joined(separator: ", "))")
            lines.append("  to fill in: contracts complete \(id) KEY=VALUE")
        }
        if !content.unknownMembers.isEmpty {
            lines.append("Unknown members, kept as they came: \(content.unknownMembers.joined(separator: ", "))")
        }
        lines += approvalLines(approvals, "Signed")
        for approvals in superseded {
            lines += approvalLines(approvals, "Signed here, and replaced by the server's version")
        }
        if let abandonment = version.abandonment {
            let who = abandonment.signatory.map { "signatory \($0 + 1) declines" } ?? "abandoned"
            lines.append("Reason: \(who): \(Self.whole(abandonment.reason))")
        }
        if let conflict {
            lines.append(
                conflict.server.map { "Conflict: the server has it in the state \($0.version.state.rawValue)" }
                    ?? "Conflict: the server has it no longer")
            lines.append("  to decide: contracts resolve \(id)")
        }
        lines.append(ContractContent.claimsHeading)
        // Whole: the question before a signature cuts them.
        lines += content.claims.map { "  \(Self.whole($0.label)): \(Self.whole($0.value))" }
        return lines.map(DisplayText.visible)
    }

    private static func whole(_ text: String) -> String {
        DisplayText.claim(text, limit: 12 * text.unicodeScalars.count + 1)
    }

    /// The state, and whether the server knows it. Without a server, a signature is the end.
    func stateText(hasServer: Bool) -> String {
        let count =
            state == .inProgress && !approvals.isEmpty
            ? ", signed by \(approvals.count) of \(content.signatories.count)" : ""
        guard hasServer || conflict != nil else { return (state == .toValidate ? "signed" : state.rawValue) + count }
        return
            "\(state.rawValue)\(count)\(conflict != nil ? ", in conflict with the server" : isUnsent ? ", not sent yet" : "")"
    }
}
