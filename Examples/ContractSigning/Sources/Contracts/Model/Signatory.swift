import CertificateProviding

/// The way of a code to a signatory.
public enum CodeChannel: String, CaseIterable, Codable, Sendable {
    case textMessage = "text message"
    case mail

    /// The field with the address, and the name of that field in messages.
    package var field: String {
        switch self {
        case .textMessage: CustomerField.mobile
        case .mail: CustomerField.mail
        }
    }
}

/// One of the people who sign a contract: the customer, or one of the contractors.
public struct Signatory: Sendable {
    private static let maximumNumber = 255
    private static let listMember = "contractors"

    /// The member of the file: `customer`, `contractors[0]`.
    public let member: String
    /// The number in the caller's system; `nil` for a contractor without one.
    public let number: String?
    public let mode: ContractContent.Mode
    /// The fields that have a value, in the file's order: names as the page has them (`cellPhone`).
    public let fields: [(key: String, value: String)]
    /// The fields that the mode needs and that have no value.
    let missingFields: [String]

    /// Reads all signatories of a file: the customer, then the contractors.
    static func read(in file: MemberReader) throws(ProviderError) -> [Signatory] {
        let customer = try Signatory(try file.required("customer"), isCustomer: true, mode: nil)
        let contractors = try file.objects(listMember)
        guard contractors.count < ContractContent.maximumSignatories else {
            throw contractors[ContractContent.maximumSignatories - 1].malformed(
                "is one signatory too many; at most \(ContractContent.maximumSignatories) are taken")
        }
        return try [customer]
            + contractors.map { (reader) throws(ProviderError) in
                try Signatory(reader, isCustomer: false, mode: customer.mode)
            }
    }

    /// - Parameter mode: Of one that has none.
    private init(
        _ person: MemberReader, isCustomer: Bool, mode given: ContractContent.Mode?
    ) throws(ProviderError) {
        try person.requireObject()
        member = person.path
        let id = try person["contractor_id"]?.integer()
        if let reader = try isCustomer ? person.required("number") : person["number"] {
            let number = try reader.string()
            guard !number.isEmpty, number.unicodeScalars.count <= Self.maximumNumber else {
                throw reader.malformed("has not 1 to \(Self.maximumNumber) characters")
            }
            self.number = number
        } else {
            number = id.flatMap { $0 == -1 ? nil : "\($0)" }
        }
        if let given, person["mode"] == nil {
            mode = given
        } else {
            let reader = try person.required("mode")
            guard let value = reader.value.integer, let mode = ContractContent.Mode(rawValue: value) else {
                throw reader.malformed(
                    "is none of 1 (text message), 2 (at this host) and 3 (text message and mail)")
            }
            self.mode = mode
        }
        let needed = [CustomerField.firstName, CustomerField.lastName] + mode.channels.map(\.field)
        var fields: [(key: String, value: String)] = []
        var keys: Set<String> = []
        for field in try person.objects("fields") {
            let key = try field.required("key")
            let name = try key.string()
            let known = CustomerField.name(of: name) ?? name
            guard !name.isEmpty else { throw key.malformed("is empty") }
            guard keys.insert(known).inserted else {
                throw key.malformed("is the field \(JSONPath.visible(known)), which is there already")
            }
            guard let member = field["value"] else { continue }
            let value = try member.plainText()
            guard !value.isBlank else { continue }
            if needed.contains(known), let flaw = CustomerField.flaw(of: value, in: known) {
                throw member.malformed("\(flaw), which the mode \(mode.rawValue) needs")
            }
            fields.append((known, value))
        }
        self.fields = fields
        missingFields = needed.filter { name in !fields.contains { $0.key == name } }
    }

    /// The first and last name; `-` without them.
    public var name: String {
        let parts = [CustomerField.firstName, CustomerField.lastName].compactMap(value)
        return parts.isEmpty ? "-" : parts.joined(separator: " ")
    }

    /// The codes that show who approves, and where they go; none in mode 2. An address that is missing is left out.
    public var codes: [(channel: CodeChannel, address: String)] {
        mode.channels.compactMap { channel in value(of: channel.field).map { (channel, $0) } }
    }

    private func value(of field: String) -> String? { fields.first { $0.key == field }?.value }

    /// In front of a field in the keys that `complete` takes: empty for the customer.
    var prefix: String { member.hasPrefix(Self.listMember) ? member + "." : "" }

    /// ``missingFields``, by the keys that `complete` takes.
    var missing: [String] { missingFields.map { prefix + $0 } }

    /// Whether a text means this signatory: its number, or its name.
    func isMeant(by text: String) -> Bool { text == number || text.lowercased() == name.lowercased() }
}

extension ContractContent.Mode {
    /// The ways of the codes that a signatory types. In mode 3 there are two codes: one code sent both ways would show one address only.
    public var channels: [CodeChannel] {
        switch self {
        case .textMessage: [.textMessage]
        case .person: []
        case .mail: [.textMessage, .mail]
        }
    }
}

extension JSONValue {
    /// Changes the people of a file, in the order of ``ContractContent/signatories``.
    mutating func changeSignatories(_ body: (_ index: Int, _ person: inout JSONValue) -> Void) {
        if var customer = self["customer"] {
            body(0, &customer)
            set("customer", customer)
        }
        guard var contractors = self["contractors"]?.array else { return }
        for index in contractors.indices { body(index + 1, &contractors[index]) }
        set("contractors", .array(contractors))
    }
}
