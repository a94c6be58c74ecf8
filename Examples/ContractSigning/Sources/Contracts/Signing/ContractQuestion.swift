public import CertificateProviding

/// What a person sees of a contract before the signature.
public struct ContractQuestion: Sendable {
    /// One line each: customer, signatories, file, size, digest, the path of the PDF to read, properties, attachments.
    public let lines: [String]
    /// As it is signed after the approval.
    public let contract: Contract

    /// - Parameter path: The file with the PDF, to be read before the answer.
    public init(_ contract: Contract, path: String, signer: X509Certificate) {
        self.contract = contract
        let content = contract.content
        var lines = ["Contract \(contract.id)"]
        func add(_ name: String, _ value: String?) {
            guard let value, !value.isEmpty else { return }
            lines.append("  \(DisplayText.visible(name)): \(DisplayText.visible(value))")
        }
        add("title", content.json["contract"]?["message_title"]?.string)
        add("message", content.json["contract"]?["message_body"]?.string)
        add("customer", content.customerNumber)
        for field in content.customerFields { add(field.key, field.value) }
        for (number, contractor) in (content.json["contractors"]?.array ?? []).enumerated() {
            add("signatory \(number + 1)", Self.name(contractor))
        }
        add("file", content.pdf.name)
        add("size", "\(content.pdf.document.size) bytes")
        add("SHA-256", content.pdf.document.sha256)
        add("to read", path)
        for property in content.properties { add("property \(property.key)", property.value) }
        for attachment in content.attachments {
            let document = attachment.document
            add(
                "attachment",
                "\(attachment.name) (\(attachment.type), \(document.size) bytes, SHA-256 \(document.sha256))")
        }
        add("signed by", signer.subject)
        self.lines = lines
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
