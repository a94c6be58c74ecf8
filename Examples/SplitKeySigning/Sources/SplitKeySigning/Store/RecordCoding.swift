import CertificateProviding
import FoundationEssentials

/// JSON of records.
enum RecordCoding {
    private struct Version: Decodable { let version: Int }

    static func encode(_ value: some Encodable) throws(ProviderError) -> SecretBytes {
        do { return SecretBytes(copying: try JSONEncoder().encode(value)) } catch {
            throw ProviderError(.internal, "A record cannot be written: \(error).", underlying: error)
        }
    }

    /// - Throws: `storeReadFailed`, with the reason `damaged` for a record that is.
    static func decode<Value: Decodable>(
        _ type: Value.Type, _ record: SecretBytes, named name: String, version: Int
    ) throws(ProviderError) -> Value {
        try requireNotNewer(record, named: name, version: version)
        let data = record.withUnsafeBytes { Data($0) }
        do { return try JSONDecoder().decode(type, from: data) } catch { throw damaged(name) }
    }

    /// - Throws: `storeReadFailed` for a record that a newer version has written, which is not replaced either.
    static func requireNotNewer(
        _ record: SecretBytes, named name: String, version: Int
    ) throws(ProviderError) {
        let data = record.withUnsafeBytes { Data($0) }
        let found = (try? JSONDecoder().decode(Version.self, from: data))?.version ?? version
        guard found <= version else {
            throw ProviderError(
                .storeReadFailed,
                "The record \(name) is of format \(found); this version reads \(version). Use the newer version of dvs that has written it."
            )
        }
    }

    private static func damaged(_ name: String) -> ProviderError {
        ProviderError(
            .storeReadFailed, "The record \(name) is damaged; restore it from a backup, or enrol again: dvs enrol",
            reason: .damaged)
    }
}
