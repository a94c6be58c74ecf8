import CertificateProviding
import LogonCore
import Configuration

/// Reads the settings of an XML property list: the scanner finds the keys, swift-configuration the values.
///
/// Nested dictionaries are flattened as swift-configuration does it, the names joined by dots. So
/// `CertificateProvider.pkcs12` may be a dictionary of that provider's parameters, beside the string
/// `CertificateProvider`, or each parameter a key of its own. Integers and booleans read as the text that stands for
/// them in a property file.
enum PropertyListReader {
    /// - Parameter file: What errors call the file.
    /// - Throws: `configurationInvalid`, with file and line, and the key where there is one. Never shows a value.
    static func settings(in bytes: [UInt8], file: String) throws(CertificateProviderError) -> Settings {
        let beginning = SourcePosition(file: file, line: 1)
        guard !bytes.starts(with: Array("bplist".utf8)) else {
            throw beginning.invalid("This is a binary property list; convert it with: plutil -convert xml1")
        }
        let text = try ConfigurationText(bytes, file: file)
        let contents = try PropertyListScanner.contents(of: text)
        let snapshot: PropertyListSnapshot
        do {
            snapshot = try PropertyListSnapshot(
                data: contents.text.span.bytes, providerName: file, parsingOptions: .default)
        } catch {
            // What Foundation says may quote the text, so it goes no further.
            throw beginning.invalid("Foundation cannot read this property list; check it with: plutil -lint")
        }
        var settings = Settings()
        for entry in contents.entries {
            let value = try value(of: entry, in: snapshot)
            try settings.append(Setting(key: entry.key, value: value, position: entry.position))
        }
        return settings
    }

    private static func value(
        of entry: PropertyListScanner.Entry, in snapshot: PropertyListSnapshot
    ) throws(CertificateProviderError) -> String? {
        let type: ConfigType
        switch entry.kind {
        case .string: type = .string
        case .integer: type = .int
        case .boolean: type = .bool
        case .other: return nil
        }
        let result = try? snapshot.value(forKey: AbsoluteConfigKey([entry.key]), type: type)
        switch result?.value?.content {
        case .string(let text): return text
        case .int(let number): return String(number)
        case .bool(let flag): return String(flag)
        default:
            throw entry.position.invalid("The value of '\(entry.key.forDisplay)' cannot be read; write it as a string.")
        }
    }
}
