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
        func paths(_ signature: ContractSignature) -> [String] {
            [
                "  to read: \(path(signature.pdf))", "  evidence: \(path(signature.evidence))",
                "  signature of the evidence: \(path(signature.evidenceSignature))",
            ]
        }
        var lines = ["Contract \(id)", "State: \(stateText(hasServer: hasServer))"]
        lines.append("Received: \(received.formatted(.iso8601))")
        lines.append("Signatory: by mode \(content.mode.rawValue) (\(content.mode.text))")
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
        if let signature {
            lines.append("Signed: \(signature.approved.formatted(.iso8601)), \(signature.pdf.text)")
            lines += paths(signature)
        }
        for signature in superseded {
            lines.append("Signed here, and replaced by the server's version: \(signature.approved.formatted(.iso8601))")
            lines += paths(signature)
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
        guard hasServer || conflict != nil else { return state == .toValidate ? "signed" : state.rawValue }
        return
            "\(state.rawValue)\(conflict != nil ? ", in conflict with the server" : isUnsent ? ", not sent yet" : "")"
    }
}

extension ContractContent.Mode {
    /// How the signatory is identified, in words.
    var text: String {
        switch self {
        case .textMessage: "a code by text message"
        case .person: "in person"
        case .mail: "a code by mail"
        }
    }
}
