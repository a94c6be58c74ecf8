public import CertificateProviding

/// The content of a contract: what the file says, with each document by its reference.
///
/// A document's member (`contract.pdf_file_path`, `files[].path`) is `data:TYPE;base64,sha256:DIGEST,SIZE` here.
public struct ContractContent: Equatable, Sendable {
    /// A document of the contract.
    public struct Attachment: Equatable, Sendable {
        /// Without a path and control characters, for people.
        public var name: String
        /// The media type, such as `image/png`.
        public var type: String
        public var document: DocumentReference
    }
    /// A property of the contract.
    public struct Property: Equatable, Sendable {
        public var key: String
        /// Its text; `nil` if there is none, or only white space.
        public var value: String?
        /// Whether a person at the host fills it in.
        public var isToFill: Bool
    }
    /// How a signatory is identified (the vendor's `customer.mode`).
    public enum Mode: Int, Sendable {
        /// By a code that comes as a text message.
        case textMessage = 1
        /// By the person at this host.
        case person = 2
        /// By two codes: one that comes as a text message, and one by mail.
        case mail = 3
    }

    /// The most that the documents of a contract have together, in bytes.
    public static let maximumDocuments = 50_000_000
    /// The most attachments.
    public static let maximumAttachments = 1000
    /// The most signatories.
    public static let maximumSignatories = 32

    /// The whole file.
    public let json: JSONValue
    /// The customer, then the contractors: each approves.
    public let signatories: [Signatory]
    /// Whether they approve in this order (`options`).
    public let isOrdered: Bool
    /// The number of the contract in the caller's system (`contract.contract_id`); `nil` for a new one.
    public let contractID: Int?
    public let pdf: Attachment
    public let attachments: [Attachment]
    public let properties: [Property]
    /// Whether other hosts of the account get it too (`contract.keep_on_move`).
    public let isKeptOnMove: Bool
    /// What has to be filled in, by the keys that `complete` takes; empty if the contract can be signed.
    public let missing: [String]
    public let successCallback: String?
    public let errorCallback: String?

    /// Reads a file whose documents are references.
    ///
    /// - Throws: `malformedData`, which names the member by its path, such as `customer.mode`.
    public init(_ json: JSONValue) throws(ProviderError) {
        let file = MemberReader(json)
        try file.requireObject()
        try file.requireDepth(JSONValue.maximumDepth)
        signatories = try Signatory.read(in: file)

        let contract = try file.required("contract")
        try contract.requireObject()
        _ = try contract.required("contract_definition_id").integer()
        let number = try contract["contract_id"]?.integer()
        contractID = number == -1 ? nil : number
        for name in ["message_title", "message_body"] { _ = try contract[name]?.string() }
        isKeptOnMove = try contract["keep_on_move"]?.flag() ?? false
        properties = try Property.read(in: file)

        var size = 0
        pdf = try Attachment.pdf(of: contract, &size)
        let files = try file.objects("files")
        guard files.count <= Self.maximumAttachments else {
            throw files[Self.maximumAttachments].malformed(
                "is one attachment too many; at most \(Self.maximumAttachments) are taken")
        }
        var attachments: [Attachment] = []
        for (index, file) in files.enumerated() { attachments.append(try Attachment(file, index, &size)) }
        self.attachments = attachments
        isOrdered = try Self.isOrdered(file)
        successCallback = try Self.callback("success_callback_url", of: file)
        errorCallback = try Self.callback("error_callback_url", of: file)
        let missing = signatories.flatMap(\.missing)
        self.missing = missing + properties.filter(\.isMissing).map { $0.fillingKey(besides: missing) }
        self.json = json
    }

    /// The documents of the content: the PDF and the attachments.
    public var documents: [DocumentReference] { [pdf.document] + attachments.map(\.document) }

    public var customer: Signatory { signatories[0] }
    public var customerNumber: String { customer.number ?? "" }

