public import CertificateProviding
import FoundationEssentials

// The versions of contracts between hosts and the server.

extension ContractVersion {
    /// The levels of a message with versions: those of a file, and what is around it.
    public static let maximumDepth = 20

    /// The size of one document, in bytes: a PDF with all signatures is larger than its original.
    public static let maximumDocument = ContractContent.maximumDocuments + 2_000_000

    /// The most that a message has beside the content: bytes, and values.
    package static let maximumEnvelope = (
        size: 16_384 + ContractContent.maximumSignatories * ContractApproval.maximumSize.bytes,
        values: 32 + ContractContent.maximumSignatories * ContractApproval.maximumSize.values
    )

    /// The version as a JSON object: `id`, `state`, `content`, and `approvals` and `abandonment` where there are some.
    public var json: JSONValue {
        var members: [JSONValue.Member] = [
            .init("id", .string(id)), .init("state", .string(state.rawValue)), .init("content", content.json),
        ]
        if !approvals.isEmpty { members.append(.init("approvals", .array(approvals.map(\.json)))) }
        if let abandonment { members.append(.init("abandonment", abandonment.json)) }
        return .object(members)
    }

    /// Reads what ``json`` writes.
    ///
    /// - Parameter id: That of the address, where the object has none.
    /// - Throws: `malformedData`, which names the member.
    public init(json: JSONValue, id given: String? = nil) throws(ProviderError) {
        guard let id = given ?? json["id"]?.string else { throw Self.malformed("id", "is missing") }
        guard given == nil || json["id"] == nil || json["id"]?.string == given else {
            throw Self.malformed("id", "is not that of the address")
        }
        guard let state = json["state"]?.string.flatMap(ContractState.init(rawValue:)) else {
            throw Self.malformed("state", "is not a state of contracts")
        }
        guard let content = json["content"] else { throw Self.malformed("content", "is missing") }
        let members = MemberReader(json)
        var approvals: [ContractApproval] = []
        for approval in try members.objects("approvals") {
            guard approvals.count < ContractContent.maximumSignatories else {
                throw approval.malformed("is one too many")
            }
            approvals.append(try ContractApproval(approval))
        }
        let abandonment = try members["abandonment"].map { value throws(ProviderError) in
            try ContractAbandonment(value)
        }
        self.init(
            id: id, state: state, content: try ContractContent(content), approvals: approvals, abandonment: abandonment)
        if let flaw { throw Self.malformed(flaw.member, flaw.problem) }
    }

    fileprivate static func malformed(_ member: String, _ problem: String) -> ProviderError {
        ProviderError(.malformedData, "\(member) \(problem).")
    }
}

extension ContractApproval {
    /// In bytes.
    static let maximumReceipt = 256
    private static let maximumCertificate = 8192
    /// Of the JSON of one, at most.
    package static let maximumSize = (bytes: 13_000, values: 24)

    var json: JSONValue {
        .object([
            .init("signatory", .number("\(signatory)")), .init("approved", .string(approved.formatted(.iso8601))),
            .init("receipts", .array(receipts.map(JSONValue.string))), .init("own_identity", .bool(isByOwnIdentity)),
            .init("certificate", .string(certificate.base64EncodedString())), .init("pdf", pdf.json),
            .init("evidence", evidence.json), .init("evidence_signature", evidenceSignature.json),
        ])
    }

    init(_ reader: MemberReader) throws(ProviderError) {
        func document(_ name: String) throws(ProviderError) -> DocumentReference {
            let member = try reader.required(name)
            guard let digest = member.value["sha256"]?.string, let size = member.value["size"]?.integer,
                let document = DocumentReference(sha256: digest, size: size)
            else { throw member.malformed("has no sha256 and size") }
            return document
        }
        let time = try reader.required("approved")
        guard let approved = try? Date(try time.string(), strategy: .iso8601) else {
            throw time.malformed("is not a time of RFC 3339 in UTC")
        }
        var receipts: [String] = []
        for receipt in try reader.elements("receipts") {
            let text = try receipt.string()
            guard (1...Self.maximumReceipt).contains(text.utf8.count), receipts.count < CodeChannel.allCases.count
            else { throw receipt.malformed("is not a text of at most \(Self.maximumReceipt) bytes, or one too many") }
            receipts.append(text)
        }
        let certificate = try reader.required("certificate")
        guard let der = Data(base64Encoded: try certificate.string()), der.count <= Self.maximumCertificate,
            (try? X509Certificate(derRepresentation: Array(der))) != nil
        else {
            throw certificate.malformed(
                "is not a certificate in base64 of DER, of at most \(Self.maximumCertificate) bytes")
        }
        self.init(
            signatory: try reader.required("signatory").integer(), approved: approved, receipts: receipts,
            isByOwnIdentity: try reader.required("own_identity").flag(), certificate: der, pdf: try document("pdf"),
            evidence: try document("evidence"), evidenceSignature: try document("evidence_signature"))
    }
}

extension DocumentReference {
    var json: JSONValue { .object([.init("sha256", .string(sha256)), .init("size", .number("\(size)"))]) }
}

extension ContractAbandonment {
    fileprivate var json: JSONValue {
        .object([
            .init("signatory", signatory.map { JSONValue.number("\($0)") } ?? .null), .init("reason", .string(reason)),
        ])
    }

    fileprivate init(_ reader: MemberReader) throws(ProviderError) {
        try reader.requireObject()
        let signatory = try reader["signatory"]?.integer()
        self.init(signatory: signatory, reason: try reader.required("reason").string())
    }
}

extension ContractChanges {
    private static let maximumCursor = 4096

    /// Reads a server's answer. A contract that cannot be read, such as one of a newer server, hinders no other one.
    ///
    /// - Throws: `malformedData`, whose message is what was expected.
    init(json: JSONValue) throws(ProviderError) {
        guard let account = json["account"]?.string, let cursor = json["cursor"]?.string,
            case .bool(let hasMore) = json["more"], let contracts = json["contracts"]?.array,
            cursor.utf8.count <= Self.maximumCursor
        else { throw ProviderError(.malformedData, "account, cursor, more and contracts.") }
        self.init(account: account, cursor: cursor, hasMore: hasMore, contracts: [])
        for contract in contracts {
            guard let revision = contract["revision"]?.integer, revision >= 0, let id = contract["id"]?.string,
                ContractVersion.isID(id)
            else { throw ProviderError(.malformedData, "a revision and an id of each contract.") }
            do throws(ProviderError) {
                self.contracts.append(ServerContract(revision: revision, version: try ContractVersion(json: contract)))
            } catch { unreadable[id] = "What the server has of it is not valid here: \(error.message)" }
        }
    }
}
