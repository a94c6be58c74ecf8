public import CertificateProviding
import FoundationEssentials

/// The evidence of an approval: what was signed, by whom and when, with all approvals before it, as JSON with sorted keys. A detached CMS
/// of it by the same identity puts attachments and properties under the signature as well.
struct ContractEvidence {
    /// Its last approval is the one that the evidence is of. What that says of its evidence is not in it.
    let version: ContractVersion
    /// What a relying party may take it for.
    private static let statement =
        "The host attests the approvals. An approval is no qualified signature of the signatory, unless an identity of the signatory's own, with a qualified certificate, has signed."

    /// The text.
    var bytes: [UInt8] {
        let content = version.content
        var members: [JSONValue.Member] = [
            .init("contract", .string(version.id)), .init("statement", .string(Self.statement)),
            .init("signatories", .number("\(content.signatories.count)")),
            .init("approvals", .array(version.approvals.map(json))),
            .init("original", content.pdf.document.json),
            .init("attachments", .array(content.attachments.map(Self.json))),
            .init("properties", .array(content.properties.map(Self.json))),
        ]
        if let id = content.json["contract"]?["contract_id"] { members.append(.init("contract_id", id)) }
        return JSONValue.object(members).bytes(sortedKeys: true)
    }

    /// Who approved, what showed it, and the signature.
    private func json(_ approval: ContractApproval) -> JSONValue {
        let signatory = version.content.signatories[approval.signatory]
        let codes = zip(signatory.codes, approval.receipts).map { code, receipt in
            JSONValue.object([
                .init("by", .string(code.channel.rawValue)), .init("to", .string(CustomerField.masked(code.address))),
                .init("receipt", .string(receipt)),
            ])
        }
        return .object([
            .init("member", .string(signatory.member)), .init("name", .string(signatory.name)),
            .init("number", signatory.number.map(JSONValue.string) ?? .null),
            .init("mode", .number("\(signatory.mode.rawValue)")), .init("codes", .array(codes)),
            .init("identity", .string(approval.isByOwnIdentity ? "person" : "host")),
            .init("approved", .string(approval.approved.formatted(.iso8601))),
            .init("signed", approval.pdf.json),
            .init("certificate", .string(approval.certificate.base64EncodedString())),
        ])
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
    /// Checks that a text is the evidence of an approval.
    ///
    /// - Parameter index: Of one of ``approvals``.
    /// - Throws: `malformedData`, which names the member that does not fit the contract.
    public func check(evidence: [UInt8], of index: Int) throws(ProviderError) {
        var version = self
        version.approvals = Array(approvals[...index])
        let expected = ContractEvidence(version: version).bytes
        guard expected != evidence else { return }
        let member = "approvals[\(index)].evidence"
        do throws(ProviderError) {
            let json = try JSONValue(parsing: evidence)
            guard case .object(let members) = try JSONValue(parsing: expected) else { return }
            let other = members.first { json[$0.name] != $0.value }?.name
            throw ProviderError(
                .malformedData,
                other.map { "\($0) is not that of the contract." }
                    ?? "it has members or a form that evidence does not have.")
        } catch {
            throw ProviderError(.malformedData, "\(member): \(error.message)", underlying: error)
        }
    }
}
