public import CertificateProviding

/// What a person sees of a contract before the signature.
public struct ContractQuestion: Sendable {
    /// What this host knows, which is what is signed, by whom, and where to read it; and, apart, what the contract says.
    public let text: ConsentText
    /// As it is signed after the approval.
    public let contract: Contract

    /// - Parameter path: The file with a document, to be read before the answer.
    public init(_ contract: Contract, path: (DocumentReference) -> String, signer: X509Certificate) {
        self.contract = contract
        let (content, pdf) = (contract.content, contract.content.pdf.document)
        var facts: [ConsentText.Line] = [
            .init("Contract", contract.id), .init("SHA-256", pdf.sha256), .init("To read", path(pdf)),
        ]
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
        add("Customer", customerNumber)
        for field in customerFields { add("Customer's \(field.key)", field.value) }
        for (index, contractor) in (json["contractors"]?.array ?? []).enumerated() {
            add("Signatory \(index + 1)", Self.name(contractor))
        }
        add("File", pdf.name)
        for property in properties { add("Property \(property.key)", property.value ?? "(no value)") }
        for (index, attachment) in attachments.enumerated() {
            add("Attachment \(index + 1)", "\(attachment.name) (\(attachment.type))")
        }
        return claims
    }

    /// The names in the fields of a contractor, or its number.
    private static func name(_ contractor: JSONValue) -> String? {
        let fields = contractor["fields"]?.array ?? []
        let names = ["firstname", "lastname"].compactMap { key in
            fields.first { $0["key"]?.string == key }?["value"]?.string ?? contractor[key]?.string
        }
        if !names.isEmpty { return names.joined(separator: " ") }
        return contractor["number"]?.string ?? contractor["contractor_id"]?.integer.map { "\($0)" }
    }
}

extension DocumentReference {
    /// Size and digest, for people.
    package var text: String { "\(size) bytes, SHA-256 \(sha256)" }
}
