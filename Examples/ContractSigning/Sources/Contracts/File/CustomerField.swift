/// The customer's fields that are known.
package enum CustomerField {
    static let firstName = "firstname"
    static let lastName = "lastname"
    package static let mobile = "cellPhone"
    package static let mail = "email"

    /// By the names that the vendor's page has.
    private static let names = [
        "civility", firstName, lastName, mail, mobile, "phone", "companyName", "jobTitle", "registrationNumber",
        "birthdate", "birthplace", "address_1", "address_2", "postal_code", "city", "country", "customer_code",
    ]
    /// Words that the page has without a separator.
    private static let others = [
        "first_name": firstName, "last_name": lastName, "birth_date": "birthdate", "birth_place": "birthplace",
    ]

    /// From each spelling to the page's.
    private static let spellings: [String: String] = {
        var spellings: [String: String] = [:]
        for (spelling, name) in Dictionary(uniqueKeysWithValues: names.map { ($0, $0) }).merging(
            others, uniquingKeysWith: { one, _ in one })
        {
            for variant in [spelling, camelCase(spelling), snakeCase(spelling)] { spellings[variant] = name }
        }
        return spellings
    }()

    private static func camelCase(_ name: String) -> String {
        let words = name.split(separator: "_")
        return words.enumerated().map { $0 == 0 ? String($1) : $1.prefix(1).uppercased() + $1.dropFirst() }.joined()
    }

    private static func snakeCase(_ name: String) -> String {
        name.map { $0.isUppercase ? "_\($0.lowercased())" : String($0) }.joined()
    }

    /// Returns the page's name of a field in either spelling; `nil` for one that is not known.
    static func name(of key: String) -> String? { spellings[key] }

    /// An address with all but its last two digits hidden: `…78`; a mail address with all but the first character of its name: `a…@example.com`.
    static func masked(_ address: String) -> String {
        guard let at = address.lastIndex(of: "@") else { return "…\(address.filter(\.isNumber).suffix(2))" }
        return "\(address.prefix(1))…\(address[at...])"
    }

    /// What is wrong with an address that a code is to be sent to; `nil` if it can be one.
    package static func flaw(of value: String, in field: String) -> String? {
        switch field {
        case mail:
            let halves = value.split(separator: "@", omittingEmptySubsequences: false)
            let isAddress =
                halves.count == 2 && halves.allSatisfy { !$0.isEmpty } && value.utf8.count <= 254
                && value.unicodeScalars.allSatisfy {
                    $0.value > 0x20 && $0.value != 0x7f && !"<>,;\"\\".unicodeScalars.contains($0)
                }
                && !value.contains { $0.isWhitespace }
            return isAddress ? nil : "is no mail address"
        case mobile:
            let digits = value.utf8.count { (0x30...0x39).contains($0) }
            let isNumber =
                (4...20).contains(digits) && value.utf8.count <= 40
                && value.utf8.allSatisfy { (0x30...0x39).contains($0) || "+ -./()".utf8.contains($0) }
            return isNumber ? nil : "is no number of a telephone"
        default: return nil
        }
    }
}
