import CertificateProviding
import Dispatch
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct RecordTests {
    private static let file = "state/records/test/record"

    @Test func givesBackWhatWasStored() throws {
        let fixture = try StoreFixture()
        #expect(try fixture.storage().record(named: "record") == nil)
        try fixture.storage().updateRecord(named: "record") { old in
            #expect(old == nil)
            return SecretBytes(utf8: "one")
        }
        try fixture.storage().updateRecord(named: "record") { old in
            #expect(old == SecretBytes(utf8: "one"))
            return SecretBytes(utf8: "two")
        }
        #expect(try fixture.storage().record(named: "record") == SecretBytes(utf8: "two"))
        #expect(try fixture.storage(ProviderID("other")).record(named: "record") == nil)
        #expect(try fixture.storage().entry(named: "record") == nil)
    }

    @Test("A record whose change is nil is not written")
    func whatIsToStayIsNotWritten() throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        fixture.disk.repair()
        try fixture.storage().updateRecord(named: "record") { _ in nil }
        #expect(fixture.disk.counts[.write] == nil && fixture.disk.counts[.synchronize] == nil)
        let refusal = ProviderError(.internal, "no")
        let thrown = try error {
            try fixture.storage().updateRecord(named: "record") { _ throws(ProviderError) in throw refusal }
        }
        #expect(thrown.code == .internal)
        #expect(try fixture.storage().record(named: "record") == SecretBytes(utf8: "one"))
    }

    @Test("An empty record removes it, once")
    func anEmptyRecordIsNone() throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        try fixture.storage().updateRecord(named: "other") { _ in SecretBytes(utf8: "two") }
        for _ in 0..<2 {
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(copying: []) }
            #expect(try fixture.storage().record(named: "record") == nil)
        }
        let files = fixture.directory.contents().filter { $0.hasPrefix("state/records/test/") }
        #expect(files == ["state/records/test/other"])
        try fixture.storage().updateRecord(named: "record") { old in
            #expect(old == nil)
            return SecretBytes(utf8: "three")
        }
        #expect(try fixture.storage().record(named: "record") == SecretBytes(utf8: "three"))
    }

    /// A kill leaves the new content, or the former one under a second name.
    @Test("A removed record leaves nothing that a killed writer had of it", arguments: [".tmp-new", ".tmp-previous"])
    func whatAKilledWriterLeftGoesWithTheRecord(leftover: String) throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        #expect(link(fixture.directory[Self.file], fixture.directory["state/records/test/\(leftover)"]) == 0)
        #expect(!fixture.leftovers.isEmpty)
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(copying: []) }
        #expect(!fixture.directory.contents().contains(Self.file) && fixture.leftovers.isEmpty)
    }

    @Test("A removal that fails has changed nothing, or says what is left", arguments: FaultyDisk.Call.allCases)
    func aRemovalThatFailsSaysWhatIsLeft(call: FaultyDisk.Call) throws {
        var failures = 0
        for position in 1...6 {
            let fixture = try StoreFixture()
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
            fixture.disk.fail(call, at: position, with: EIO)
            var error: ProviderError?
            do throws(ProviderError) {
                try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(copying: []) }
            } catch let thrown { error = thrown }
            fixture.disk.repair()
            let left = try fixture.storage().record(named: "record")
            failures += error == nil ? 0 : 1
            #expect(error == nil || error?.code == .storeWriteFailed)
            let isUnchanged = error?.message.contains("unchanged") == true
            #expect(left == (isUnchanged ? SecretBytes(utf8: "one") : nil), "\(call) \(position): \(error as Any)")
            #expect(isUnchanged || error == nil || error?.message.contains("power failure") == true)
            // The next attempt ends it.
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(copying: []) }
            #expect(!fixture.directory.contents().contains(Self.file) && fixture.leftovers.isEmpty)
        }
        #expect(failures == ([.create, .unlink, .synchronize].contains(call) ? 1 : 0))
    }

    @Test func noUpdateIsLost() throws {
        let fixture = try StoreFixture()
        DispatchQueue.concurrentPerform(iterations: 8) { _ in
            for _ in 0..<5 {
                try? fixture.storage().updateRecord(named: "record") { old in
                    SecretBytes(copying: [(old?.withUnsafeBytes { $0.first } ?? 0) + 1])
                }
            }
        }
        #expect(try fixture.storage().record(named: "record") == SecretBytes(copying: [40]))
    }

    /// A damaged record must not count as absent.
    @Test func aDamagedRecordIsNotReplaced() throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        var file = try fixture.directory.read(Self.file)
        file[file.count - 1] ^= 1
        try fixture.directory.write(file, to: Self.file)
        let updating = try error {
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "two") }
        }
        #expect(updating.code == .storeReadFailed && updating.message.contains(fixture.directory[Self.file]))
        #expect(try fixture.directory.read(Self.file) == file)
    }

    @Test func aRecordThatIsTooLargeIsNamedWithTheNextStep() throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        try fixture.directory.write([UInt8](repeating: 1, count: IdentityStore.maximumEntrySize + 1), to: Self.file)
        let error = try error { _ = try fixture.storage().record(named: "record") }
        #expect(error.code == .storeReadFailed)
        #expect(error.message.hasPrefix("The record \(fixture.directory[Self.file]) "), "\(error)")
        #expect(error.message.contains("move it aside"), "\(error)")
    }

    @Test(arguments: FaultyDisk.Call.allCases) func leavesWhatWasThere(call: FaultyDisk.Call) throws {
        let fixture = try StoreFixture()
        try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        let (one, two) = (SecretBytes(utf8: "one"), SecretBytes(utf8: "two"))
        for position in 1...3 {
            fixture.disk.fail(call, at: position, with: ENOSPC)
            let success: Void? = try? fixture.storage().updateRecord(named: "record") { _ in two }
            fixture.disk.repair()
            #expect(try fixture.storage().record(named: "record") == (success == nil ? one : two))
            try fixture.storage().updateRecord(named: "record") { _ in one }
        }
    }

    @Test func aClaimIsHeldByOne() throws {
        let fixture = try StoreFixture()
        do {
            let claim = try #require(try fixture.storage().leaseRecord(named: "record"))
            #expect(!claim.isUnsettled)
            #expect(try fixture.storage().leaseRecord(named: "record") == nil)
            #expect(try fixture.storage().leaseRecord(named: "other") != nil)
            // A process without a lease still reads and writes.
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
            withExtendedLifetime(claim) {}
        }
        #expect(try fixture.storage().leaseRecord(named: "record")?.isUnsettled == false)
    }

    /// Until it runs its program, a process that another thread has forked has all open files.
    @Test("A released lock is free although a forked process has its file open", arguments: [".claim-record", ".lock"])
    func whatAForkedProcessHasIsReleasedToo(name: String) throws {
        let fixture = try StoreFixture()
        var copies: [Int32] = []
        defer { for copy in copies { close(copy) } }
        /// Duplicates those of this process that are open now, as a fork does.
        func fork() throws {
            for entry in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
                let file = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + entry)
                guard let file, file.hasPrefix(fixture.path), file.hasSuffix(name), let number = Int32(entry) else {
                    continue
                }
                copies.append(dup(number))
            }
        }
        do {
            let claim = try #require(try fixture.storage().leaseRecord(named: "record"))
            if name != ".lock" { try fork() }
            withExtendedLifetime(claim) {}
        }
        try fixture.storage().updateRecord(named: "record") { _ in
            if name == ".lock" { try? fork() }
            return SecretBytes(utf8: "one")
        }
        #expect(!copies.isEmpty)
        #expect(try fixture.storage().leaseRecord(named: "record") != nil)
        let store = IdentityStore(
            path: fixture.path, keySource: nil, files: FileSystem(), lockTimeout: .milliseconds(50))
        try store.storage(for: ProviderID("test")).updateRecord(named: "record") { _ in SecretBytes(utf8: "two") }
    }

    @Test func aClaimSaysThatItIsAwaited() throws {
        let fixture = try StoreFixture()
        for _ in 0..<2 {
            let claim = try #require(try fixture.storage().leaseRecord(named: "record"))
            #expect(!claim.isAwaited)
            #expect(try fixture.storage().leaseRecord(named: "record") == nil)
            #expect(claim.isAwaited && !claim.isUnsettled)
        }
        #expect(try fixture.storage().leaseRecord(named: "record")?.isUnsettled == false)
    }

    @Test func anInterruptedClaimShows() throws {
        let fixture = try StoreFixture()
        try fixture.storage().leaseRecord(named: "record")?.isUnsettled = true
        #expect(try fixture.storage().leaseRecord(named: "record")?.isUnsettled == true)
        try fixture.storage().leaseRecord(named: "record")?.isUnsettled = false
        #expect(try fixture.storage().leaseRecord(named: "record")?.isUnsettled == false)
    }

    @Test func aDiskThatIsReadOnlyCanBeClaimed() throws {
        let fixture = try StoreFixture()
        fixture.disk.fail(.makeDirectory, at: 1, with: EROFS)
        #expect(try error { _ = try fixture.storage().leaseRecord(named: "record") }.code == .storeWriteFailed)
        fixture.disk.repair()
        #expect(try fixture.storage().leaseRecord(named: "record") != nil)
        // Its file is there now.
        fixture.disk.fail(.create, at: 1, with: EROFS)
        let claim = try #require(try fixture.storage().leaseRecord(named: "record"))
        #expect(try fixture.storage().leaseRecord(named: "record") == nil)
        withExtendedLifetime(claim) {}
    }

    @Test(arguments: ["", "..", "a/b", ".claim-x"]) func refusesNamesThatLeadElsewhere(name: String) throws {
        let fixture = try StoreFixture()
        let storage = fixture.storage()
        #expect(try error { _ = try storage.record(named: name) }.code == .storeReadFailed)
        #expect(try error { try storage.updateRecord(named: name) { _ in nil } }.code == .storeWriteFailed)
        #expect(try error { _ = try storage.leaseRecord(named: name) }.code == .storeWriteFailed)
        #expect(fixture.directory.contents().isEmpty)
    }
}
