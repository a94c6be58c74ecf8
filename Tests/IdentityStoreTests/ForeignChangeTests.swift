import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// Changes by another process to an entry that a running one has read.
@Suite struct ForeignChangeTests {
    private let fixture: StoreFixture
    private let running: any IdentityStorage
    private let first: StoredIdentity
    private var file: String { fixture.directory[StoreFixture.entryFile] }

    init() throws {
        fixture = try StoreFixture()
        running = fixture.storage()
        first = try Samples.stored("first")
        try running.setEntry(first, named: "entry")
        #expect(try running.entry(named: "entry") == first)
    }

    @Test func aRemovedEntryIsNoticed() throws {
        unlink(file)
        #expect(try running.entry(named: "entry") == nil)
    }

    @Test func aRenamedEntryIsNoticed() throws {
        rename(file, file + "-old")
        #expect(try running.entry(named: "entry") == nil)
        rename(file + "-old", file)
        #expect(try running.entry(named: "entry") == first)
    }

    @Test func aReplacedEntryIsNoticed() throws {
        for name in ["second", "third", "first"] {
            let identity = try Samples.stored(name)
            try fixture.storage().setEntry(identity, named: "entry")
            #expect(try running.entry(named: "entry") == identity)
        }
    }

    @Test func anEntryThatIsWrittenOverIsNoticed() throws {
        try fixture.directory.write([UInt8](repeating: 0, count: 100), to: StoreFixture.entryFile)
        #expect(throws: ProviderError.self) { try running.entry(named: "entry") }
    }

    @Test(arguments: ["state", "state/identities", "state/identities/test"])
    func aDirectoryThatIsMovedAsideIsNoticed(folder: String) throws {
        try #require(rename(fixture.directory[folder], fixture.directory["old"]) == 0)
        #expect(try running.entry(named: "entry") == nil)
        let second = try Samples.stored("second")
        try fixture.storage().setEntry(second, named: "entry")
        #expect(try running.entry(named: "entry") == second)
    }
}
