import CertificateProviding
import Logon
public import Configuration

/// Java properties for swift-configuration, for its `FileProvider` and `ReloadingFileProvider`.
///
/// The components of a key are joined by dots. Lists are separated by commas; numbers, booleans and list members are
/// trimmed, and booleans are `true` or `false` in any case. Bytes are not supported.
///
/// Descriptions never show values, and by default every value is marked as secret.
public struct PropertiesSnapshot: Sendable {
    /// Options for reading a file.
    public struct ParsingOptions: FileParsingOptions {
        /// The name of the file in errors; a snapshot does not know where its data comes from.
        public var fileName: String
        /// The values that access reporters must not show.
        public var secretsSpecifier: SecretsSpecifier<String, String>

        /// Creates options.
        public init(fileName: String = "properties", secretsSpecifier: SecretsSpecifier<String, String> = .all) {
            self.fileName = fileName
            self.secretsSpecifier = secretsSpecifier
        }

        /// The options of ``init(fileName:secretsSpecifier:)`` without arguments.
        public static var `default`: Self { Self() }
    }

    /// The name of the configuration provider.
    public let providerName: String
    private let settings: Settings
    private let secretsSpecifier: SecretsSpecifier<String, String>
}

extension PropertiesSnapshot: FileConfigSnapshot {
    /// Reads a property file.
    ///
    /// - Throws: ``/CertificateProviding/ProviderError`` `configurationInvalid`, with file and line.
    public init(data: RawSpan, providerName: String, parsingOptions: ParsingOptions) throws {
        let bytes = data.withUnsafeBytes { Array($0) }
        self.settings = try PropertiesParser.settings(in: bytes, file: parsingOptions.fileName)
        self.providerName = providerName
        self.secretsSpecifier = parsingOptions.secretsSpecifier
    }

    /// Returns the value of a key, converted to `type`; no value if the key is not set.
    ///
    /// - Throws: ``/CertificateProviding/ProviderError`` `configurationInvalid`, with file, line and key,
    ///   for a value of another type.
    public func value(forKey key: AbsoluteConfigKey, type: ConfigType) throws -> LookupResult {
        let name = key.components.joined(separator: ".")
        guard let setting = settings[name], let text = setting.value else {
            return LookupResult(encodedKey: name, value: nil)
        }
        guard let content = Self.content(of: text, as: type) else {
            throw setting.position.invalid("The value of '\(name.forDisplay)' is not of type \(type.rawValue).")
        }
        let isSecret = secretsSpecifier.isSecret(key: name, value: text)
        return LookupResult(encodedKey: name, value: ConfigValue(content, isSecret: isSecret))
    }

    private static func content(of text: String, as type: ConfigType) -> ConfigContent? {
        switch type {
        case .string: .string(text)
        case .int: Int(text.trimmed).map { .int($0) }
        case .double: Double(text.trimmed).map { .double($0) }
        case .bool: Bool(propertyText: text.trimmed).map { .bool($0) }
        case .stringArray: .stringArray(text.commaSeparated)
        case .intArray: all(text.commaSeparated.map { Int($0) }).map { .intArray($0) }
        case .doubleArray: all(text.commaSeparated.map { Double($0) }).map { .doubleArray($0) }
        case .boolArray: all(text.commaSeparated.map { Bool(propertyText: $0) }).map { .boolArray($0) }
        case .bytes, .byteChunkArray: nil
        }
    }

    private static func all<T>(_ values: [T?]) -> [T]? {
        let present = values.compactMap { $0 }
        return present.count == values.count ? present : nil
    }
}

extension PropertiesSnapshot: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { "\(providerName)[\(settings.all.count) values]" }

    public var debugDescription: String {
        let keys = settings.all.map { ($0.isKeyCertain ? $0.key.forDisplay : "…") + "=<REDACTED>" }.sorted()
        return "\(providerName)[\(settings.all.count) values: \(keys.joined(separator: ", "))]"
    }

    public var customMirror: Mirror { Mirror(self, children: []) }
}
