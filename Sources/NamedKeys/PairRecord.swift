import CertificateProviding
import FoundationEssentials

/// The record of all named pairs: JSON, `{"version":1,"pairs":[…]}`. No record without a pair.
struct PairRecord {
    /// A pair, from before its private key may exist until after that is destroyed.
    struct Entry: Codable {
        enum State: String, Codable {
            /// The private key is being made. If no process is at it, the pair counts as absent.
            case making
            /// The pair can be used.
            case made
            /// The private key is being destroyed, or already is. The pair counts as absent.
            case deleting
        }

        let name: String
        let key: KeyReference
        /// Whether each use asks a person. Never changed.
        let confirm: Bool
        var state: State

        /// The pair; `nil` if it counts as absent.
        var pair: NamedKey? {
            guard state == .made, let name = KeyName(name) else { return nil }
            return NamedKey(name: name, publicKey: key.publicKey, uri: key.uri, isConfirmed: confirm)
        }

        func isOf(_ name: KeyName) -> Bool { KeyName(self.name) == name }

        /// A key that was imported may be in several stores.
        func has(_ key: KeyReference) -> Bool { self.key.publicKey == key.publicKey && self.key.uri == key.uri }
    }

    private struct Contents: Codable {
        static let version = 1
        var version = Self.version
        var pairs: [Entry]
    }

    private struct Version: Decodable { let version: Int }

    static let name = "named-keys"

    let storage: any IdentityStorage

    func entries() throws(ProviderError) -> [Entry] { try Self.decode(try storage.record(named: Self.name)) }

    func change(_ change: (inout [Entry]) -> Void) throws(ProviderError) {
        try storage.updateRecord(named: Self.name) { record throws(ProviderError) in
            var entries = try Self.decode(record)
            change(&entries)
            if entries.isEmpty { return SecretBytes(copying: []) }
            do { return SecretBytes(copying: try JSONEncoder().encode(Contents(pairs: entries))) } catch {
                throw ProviderError(
                    .internal, "The record of named key pairs cannot be encoded.", underlying: error)
            }
        }
    }

    func setState(_ state: Entry.State, of key: KeyReference) throws(ProviderError) {
        try change { entries in
            for index in entries.indices where entries[index].has(key) { entries[index].state = state }
        }
    }

    func remove(_ key: KeyReference) throws(ProviderError) {
        try change { $0.removeAll { $0.has(key) } }
    }

    private static func decode(_ record: SecretBytes?) throws(ProviderError) -> [Entry] {
        guard let record else { return [] }
        let data = record.withUnsafeBytes { Data($0) }
        if let found = try? JSONDecoder().decode(Version.self, from: data), found.version > Contents.version {
            throw ProviderError(
                .storeReadFailed,
                "The record of named key pairs was written by a newer version of certprov; update certprov.")
        }
        guard let contents = try? JSONDecoder().decode(Contents.self, from: data) else {
            throw ProviderError(
                .storeReadFailed,
                "The record of named key pairs is damaged; restore the state directory from a backup, or remove the record from it: "
                    + "records/\(NamedKeys.storageID)/\(name)", reason: .damaged)
        }
        return contents.pairs
    }
}
