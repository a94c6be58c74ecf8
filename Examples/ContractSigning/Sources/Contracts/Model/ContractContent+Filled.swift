extension ContractContent {
    /// Whether another content is this one with missing values filled in, all of them, some or none, and with nothing else changed.
    package func isFilled(in other: ContractContent) -> Bool {
        withoutMissing(in: json) == withoutMissing(in: other.json)
    }

    /// The fields of the signatories that are ``missing``.
    var missingFields: [String] { signatories.flatMap(\.missing) }

    /// Returns a file without the values that are missing in this content.
    private func withoutMissing(in json: JSONValue) -> JSONValue {
        var json = json
        let open = Set(properties.lazy.filter(\.isMissing).map(\.key))
        json.changeSignatories { index, person in
            guard signatories.indices.contains(index), !signatories[index].missingFields.isEmpty else { return }
            let others = (person["fields"]?.array ?? []).filter { field in
                let name = field["key"]?.string.flatMap(CustomerField.name)
                return !(name.map(signatories[index].missingFields.contains) ?? false)
            }
            person.set("fields", .array(others))
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
