import FoundationEssentials

/// The format of one kind of record in an ``IdentityStorage``: JSON, with the format's version beside the fields of the content.
///
/// The content is encoded as a JSON object, and has no field `version` of its own. A record of a newer version is refused, so that
/// nothing of it is lost.
public struct VersionedRecord<Content: Codable & Sendable>: Sendable {
    private let version: Int
    private let subject: String
    private let remedy: String
    private let program: String

    /// Creates a format.
    ///
    /// - Parameters:
    ///   - version: The version of new records. It is raised when older versions cannot read the content.
    ///   - subject: The content in messages, after "The record of".
    ///   - remedy: The next step if a record is damaged.
    ///   - program: The program that writes it.
    public init(
        _ version: Int = 1, of subject: String, ifDamaged remedy: String, writtenBy program: String = "certprov"
    ) {
        (self.version, self.subject, self.remedy, self.program) = (version, subject, remedy, program)
    }

    /// Returns the content of a record.
    ///
    /// - Throws: `storeReadFailed`, with the reason `damaged` unless a newer version has written it.
    public func content(of record: SecretBytes) throws(ProviderError) -> Content {
        let data = record.withUnsafeBytes { Data($0) }
        let found = try? JSONDecoder().decode(Version.self, from: data).version
        if let found, found > version {
            throw ProviderError(
                .storeReadFailed, "The record of \(subject) was written by a newer \(program); update \(program).")
        }
        guard found == version, let content = try? JSONDecoder().decode(Content.self, from: data) else {
            throw damage
        }
        return content
    }

    /// The error for a record whose content cannot be: `storeReadFailed`, with the reason `damaged`.
    public var damage: ProviderError {
        ProviderError(.storeReadFailed, "The record of \(subject) is damaged; \(remedy).", reason: .damaged)
    }

    /// Returns the content of a record; `nil` if it is damaged.
    ///
    /// - Throws: `storeReadFailed` if a newer version has written it.
    public func undamagedContent(of record: SecretBytes) throws(ProviderError) -> Content? {
        do throws(ProviderError) { return try content(of: record) } catch {
            guard error.reason == .damaged else { throw error }
            return nil
        }
    }

    /// Returns a record of a content. Equal contents have equal records.
    ///
    /// - Throws: `internal` for a content that cannot be JSON.
    public func record(of content: Content) throws(ProviderError) -> SecretBytes {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        do { return SecretBytes(copying: try encoder.encode(Envelope(version: version, content: content))) } catch {
            throw ProviderError(.internal, "The record of \(subject) cannot be encoded.", underlying: error)
        }
    }

    private struct Version: Codable { let version: Int }

    private struct Envelope: Encodable {
        let version: Int
        let content: Content

        func encode(to encoder: any Encoder) throws {
            try content.encode(to: encoder)
            try Version(version: version).encode(to: encoder)
        }
    }
}
