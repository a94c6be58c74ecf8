public import CertificateProviding
import FoundationEssentials

// The versions of contracts between hosts and the server.

extension ContractVersion {
    /// The levels of a message with versions: those of a file, and what is around it.
    public static let maximumDepth = 20

    /// The size of one document, in bytes: a signed PDF is larger than its original.
    public static let maximumDocument = ContractContent.maximumDocuments + 2_000_000

    /// The most that a message has beside the content: bytes, and values.
    package static let maximumEnvelope = (size: 4096, values: 32)

    /// The version as a JSON object: `id`, `state`, `content`, and `signature` where there is one.
    public var json: JSONValue {
        var members: [JSONValue.Member] = [
            .init("id", .string(id)), .init("state", .string(state.rawValue)), .init("content", content.json),
        ]
        if let signature { members.append(.init("signature", signature.json)) }
        return .object(members)
    }

    /// Reads what ``json`` writes.
    ///
    /// - Parameter id: That of the address, where the object has none.
    /// - Throws: `malformedData`, which names the member.
    public init(json: JSONValue, id given: String? = nil) throws(ProviderError) {
        guard let id = given ?? json["id"]?.string, Self.isID(id) else {
            throw Self.malformed("id", "is not a UUID in lower case")
        }
        guard given == nil || json["id"] == nil || json["id"]?.string == given else {
            throw Self.malformed("id", "is not that of the address")
        }
        guard let state = json["state"]?.string.flatMap(ContractState.init(rawValue:)) else {
            throw Self.malformed("state", "is not a state of contracts")
        }
        guard let content = json["content"] else { throw Self.malformed("content", "is missing") }
        let signature = try json["signature"].map { value throws(ProviderError) in
            try ContractSignature(json: value)
        }
        self.init(id: id, state: state, content: try ContractContent(content), signature: signature)
        guard state.isSigned == (signature != nil) else {
            let problem = state.isSigned ? "is missing" : "must not be there"
            throw Self.malformed("signature", "\(problem) in the state \(state)")
        }
        let missing = self.content.missing
        guard missing.isEmpty || [.incomplete, .abandoned].contains(state) else {
            throw Self.malformed(
                "state", "is \(state), while values are missing: \(missing.joined(separator: ", "))")
        }
    }

    /// Whether a text is a UUID in lower case.
    public static func isID(_ text: String) -> Bool {
        text == text.lowercased() && UUID(uuidString: text) != nil
    }

    fileprivate static func malformed(_ member: String, _ problem: String) -> ProviderError {
        ProviderError(.malformedData, "\(member) \(problem).")
    }
}

extension ContractSignature {
    var json: JSONValue {
        var members: [JSONValue.Member] = [
            .init("pdf", Self.json(pdf)), .init("evidence", Self.json(evidence)),
            .init("evidence_signature", Self.json(evidenceSignature)),
            .init("approved", .string(approved.formatted(.iso8601))),
        ]
        if let receipt { members.append(.init("receipt", .string(receipt))) }
        return .object(members)
    }

    /// The size of a receipt, in bytes.
    static let maximumReceipt = 256

    init(json: JSONValue) throws(ProviderError) {
        func document(_ name: String) throws(ProviderError) -> DocumentReference {
            guard let value = json[name], let digest = value["sha256"]?.string, let size = value["size"]?.integer,
                let document = DocumentReference(sha256: digest, size: size)
            else { throw ContractVersion.malformed("signature.\(name)", "has no sha256 and size") }
            return document
        }
        guard let text = json["approved"]?.string, let approved = try? Date(text, strategy: .iso8601) else {
            throw ContractVersion.malformed("signature.approved", "is not a time of RFC 3339 in UTC")
        }
        let receipt = json["receipt"]
        guard receipt == nil || (1...Self.maximumReceipt).contains(receipt?.string?.utf8.count ?? 0) else {
            throw ContractVersion.malformed(
                "signature.receipt", "is not a text of at most \(Self.maximumReceipt) bytes")
        }
        self.init(
            pdf: try document("pdf"), evidence: try document("evidence"),
            evidenceSignature: try document("evidence_signature"), approved: approved, receipt: receipt?.string)
    }

    private static func json(_ document: DocumentReference) -> JSONValue {
        .object([.init("sha256", .string(document.sha256)), .init("size", .number("\(document.size)"))])
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
