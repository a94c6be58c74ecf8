extension ContractContent {
    /// Whether another content is this one with missing values filled in, all of them, some or none, and with nothing else changed.
    package func isFilled(in other: ContractContent) -> Bool {
        withoutMissing(in: json) == withoutMissing(in: other.json)
    }

    /// The fields of the customer that are ``missing``.
    var missingFields: [String] { missing.dropLast(properties.count(where: \.isMissing)) }

    /// Returns a file without the values that are missing in this content.
    private func withoutMissing(in json: JSONValue) -> JSONValue {
        var json = json
        let open = Set(properties.lazy.filter(\.isMissing).map(\.key))
        let fields = Set(missingFields)
        if !fields.isEmpty, var customer = json["customer"] {
            let others = (customer["fields"]?.array ?? []).filter { field in
                !(field["key"]?.string.flatMap(CustomerField.name).map(fields.contains) ?? false)
            }
            customer.set("fields", .array(others))
            json.set("customer", customer)
        }
        if !open.isEmpty, let members = json[Property.member]?.array {
            let others = members.map { member in
                guard let key = member["key"]?.string, open.contains(key) else { return member }
                var member = member
                member.set("value", .null)
                return member
            }
            json.set(Property.member, .array(others))
        }
        return json
    }
}
