public import CertificateProviding

extension ContractContent {
    /// The most characters of a value that is filled in.
    private static let maximumValue = 10_000

    /// Returns the content with values filled in: of ``missing`` only, all of them or some.
    ///
    /// - Throws: `notFound` for a key that is not missing, naming those that are; `malformedData` for a value that does not fit.
    public func filling(_ values: [String: String]) throws(ProviderError) -> ContractContent {
        var fields: [String: String] = [:]
        var filled: [String: String] = [:]
        for (key, value) in values.sorted(by: { $0.key < $1.key }) {
            // A field of the customer in either spelling.
            let field = CustomerField.name(of: key)
            guard let name = [key, field].compactMap(\.self).first(where: missing.contains) else {
                let keys = missing.map(JSONPath.visible).joined(separator: ", ")
                throw ProviderError(
                    .notFound,
                    "The contract has no value \(JSONPath.visible(key)) to fill in: "
                        + (missing.isEmpty ? "nothing is missing." : "missing are \(keys)."))
            }
            if let flaw = Self.flaw(of: value, in: name) {
                throw ProviderError(.malformedData, "\(JSONPath.visible(name)): \(flaw).")
            }
            guard filled.updateValue(value, forKey: name) == nil else {
                throw ProviderError(
                    .malformedData, "\(JSONPath.visible(name)): is there twice, in two spellings.")
            }
            let isProperty = properties.contains { $0.isMissing && $0.fillingKey(besides: missingFields) == name }
            if !isProperty { fields[name] = value }
        }
        var json = json
        fill(fields, in: &json)
        fillProperties(filled, in: &json)
        let content = try ContractContent(json)
        try content.requireSendable()
        return content
    }

    private static func flaw(of value: String, in name: String) -> String? {
        if value.isBlank { return "is empty" }
        if value.unicodeScalars.count > maximumValue { return "has more than \(maximumValue) characters" }
        if value.unicodeScalars.contains(where: {
            $0.properties.generalCategory == .control && $0 != "\n" && $0 != "\t"
        }) {
            return "has control characters"
        }
        return CustomerField.flaw(of: value, in: name)
    }

    /// Fills in fields of the customer, by the page's names.
    private func fill(_ values: [String: String], in json: inout JSONValue) {
        guard !values.isEmpty, var customer = json["customer"] else { return }
        var rest = values
        var fields = (customer["fields"]?.array ?? []).map { field in
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
        customer.set("fields", .array(fields))
        json.set("customer", customer)
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
