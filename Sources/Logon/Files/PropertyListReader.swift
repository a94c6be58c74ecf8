import CertificateProviding
import FoundationEssentials

/// Reads the settings of an XML property list: the scanner finds the keys, Foundation's decoder reads the values.
///
/// Nested dictionaries are flattened like in swift-configuration, with the names joined by dots. So
/// `CertificateProvider.pkcs12` may be a dictionary with that provider's parameters, beside the string
/// `CertificateProvider`, or each parameter may be a key of its own. Integers and booleans are read as the text that
/// they have in a property file.
///
/// swift-configuration itself is not used: it loads all of Foundation at each start of the command.
enum PropertyListReader {
    /// Parses a property list.
    ///
    /// - Parameter file: The name of the file in errors.
    /// - Throws: `configurationInvalid`, with file and line, and the key if there is one. Never shows a value.
    static func settings(in bytes: [UInt8], file: String) throws(CertificateProviderError) -> Settings {
        let beginning = SourcePosition(file: file, line: 1)
        guard !bytes.starts(with: Array("bplist".utf8)) else {
            throw beginning.invalid("This is a binary property list; convert it with: plutil -convert xml1")
        }
        let text = try ConfigurationText(bytes, file: file)
        let contents = try PropertyListScanner.contents(of: text)
        var values: [String: PropertyListValue] = [:]
        do {
            try PropertyListDecoder().decode(PropertyListValue.self, from: Data(contents.text)).flatten(into: &values)
        } catch {
            // Foundation's message may quote the text, so it goes no further.
            throw beginning.invalid("Foundation cannot read this property list; check it with: plutil -lint")
        }
        var settings = Settings()
        for entry in contents.entries {
            let value = try value(of: entry, in: values)
            try settings.append(Setting(key: entry.key, value: value, position: entry.position))
        }
        return settings
    }

    private static func value(
        of entry: PropertyListScanner.Entry, in values: [String: PropertyListValue]
    ) throws(CertificateProviderError) -> String? {
        switch (entry.kind, values[entry.key]) {
        case (.other, _): return nil
        case (.string, .string(let text)): return text
        case (.integer, .integer(let number)): return String(number)
        case (.boolean, .boolean(let flag)): return String(flag)
        default:
            throw entry.position.invalid("The value of '\(entry.key.forDisplay)' cannot be read; write it as a string.")
        }
    }
}

/// A value of a property list that settings support.
private enum PropertyListValue: Decodable {
    case dictionary([String: PropertyListValue])
    case string(String)
    case integer(Int)
    case boolean(Bool)
    /// A value of another type or size, such as an integer that is too large.
    case unreadable

    init(from decoder: any Decoder) throws {
        if let dictionary = try? decoder.container(keyedBy: Key.self) {
            var values: [String: PropertyListValue] = [:]
            for key in dictionary.allKeys {
                values[key.stringValue] = try dictionary.decode(PropertyListValue.self, forKey: key)
            }
            self = .dictionary(values)
            return
        }
        let value = try decoder.singleValueContainer()
        if let flag = try? value.decode(Bool.self) {
            self = .boolean(flag)
        } else if let number = try? value.decode(Int.self) {
            self = .integer(number)
        } else if let text = try? value.decode(String.self) {
            self = .string(text)
        } else {
            self = .unreadable
        }
    }

    /// Adds the values that are not dictionaries, by the path of names that leads to them.
    func flatten(into values: inout [String: PropertyListValue], path: [String] = []) {
        guard case .dictionary(let members) = self else {
            values[path.joined(separator: ".")] = self
            return
        }
        for (name, member) in members { member.flatten(into: &values, path: path + [name]) }
    }

    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}
