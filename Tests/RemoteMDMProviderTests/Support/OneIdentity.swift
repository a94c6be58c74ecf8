import CertificateProviding
import TestSupport

/// Holds one identity, whatever its name: the same one for a server and for the same server with a fault. The data about a
/// server is its own.
struct OneIdentity: StorageWrapper {
    var wrapped: any IdentityStorage { storage }
    private let storage = InMemoryStorage()

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try storage.entry(named: "one")
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try storage.setEntry(identity, named: "one")
    }

    func removeEntry(named name: String) throws(ProviderError) { try storage.removeEntry(named: "one") }
    func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try storage.record(named: one(name))
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) { try storage.updateRecord(named: one(name), change) }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: "one")
    }

    private func one(_ name: String) -> String {
        name.hasPrefix("enrolment-") ? "one" : name.hasPrefix("owned-") ? "owned" : name
    }
}
