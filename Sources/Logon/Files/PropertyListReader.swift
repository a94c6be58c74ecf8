import CertificateProviding

/// Reads the settings of an XML property list.
///
/// Accepts only bounded, unambiguous input: UTF-8, one dictionary, no internal DTD subset, no entities other than XML's own five and
/// numeric ones. Foundation's decoder does not detect duplicate keys, and recurses as deep as the text demands.
///
/// Nested dictionaries are flattened like in swift-configuration, with the names joined by dots. So `CertificateProvider.pkcs12` may be
/// a dictionary with that provider's parameters, beside the string `CertificateProvider`, or each parameter may be a key of its own.
/// Integers and booleans are read as the text that they have in a property file.
struct PropertyListReader {
    static let maximumDepth = 8
    private static let scalars: Set = ["string", "true", "false", "integer", "real", "data", "date"]
    private static let containers: Set = ["array", "dict"]

    private var markup: PropertyListMarkup
    private var settings = Settings()
    /// The line of each path of keys, including those of dictionaries.
    private var lines: [String: Int] = [:]

    private init(_ text: ConfigurationText) { markup = PropertyListMarkup(text) }

    /// Parses a property list.
    ///
    /// - Parameter file: The name of the file in errors.
    /// - Throws: `configurationInvalid`, with file and line, and the key if there is one. Never shows a value.
    static func settings(in bytes: [UInt8], file: String) throws(ProviderError) -> Settings {
        guard !bytes.starts(with: Array("bplist".utf8)) else {
            throw SourcePosition(file: file, line: 1).invalid(
                "This is a binary property list; convert it with: plutil -convert xml1")
        }
        var reader = PropertyListReader(try ConfigurationText(bytes, file: file))
        try reader.read()
        return reader.settings
    }

    private mutating func read() throws(ProviderError) {
        try markup.skipProlog()
        let root = try markup.startTag()
        guard root.name == "plist", !root.isEmpty else { throw invalid("A property list must begin with <plist>.") }
        let top = try markup.startTag()
        guard top.name == "dict" else { throw invalid("A property list of settings must contain one dictionary.") }
        if !top.isEmpty { try scanDictionary(path: [], depth: 1) }
        try markup.skipMiscellaneous()
        guard try markup.takeEndTag() == "plist" else { throw invalid("</plist> is missing; add it.") }
        try markup.skipMiscellaneous()
        guard markup.isAtEnd else { throw invalid("There is text after </plist>; remove it.") }
    }

    private func invalid(_ problem: String) -> ProviderError { markup.position.invalid(problem) }

    private func invalid(_ problem: String, key: String) -> ProviderError {
        markup.position.invalid("The key '\(key.forDisplay)' \(problem).")
    }
}

// MARK: - Values

extension PropertyListReader {
    private mutating func scanDictionary(path: [String], depth: Int) throws(ProviderError) {
        try checkDepth(depth)
        while true {
            try markup.skipMiscellaneous()
            if let end = try markup.takeEndTag() {
                guard end == "dict" else { throw invalid("</dict> is missing; add it.") }
                return
            }
            let tag = try markup.startTag()
            let start = markup.position
            guard tag.name == "key" else { throw invalid("In a dictionary, each value must follow a <key>.") }
            let name = tag.isEmpty ? "" : try markup.content(of: "key")
            guard !name.isEmpty else { throw start.invalid("The key is empty; name it, or remove its value.") }
            let key = (path + [name]).joined(separator: ".")
            try register(key, at: start)
            try scanValue(of: key, path: path + [name], at: start, depth: depth)
        }
    }

    private func checkDepth(_ depth: Int) throws(ProviderError) {
        guard depth <= Self.maximumDepth else {
            throw invalid(
                "Values are nested deeper than \(Self.maximumDepth) levels; join their keys with dots instead.")
        }
    }

    private mutating func register(_ key: String, at start: SourcePosition) throws(ProviderError) {
        if let first = lines.updateValue(start.line, forKey: key) {
            throw start.invalid("The key '\(key.forDisplay)' is already set in line \(first); remove one of them.")
        }
        // Bounded here and not only by Settings, for keys of dictionaries.
        guard key.utf8.count <= Settings.maximumKeyLength else { throw start.keyTooLong }
        guard lines.count <= Settings.maximumCount else {
            throw start.invalid("The file has more than \(Settings.maximumCount) keys; remove some.")
        }
    }

    private mutating func scanValue(
        of key: String, path: [String], at start: SourcePosition, depth: Int
    ) throws(ProviderError) {
        try markup.skipMiscellaneous()
        let tag = try markup.startTag()
        let value: String?
        switch tag.name {
        case "dict":
            if !tag.isEmpty { try scanDictionary(path: path, depth: depth + 1) }
            return
        case "string", "true", "false", "integer": value = try scanScalar(tag, of: key)
        default:
            try skip(tag, of: key, depth: depth + 1)
            value = nil
        }
        try settings.append(Setting(key: key, value: value, position: start))
    }

    /// Skips a value of a type that settings do not have, with its content: real files contain other programs' keys
    /// too.
    private mutating func skip(
        _ tag: PropertyListMarkup.Tag, of key: String, depth: Int
    ) throws(ProviderError) {
        // First, since errors about the content show the tag's name: from here on it is one of a property list's.
        guard Self.scalars.contains(tag.name) || Self.containers.contains(tag.name) else {
            throw invalid("has a value of an unknown type", key: key)
        }
        guard !tag.isEmpty else { return }
        guard Self.containers.contains(tag.name) else {
            _ = try markup.content(of: tag.name)
            return
        }
        try checkDepth(depth)
        while true {
            try markup.skipMiscellaneous()
            if let end = try markup.takeEndTag() {
                guard end == tag.name else { throw invalid("</\(tag.name)> is missing.") }
                return
            }
            let inner = try markup.startTag()
            if inner.name == "key", tag.name == "dict" {
                if !inner.isEmpty { _ = try markup.content(of: "key") }
            } else {
                try skip(inner, of: key, depth: depth + 1)
            }
        }
    }

    private mutating func scanScalar(
        _ tag: PropertyListMarkup.Tag, of key: String
    ) throws(ProviderError) -> String {
        let start = markup.position
        let content = tag.isEmpty ? "" : try markup.content(of: tag.name)
        switch tag.name {
        case "string": return content
        case "integer":
            let digits = (content.hasPrefix("-") ? content.dropFirst() : content[...]).utf8
            guard (1...18).contains(digits.count), digits.allSatisfy(\.isDigit), let number = Int(content) else {
                throw invalid("must be an integer of decimal digits", key: key)
            }
            return String(number)
        default:
            guard content.isEmpty else { throw start.invalid("<\(tag.name)/> must be empty.") }
            return tag.name
        }
    }
}
