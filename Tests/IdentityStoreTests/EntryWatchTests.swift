import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

/// What another process does to an entry that a running one has looked at.
@Suite struct EntryWatchTests {
    private let fixture: StoreFixture
    private let clock = TurnedClock()
    private let running: any IdentityStorage
    private let version: EntryVersion
    private var file: String { fixture.directory[StoreFixture.entryFile] }

    private final class TurnedClock: Sendable {
        private let instant = Mutex(ContinuousClock.now)
        var now: ContinuousClock.Instant { instant.withLock { $0 } }
        func turn(by duration: Duration) { instant.withLock { $0 += duration } }
    }

    init() throws {
        fixture = try StoreFixture()
        let clock = clock
        let store = IdentityStore(
            path: fixture.path, keySource: nil, files: fixture.disk.fileSystem, now: { clock.now })
        running = store.storage(for: ProviderID("test"))
        try running.setEntry(try Samples.stored("first"), named: "entry")
        version = try #require(try running.version(ofEntryNamed: "entry"))
    }

    @Test func nothingNewIsTheSameVersion() throws {
        #expect(try running.version(ofEntryNamed: "entry") == version)
        clock.turn(by: EntryWatch.validity * 2)
        #expect(try running.version(ofEntryNamed: "entry") == version)
    }

    @Test func aRemovedEntryIsNoticedAtOnce() throws {
        unlink(file)
        #expect(try running.version(ofEntryNamed: "entry") == nil)
        try fixture.storage().setEntry(try Samples.stored("second"), named: "entry")
        #expect(try running.version(ofEntryNamed: "entry") != version)
    }

    @Test func aRenamedEntryIsNoticedAtOnce() throws {
        rename(file, file + "-old")
        #expect(try running.version(ofEntryNamed: "entry") == nil)
        rename(file + "-old", file)
        #expect(try running.version(ofEntryNamed: "entry") != nil)
    }

    @Test func anEntryThatIsReplacedAgainAndAgainIsNoticedAtOnce() throws {
        let identity = try Samples.stored("the same")
        for _ in 0..<50 {
            let before = try running.version(ofEntryNamed: "entry")
            try fixture.storage().setEntry(identity, named: "entry")
            #expect(try running.version(ofEntryNamed: "entry") != before)
        }
    }

    @Test func anEntryThatIsWrittenOverIsNoticedAtOnce() throws {
        try fixture.directory.write([UInt8](repeating: 0, count: 100), to: StoreFixture.entryFile)
        #expect(try running.version(ofEntryNamed: "entry") != version)
        #expect(throws: CertificateProviderError.self) { try running.entry(named: "entry") }
    }

    /// This is what the entry's own file does not show.
    @Test(arguments: ["state", "state/identities", "state/identities/test"])
    func aDirectoryThatIsMovedAsideIsNoticedSoon(folder: String) throws {
        try #require(rename(fixture.directory[folder], fixture.directory["old"]) == 0)
        clock.turn(by: EntryWatch.validity)
        #expect(try running.version(ofEntryNamed: "entry") == nil)
        let second = try Samples.stored("second")
        try fixture.storage().setEntry(second, named: "entry")
        let later = try #require(try running.version(ofEntryNamed: "entry"))
        #expect(later != version)
        #expect(try running.entry(named: "entry") == second)
    }

    @Test func entriesInTurnAreNotTakenForEachOther() throws {
        try running.setEntry(try Samples.stored("other"), named: "other")
        for _ in 0..<3 {
            let other = try #require(try running.version(ofEntryNamed: "other"))
            #expect(other != version)
            #expect(try running.version(ofEntryNamed: "entry") == version)
        }
        #expect(try running.version(ofEntryNamed: "none") == nil)
    }

    @Test func noDescriptorIsKeptOfAnEntryThatIsDeleted() throws {
        let before = try openFiles()
        #expect(before.contains { $0.hasSuffix(StoreFixture.entryFile) })
        try running.removeEntry(named: "entry")
        #expect(try !openFiles().contains { $0.contains(fixture.path) && $0.contains("entry") })
    }

    private func openFiles() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        }
    }
}
