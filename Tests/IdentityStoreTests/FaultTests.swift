import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

/// Every call by which the store changes the disk fails once, at every place where it is made.
@Suite struct FaultTests {
    struct Fault: Sendable, CustomTestStringConvertible {
        var call: FaultyDisk.Call
        var code: Int32
        var testDescription: String { "\(call) \(errorText(code))" }
    }

    /// The others are those of files for other programs, and of taking back what has failed.
    static let calls = FaultyDisk.Call.allCases.filter { ![.symbolicLink, .removeDirectory].contains($0) }

    static let faults = calls.flatMap { call in
        [ENOSPC, EIO, EROFS].map { Fault(call: call, code: $0) }
    }

    /// How often `call` is made while `body` runs without a fault.
    private func count(_ call: FaultyDisk.Call, with old: StoredIdentity?, _ new: StoredIdentity) throws -> Int {
        let fixture = try StoreFixture()
        if let old { try fixture.storage().setEntry(old, named: "entry") }
        fixture.disk.repair()
        try fixture.storage().setEntry(new, named: "entry")
        return fixture.disk.counts[call] ?? 0
    }

    @Test(arguments: faults, [true, false]) func leavesWhatWasThere(fault: Fault, hasOld: Bool) throws {
        let (old, new) = (hasOld ? try Samples.stored("old") : nil, try Samples.stored("new"))
        let calls = try count(fault.call, with: old, new)
        // Replacing and the first write differ in what they call; no position is left out in either.
        for position in 1..<(calls + 1) {
            let fixture = try StoreFixture()
            if let old { try fixture.storage().setEntry(old, named: "entry") }
            fixture.disk.fail(fault.call, at: position, with: fault.code)
            if fault.call == .unlink {
                // Only ever tidies up: what it leaves is harmless and goes next time.
                try fixture.storage().setEntry(new, named: "entry")
                #expect(try fixture.storage().entry(named: "entry") == new)
            } else {
                let error = try error { try fixture.storage().setEntry(new, named: "entry") }
                #expect(error.code == .storeWriteFailed, "at \(position)")
                #expect(error.provider == ProviderID("test"))
                #expect(error.message.contains(errorText(fault.code)), "\(error)")
                #expect(try fixture.storage().entry(named: "entry") == old, "at \(position)")
            }
            fixture.disk.repair()
            try fixture.storage().setEntry(new, named: "entry")
            #expect(try fixture.storage().entry(named: "entry") == new)
            #expect(fixture.leftovers.isEmpty, "at \(position)")
        }
    }

    @Test func coversEveryCall() throws {
        let old = try Samples.stored("old")
        for call in Self.calls {
            #expect(try count(call, with: nil, old) + count(call, with: old, old) > 0, "\(call)")
        }
    }

    @Test func finishesWritesThatAreCutShortOrInterrupted() throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("stuttering")
        fixture.disk.stutter()
        try fixture.storage().setEntry(identity, named: "entry")
        #expect((fixture.disk.counts[.write] ?? 0) > 100)
        #expect(try fixture.storage().entry(named: "entry") == identity)
    }

    @Test func aWriteThatTakesNothingIsAFailure() throws {
        let fixture = try StoreFixture()
        var files = FileSystem()
        files.write = { _, _ in 0 }
        let store = IdentityStore(path: fixture.path, keySource: nil, files: files)
        let error = try error {
            try store.storage(for: ProviderID("test")).setEntry(try Samples.stored("x"), named: "entry")
        }
        #expect(error.code == .storeWriteFailed)
    }

    @Test(arguments: [FaultyDisk.Call.unlink, .synchronize]) func failingDelete(call: FaultyDisk.Call) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("stays")
        try fixture.storage().setEntry(identity, named: "entry")
        fixture.disk.fail(call, at: 1, with: EIO)
        let error = try error { try fixture.storage().removeEntry(named: "entry") }
        #expect(error.code == .deleteFailed)
        // The message is true.
        #expect(error.message.contains(call == .unlink ? "was not deleted" : "is deleted, but"), "\(error)")
        #expect(try fixture.storage().entry(named: "entry") == (call == .unlink ? identity : nil))
        fixture.disk.repair()
        try fixture.storage().removeEntry(named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == nil)
        #expect(fixture.disk.counts[.synchronize] == 1, "also where only the flush was left to do")
    }

    @Test("Temporary files of a crash are removed by the next write")
    func whatACrashLeftGoesWithTheNextWrite() throws {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("one"), named: "entry")
        for folder in ["state", "state/identities/test"] {
            for name in [".tmp-new", ".tmp-previous"] {
                try fixture.directory.write([1, 2, 3], to: "\(folder)/\(name)")
            }
        }
        try fixture.storage().setEntry(try Samples.stored("two"), named: "entry")
        #expect(fixture.leftovers.isEmpty)
    }

    @Test("Temporary files of a crash are removed by a deletion", arguments: [true, false])
    func whatACrashLeftGoesWithADelete(isStored: Bool) throws {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("one"), named: isStored ? "entry" : "other")
        let sealed = try fixture.directory.read("state/identities/test/" + (isStored ? "entry" : "other"))
        try fixture.directory.write(sealed, to: "state/identities/test/.tmp-crashed-previous")
        fixture.disk.fail(.unlink, at: 1, with: EIO)
        #expect(try error { try fixture.storage().removeEntry(named: "entry") }.code == .deleteFailed)
        fixture.disk.repair()
        try fixture.storage().removeEntry(named: "entry")
        #expect(fixture.leftovers.isEmpty)
        #expect(try fixture.storage().entry(named: "entry") == nil)
    }

    @Test func everyNewDirectoryIsFlushedIntoItsParent() throws {
        let directory = try TemporaryDirectory()
        let events = Mutex<[String]>([])
        var files = FileSystem()
        files.makeDirectory = { parent, name, mode in
            events.withLock { $0.append("make \(name)") }
            return mkdirat(parent, name, mode)
        }
        files.synchronize = { descriptor in
            let path = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)")) ?? ""
            events.withLock { $0.append("flush \(path.replacing(directory.path, with: ""))") }
            return fsync(descriptor)
        }
        _ = try SafeDirectory.create(directory["a/b"], files).create("c", files)
        _ = try SafeDirectory.create(directory["a/b"], files).create("c", files)
        #expect(events.withLock { $0 }.prefix(6) == ["make a", "flush ", "make b", "flush /a", "make c", "flush /a/b"])
        events.withLock { $0 = [] }
        try SafeDirectory.make(directory["pem"], mode: 0o755, files)
        #expect(events.withLock { $0 }.prefix(2) == ["make pem", "flush "])
    }

    @Test func aDirectoryThatCannotBeFlushedIsTakenBack() throws {
        let fixture = try StoreFixture()
        fixture.disk.fail(.synchronize, at: 1, with: EIO)
        #expect(throws: SafeDirectory.Refusal.self) {
            _ = try SafeDirectory.create(fixture.path, fixture.disk.fileSystem)
        }
        #expect(fixture.directory.contents().isEmpty)
    }
}
