public import CertificateProviding
import FoundationEssentials

/// The evidence of a signature: what was signed, by whom and when, as JSON with sorted keys. A detached CMS of it by the same identity
/// puts attachments and properties under the signature as well.
struct ContractEvidence {
    let version: ContractVersion
    let signed: DocumentReference
    let approved: Date
    /// The server's proof of the signatory's code; `nil` in mode 2.
    let receipt: String?
    let certificate: X509Certificate

    /// The text.
    var bytes: [UInt8] {
        let content = version.content
        var members: [JSONValue.Member] = [
            .init("contract", .string(version.id)), .init("customer_number", .string(content.customerNumber)),
            .init("mode", .number("\(content.mode.rawValue)")), .init("signatory", signatory),
            .init("approved", .string(approved.formatted(.iso8601))),
            .init("original", Self.json(content.pdf.document)), .init("signed", Self.json(signed)),
            .init("attachments", .array(content.attachments.map(Self.json))),
            .init("properties", .array(content.properties.map(Self.json))),
            .init("certificate", .string(Data(certificate.derRepresentation).base64EncodedString())),
        ]
        if let id = content.json["contract"]?["contract_id"] { members.append(.init("contract_id", id)) }
        return JSONValue.object(members).bytes(sortedKeys: true)
    }

    /// Who approved, and the code that showed it: how it went, to which address, and the server's proof.
    private var signatory: JSONValue {
        let content = version.content
        let code = content.codeAddress.map { address in
            JSONValue.object([
                .init("by", .string(content.mode == .mail ? "mail" : "text message")),
                .init("to", .string(CustomerField.masked(address))),
                .init("receipt", receipt.map(JSONValue.string) ?? .null),
            ])
        }
        return .object([.init("name", .string(content.customerName)), .init("code", code ?? .null)])
    }

    private static func json(_ document: DocumentReference) -> JSONValue {
        .object([.init("sha256", .string(document.sha256)), .init("size", .number("\(document.size)"))])
    }

    private static func json(_ attachment: ContractContent.Attachment) -> JSONValue {
        .object([
            .init("name", .string(attachment.name)), .init("type", .string(attachment.type)),
            .init("sha256", .string(attachment.document.sha256)),
            .init("size", .number("\(attachment.document.size)")),
        ])
    }

    private static func json(_ property: ContractContent.Property) -> JSONValue {
        .object([.init("key", .string(property.key)), .init("value", property.value.map(JSONValue.string) ?? .null)])
    }
}

extension ContractVersion {
    /// Returns what the evidence of ``signature`` must be, but for the certificate, which the evidence itself names; and checks it.
    ///
    /// - Parameter evidence: The document of the signature.
    /// - Throws: `malformedData`, which names the member that does not fit the contract.
    public func check(evidence: [UInt8]) throws(ProviderError) {
        guard let signature else { return }
        let json = try JSONValue(parsing: evidence)
        guard let text = json["certificate"]?.string, let der = Data(base64Encoded: text),
            let certificate = try? X509Certificate(derRepresentation: Array(der))
        else {
            throw ProviderError(.malformedData, "signature.evidence: certificate is not base64 of DER.")
        }
        let expected = ContractEvidence(
            version: self, signed: signature.pdf, approved: signature.approved, receipt: signature.receipt,
            certificate: certificate)
        guard expected.bytes != evidence else { return }
        guard case .object(let members) = try JSONValue(parsing: expected.bytes) else { return }
        let other = members.first { json[$0.name] != $0.value }?.name
        throw ProviderError(
            .malformedData,
            "signature.evidence: \(other.map { "\($0) is not that of the contract" } ?? "it has members or a form that evidence does not have")."
        )
    }
}
