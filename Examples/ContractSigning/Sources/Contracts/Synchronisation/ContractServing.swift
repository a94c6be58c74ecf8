public import CertificateProviding

/// The answer to a version that was sent.
public enum PutOutcome: Equatable, Sendable {
    /// The server has this version, now or since an earlier try.
    case accepted(revision: Int)
    /// The server has another version, or another state, that this one may not follow. `nil` where it has none.
    case conflict(ServerContract?)
}

/// A part of what has changed on the server.
public struct ContractChanges: Equatable, Sendable {
    /// The account that this host is paired with.
    public var account: String
    /// The position after ``contracts``. Opaque.
    public var cursor: String
    /// Whether there is more after ``cursor``.
    public var hasMore: Bool
    /// Whether there is nothing.
    var isEmpty: Bool { contracts.isEmpty && unreadable.isEmpty }
    /// The oldest change first, each contract once.
    public var contracts: [ServerContract]
    /// The ids of contracts of this part that cannot be read here, with the reason.
    public var unreadable: [String: String]

    public init(
        account: String, cursor: String, hasMore: Bool, contracts: [ServerContract], unreadable: [String: String] = [:]
    ) {
        (self.account, self.cursor, self.hasMore, self.contracts) = (account, cursor, hasMore, contracts)
        self.unreadable = unreadable
    }
}

/// The server of contracts, as a paired host sees it. Each call may fail after the server has done its work: all of them are
/// harmless when repeated.
///
/// Errors: `unavailable` and `timedOut` for the connection; `rejected` where the server does not accept the identity (revoked, not
/// paired); `malformedData` for a version that the server refuses, naming the member; `protocolError` for other answers.
public protocol ContractServing: Sendable {
    /// Returns whether the server has a document.
    func hasDocument(_ document: DocumentReference) async throws(ProviderError) -> Bool
    /// Stores a document on the server.
    func putDocument(_ content: [UInt8]) async throws(ProviderError)
    /// Returns the content of a document, whose digest and size are right.
    func document(_ document: DocumentReference) async throws(ProviderError) -> [UInt8]
    /// Stores a version on the server, after its documents.
    ///
    /// - Parameter revision: The revision that the version stands on; `nil` for a contract that is new to the server.
    func put(
        _ version: ContractVersion, after revision: Int?
    ) async throws(ProviderError) -> PutOutcome
    /// Returns what has changed after a cursor; `nil` if the server has forgotten the cursor, so that all has to be read anew.
    ///
    /// - Parameter cursor: `nil` for all contracts of the account.
    func changes(
        after cursor: String?, limit: Int
    ) async throws(ProviderError) -> ContractChanges?
    /// Has the server make a code for a signatory, and hand it to the person, in the place of an earlier one.
    func requestCode(_ request: CodeRequest) async throws(ProviderError)
    /// Confirms the code. `wrongPassword` for a wrong one, with the tries that are left in the message; `expired` after ten
    /// minutes; `pinLocked` after three wrong ones: then another code is needed.
    ///
    /// - Returns: The receipt, for ``ContractApproval/receipts``.
    func confirmCode(_ code: String, for request: CodeRequest) async throws(ProviderError) -> String
}

/// A code for a signatory: what for, and how it goes to the person.
public struct CodeRequest: Equatable, Sendable {
    /// The contract's id.
    public let contract: String
    /// The index in ``ContractContent/signatories``.
    public let signatory: Int
    public let channel: CodeChannel
    public let address: String
    /// The SHA-256 of the contract's PDF, before any signature.
    public let document: String

    public init(contract: String, signatory: Int, channel: CodeChannel, address: String, document: String) {
        (self.contract, self.signatory, self.channel) = (contract, signatory, channel)
        (self.address, self.document) = (address, document)
    }

    /// Without the id of the contract, which is in the address of a request.
    var json: JSONValue {
        .object([
            .init("signatory", .number("\(signatory)")), .init("by", .string(channel.rawValue)),
            .init("address", .string(address)), .init("document", .string(document)),
        ])
    }

    /// Reads what ``json`` writes.
    ///
    /// - Throws: `malformedData`, which names the member.
    public init(json: JSONValue, contract: String) throws(ProviderError) {
        let body = MemberReader(json)
        let (number, by) = (try body.required("signatory"), try body.required("by"))
        let document = try body.required("document")
        let signatory = try number.integer()
        guard (0..<ContractContent.maximumSignatories).contains(signatory) else {
            throw number.malformed("is no index of a signatory")
        }
        guard let channel = CodeChannel(rawValue: try by.string()) else {
            throw by.malformed("is neither text message nor mail")
        }
        guard DocumentReference.isDigest(try document.string()) else {
            throw document.malformed("is not a SHA-256 digest in hexadecimal")
        }
        let address = try body.required("address")
        if let flaw = CustomerField.flaw(of: try address.string(), in: channel.field) { throw address.malformed(flaw) }
        self.init(
            contract: contract, signatory: signatory, channel: channel, address: try address.string(),
            document: try document.string())
    }
}
