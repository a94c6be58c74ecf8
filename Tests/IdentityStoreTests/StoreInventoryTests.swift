import CertificateProviding
import TestSupport
import Testing

@testable import IdentityStore

/// The entries of the store, whichever configuration they are from.
@Suite struct StoreInventoryTests {
    private let fixture: StoreFixture

    init() throws { fixture = try StoreFixture() }

    private func entry(_ name: String) throws -> StoreEntry {
        try #require(try fixture.store().entries().first { $0.name == name })
    }

    @Test("With an entry go the records that are named after it; with the last one of a configuration, all of that")
    func recordsGoWithTheirEntry() throws {
        let storage = fixture.storage()
        for name in ["a@1", "b@1", "a@2", "plain"] { try storage.setEntry(try Samples.stored(name), named: name) }
        let records = ["owned-a@1", "orders@1", "orders@2", "owned-plain", "rejected"]
        for name in records { try storage.updateRecord(named: name) { _ in SecretBytes(utf8: "x") } }
        try fixture.store().remove(try entry("a@1"))
        #expect(try storage.recordNames() == ["orders@1", "orders@2", "owned-plain", "rejected"])
        try fixture.store().remove(try entry("b@1"))
        #expect(try storage.recordNames() == ["orders@2", "owned-plain", "rejected"])
        try fixture.store().remove(try entry("plain"))
        #expect(try storage.recordNames() == ["orders@2", "rejected"])
        #expect(try storage.entryNames() == ["a@2"])
    }

    @Test func eachEntryThatIsAskedForIsReported() throws {
        let read = BlockingMutex<[String]>([])
        let storage = fixture.store().storage(for: ProviderID("test"), storedWith: nil) { path in
            read.withLock { $0.append(path) }
        }
        try storage.setEntry(try Samples.stored("a"), named: "a")
        _ = try storage.entry(named: "a")
        _ = try storage.entry(named: "b")
        #expect(read.withLock(\.self) == ["test/a", "test/b"])
    }
}
