public import CertificateProviding

extension ContractContent {
    /// The most characters of a value that is filled in.
    private static let maximumValue = 10_000

    /// Returns the content with values filled in: of ``missing`` only, all of them or some.
    ///
    /// - Throws: `notFound` for a key that is not missing, naming those that are; `malformedData` for a value that does not fit.
    public func filling(_ values: [String: String]) throws(ProviderError) -> ContractContent {
        var filled: [String: String] = [:]
        for (key, value) in values.sorted(by: { $0.key < $1.key }) {
            // A field of a signatory in either spelling.
            let field = field(of: key)
            guard let name = missing.contains(key) ? key : field?.key else {
                let keys = missing.map(JSONPath.visible).joined(separator: ", ")
                throw ProviderError(
                    .notFound,
                    "The contract has no value \(JSONPath.visible(key)) to fill in: "
                        + (missing.isEmpty ? "nothing is missing." : "missing are \(keys)."))
            }
            if let flaw = Self.flaw(of: value, in: field?.name) {
                throw ProviderError(.malformedData, "\(JSONPath.visible(name)): \(flaw).")
            }
            guard filled.updateValue(value, forKey: name) == nil else {
                throw ProviderError(
                    .malformedData, "\(JSONPath.visible(name)): is there twice, in two spellings.")
            }
        }
        var json = json
        fillFields(filled, in: &json)
        fillProperties(filled, in: &json)
        let content = try ContractContent(json)
        try content.requireSendable()
        return content
    }

    /// The missing field of a signatory that a key means, and its key in ``missing``.
    private func field(of key: String) -> (key: String, name: String)? {
        let begin = key.lastIndex(of: ".").map(key.index(after:)) ?? key.startIndex
        guard let name = CustomerField.name(of: String(key[begin...])) else { return nil }
        let whole = String(key[..<begin]) + name
        return missingFields.contains(whole) ? (whole, name) : nil
    }

    /// - Parameter field: `nil` for a property.
    private static func flaw(of value: String, in field: String?) -> String? {
        if value.isBlank { return "is empty" }
        if value.unicodeScalars.count > maximumValue { return "has more than \(maximumValue) characters" }
        if value.unicodeScalars.contains(where: {
            $0.properties.generalCategory == .control && $0 != "\n" && $0 != "\t"
        }) {
            return "has control characters"
        }
        return field.flatMap { CustomerField.flaw(of: value, in: $0) }
    }

    private func fillFields(_ values: [String: String], in json: inout JSONValue) {
        json.changeSignatories { index, person in
            let signatory = signatories[index]
            var rest: [String: String] = [:]
            for name in signatory.missingFields { rest[name] = values[signatory.prefix + name] }
            guard !rest.isEmpty else { return }
            var fields = (person["fields"]?.array ?? []).map { field in
                guard let key = field["key"]?.string, let name = CustomerField.name(of: key),
                    let value = rest.removeValue(forKey: name)
                else { return field }
                var field = field
                field.set("value", .string(value))
                return field
            }
            for (name, value) in rest.sorted(by: { $0.key < $1.key }) {
                fields.append(.object([.init("key", .string(name)), .init("value", .string(value))]))
            }
            person.set("fields", .array(fields))
        }
    }

    private func fillProperties(_ values: [String: String], in json: inout JSONValue) {
        guard let members = json[Property.member]?.array else { return }
        let filled = zip(members, properties).map { member, property in
            guard property.isMissing, let value = values[property.fillingKey(besides: missingFields)] else {
                return member
            }
            var member = member
            member.set("value", .string(value))
            return member
        }
        json.set(Property.member, .array(filled))
    }
}
