public import CertificateProviding

/// What a person sees of a contract before the signature.
public struct ContractQuestion: Sendable {
    /// What this host knows, which is what is signed, by whom, and where to read it; and, apart, what the contract says.
    public let text: ConsentText
    /// As it is signed after the approval.
    public let contract: Contract
    /// The person who is asked, as an index in ``ContractContent/signatories``.
    public let signatory: Int
    /// Whether the contract has all signatures after this one.
    public var isLast: Bool { contract.approvals.count + 1 == contract.content.signatories.count }

    /// - Parameters:
    ///   - path: The file with a document, to be read before the answer.
    ///   - isByOwnIdentity: Whether the signer's certificate is that of the person.
    public init(
        _ contract: Contract, for signatory: Int, path: (DocumentReference) -> String, signer: X509Certificate,
        isByOwnIdentity: Bool
    ) {
        (self.contract, self.signatory) = (contract, signatory)
        let (content, pdf) = (contract.content, contract.version.pdf)
        var facts: [ConsentText.Line] = [
            .init("Contract", contract.id), .init("SHA-256", pdf.sha256), .init("To read", path(pdf)),
            .init(
                "Who approves",
                "signatory \(signatory + 1) of \(content.signatories.count), named below, \(isByOwnIdentity ? "with an identity of the person's own" : content.signatories[signatory].mode.text)"
            ),
        ]
        if !contract.approvals.isEmpty {
            let numbers = contract.approvals.map { "\($0.signatory + 1)" }.joined(separator: ", ")
            facts.append(.init("Signed before by", "signatory \(numbers)"))
        }
        for (index, attachment) in content.attachments.enumerated() {
            facts.append(.init("Attachment \(index + 1)", attachment.document.text))
            facts.append(.init("To read", path(attachment.document)))
        }
        facts.append(.init("Whole texts", "contracts show \(contract.id)"))
        text = ConsentText(
            sentence: "Sign a PDF of \(pdf.size) bytes\(Self.besides(content)) as \(signer.subject)?", facts: facts,
            heading: ContractContent.claimsHeading, claims: content.claims)
    }

    /// What the evidence covers besides the PDF.
    private static func besides(_ content: ContractContent) -> String {
        let parts = [(content.attachments.count, "attachment"), (content.properties.count, "property")]
            .filter { $0.0 > 0 }.map { count, name in
                "\(count) \(count == 1 ? name : name == "property" ? "properties" : name + "s")"
            }
        return parts.isEmpty ? "" : ", with \(parts.joined(separator: " and "))"
    }
}

extension ContractContent {
    package static let claimsHeading = "The contract says, unverified:"

    /// What the contract says of itself, in the file's order. No label is one of what this host says.
    package var claims: [ConsentText.Line] {
        var claims: [ConsentText.Line] = []
        func add(_ label: String, _ value: String?) {
            if let value, !value.isEmpty { claims.append(.init(label, value)) }
        }
        add("Title", json["contract"]?["message_title"]?.string)
        add("Message", json["contract"]?["message_body"]?.string)
        add("Number", contractID.map { "\($0)" })
        for (index, signatory) in signatories.enumerated() {
            let number = signatory.number.map { " (\($0))" } ?? ""
            add("Signatory \(index + 1)", "\(signatory.name)\(number)")
            for field in signatory.fields { add("Signatory \(index + 1)'s \(field.key)", field.value) }
        }
        add("File", pdf.name)
        for property in properties { add("Property \(property.key)", property.value ?? "(no value)") }
        for (index, attachment) in attachments.enumerated() {
            add("Attachment \(index + 1)", "\(attachment.name) (\(attachment.type))")
        }
        return claims
    }
}

extension ContractContent.Mode {
    /// How a signatory is identified, in words.
    package var text: String {
        switch self {
        case .textMessage: "by a code in a text message"
        case .person: "in person at this host"
        case .mail: "by two codes, in a text message and a mail"
        }
    }
}

extension DocumentReference {
    /// Size and digest, for people.
    package var text: String { "\(size) bytes, SHA-256 \(sha256)" }
}
