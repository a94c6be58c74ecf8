import CertificateProviding

// How single values are written in a property file.

extension String {
    /// The trimmed members of a comma-separated list; empty for a blank text.
    package var commaSeparated: [String] {
        let text = trimmed
        guard !text.isEmpty else { return [] }
        return text.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
    }
}

extension Bool {
    /// Reads `true` or `false` in any case; `nil` for any other text.
    package init?(propertyText: String) {
        switch propertyText.lowercased() {
        case "true": self = true
        case "false": self = false
        default: return nil
        }
    }
}