    /// Returns the index of the signatory that a text means, by number or name.
    ///
    /// - Parameter indexes: Those among whom it is searched.
    /// - Throws: `notFound`, also for a text that means several, naming those that there are.
    public func signatory(_ text: String, among indexes: [Int]) throws(ProviderError) -> Int {
        let found = indexes.filter { signatories[$0].isMeant(by: text) }
        if found.count == 1 { return found[0] }
        let names = indexes.map { signatories[$0] }.map { "\($0.name)\($0.number.map { " (\($0))" } ?? "")" }
        throw ProviderError(
            .notFound,
            "\(DisplayText.visible(text)) is \(found.isEmpty ? "none" : "several") of those who can approve or decline now; name one by number or name: \(names.isEmpty ? "-" : DisplayText.visible(names.joined(separator: ", ")))."
        )
    }

    /// An option that says in which order people approve: `{"key": "signing_order", "value": "sequential"}`. Other options are those of
    /// templates.
    private static func isOrdered(_ file: MemberReader) throws(ProviderError) -> Bool {
        var isOrdered = false
        for option in try file.elements("options") where option["key"]?.value.string == "signing_order" {
            let value = try option.required("value")
            switch value.value.string {
            case "sequential": isOrdered = true
            case "any": isOrdered = false
            default: throw value.malformed("is neither sequential nor any")
            }
        }
        return isOrdered
    }

    /// The paths of members and the names of customer fields that the format does not have. They are kept, and mean nothing here: one
    /// may be a known member that is misspelled.
    public var unknownMembers: [String] {
        let file = MemberReader(json)
        func others(_ object: MemberReader?, besides known: Set<String>) -> [String] {
            guard let object, case .object(let members) = object.value else { return [] }
            return members.map(\.name).filter { !known.contains($0) }.map { object.path(of: JSONPath.visible($0)) }
        }
        func elements(_ name: String, of object: MemberReader?) -> [MemberReader] {
            (try? object?.elements(name)) ?? []
        }
        let people = [file["customer"]].compactMap(\.self) + elements("contractors", of: file)
        let fields = people.flatMap { elements("fields", of: $0) }
        return others(
            file,
            besides: [
                "customer", "contractors", "contract", "contract_properties", "files", "options",
                "success_callback_url",
                "error_callback_url",
            ])
            + people.flatMap { others($0, besides: ["number", "mode", "contractor_id", "fields", "vendor"]) }
            + fields.flatMap { others($0, besides: ["key", "value"]) }
            + fields.compactMap { field in
                guard let key = field["key"]?.value.string, CustomerField.name(of: key) == nil else { return nil }
                return "\(field.path) (\(JSONPath.visible(key)))"
            }
            + others(
                file["contract"],
                besides: [
                    "contract_definition_id", "contract_id", "pdf_file_name", "pdf_file_path", "message_title",
                    "message_body", "keep_on_move",
                ])
            + elements("contract_properties", of: file).flatMap {
                others($0, besides: ["key", "value", "to_fill_by_user"])
            }
            + elements("files", of: file).flatMap { others($0, besides: ["path", "name", "type"]) }
    }

    public static func == (one: Self, other: Self) -> Bool { one.json == other.json }

    /// The most that the URL of a callback has, in bytes.
    private static let maximumURL = 8 << 10

    static func callback(_ name: String, of file: MemberReader) throws(ProviderError) -> String? {
        guard let member = file[name] else { return nil }
        let url = try member.string()
        guard !url.isEmpty else { return nil }
        guard url.utf8.count <= maximumURL else { throw member.malformed("has more than \(maximumURL) bytes") }
        let scheme = url.utf8.prefix { $0 != UInt8(ascii: ":") }
        guard scheme.count < url.utf8.count, let first = scheme.first, Self.isLetter(first),
            scheme.allSatisfy({ Self.isLetter($0) || (0x30...0x39).contains($0) || "+-.".utf8.contains($0) }),
            url.utf8.allSatisfy({ (0x21...0x7e).contains($0) && !"\"<>\\^`{|}".utf8.contains($0) })
        else { throw member.malformed("is no URL (RFC 3986)") }
        return url
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7a).contains(byte | 0x20) }
}
