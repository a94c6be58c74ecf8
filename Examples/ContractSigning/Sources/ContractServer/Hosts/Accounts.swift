import CertificateProviding

/// The accounts that hosts are paired with, by their email addresses.
struct Accounts: Sendable {
    /// By their bytes, as the database compares them: strings can be equal whose bytes are not.
    private let names: Set<[UInt8]>

    init(_ names: some Sequence<String>) { self.names = Set(names.map { Array($0.utf8) }) }

    /// - Parameter file: One address in each line; empty lines and those that begin with `#` are none.
    init(file: String) throws {
        self.init(
            try ConfigurationError.lines(ofFile: file, option: "--accounts", of: "an email address") { name in
                Self.isEmailAddress(name)
                    ? nil : "is no email address: \(DisplayText.visible(name)). Write one address in each line."
            })
    }

    func contains(_ name: String) -> Bool { names.contains(Array(name.utf8)) }

    /// Whether there is one `@` with something on both sides, and no white space, comma, bracket or control character.
    private static func isEmailAddress(_ text: String) -> Bool {
        let parts = text.split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty } && text.utf8.count <= 254
            && text.unicodeScalars.allSatisfy {
                !$0.properties.isWhitespace && $0.value > 32 && !(127...159).contains($0.value)
                    && !",;<>()\"\u{FEFF}".unicodeScalars.contains($0)
            }
    }
}
