import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// Damaged files, full disks and calls that fail.
@Suite struct VaultFaultTests: VaultTesting {
    let directory: TemporaryDirectory
    let disk = FaultyDisk()

    init() throws { directory = try TemporaryDirectory() }

    /// The key may be restored.
    @Test func aLostKeyOfTheStoreIsNotMadeWorse() throws {
        let identity = try Samples.stored("app")
        try vault().storage(for: test).setEntry(identity, named: "entry")
        let (file, aside) = (directory["state/applications/app/store/store.key"], directory["aside"])
        try #require(rename(file, aside) == 0)
        let error = try error { try vault().create(passcode: passcode) }
        #expect(error.code == .storeReadFailed && error.message.contains("Restore the key"), "\(error)")
        try #require(rename(aside, file) == 0)
        let later = try vault()
        try later.create(passcode: passcode)
        #expect(try later.storage(for: test).entry(named: "entry") == identity)
    }

    @Test(arguments: [
        "", "1\n", "1\n-1\n5\n", "2\n1\n5\n", "1\nx\n5\n", "1\n1\n5\n1\n", "1\n9223372036854775807\n0\n", "garbage",
        String(repeating: "1\n", count: 40),
    ])
    func aDamagedCounterLetsNoOneTry(content: String) throws {
        try vault().create(passcode: passcode)
        let file = directory["state/applications/app/attempts"]
        try Data(content.utf8).write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        let error = try error { try vault().unlock(passcode) }
        #expect(error.code == .storeReadFailed && error.message.contains(file), "\(error)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == content)
        #expect(try code { _ = try vault().attemptsLeft() } == .storeReadFailed)
    }

    @Test func aKeyOfANewerVersionStays() throws {
        try vault().create(passcode: passcode)
        let file = directory["state/applications/app/vault/key"]
        var bytes = try Data(contentsOf: URL(filePath: file))
        bytes[8] = 4
        try bytes.write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        for body in [
            { _ = try self.vault().state() }, { try self.vault().unlock(self.passcode) },
            { try self.vault().create(passcode: self.passcode) },
        ] {
            let error = try error(body)
            #expect(error.code == .storeReadFailed && error.message.contains("update certprov"), "\(error)")
        }
        #expect(try Data(contentsOf: URL(filePath: file)) == bytes)
    }

    private static let calls: [FaultyDisk.Call] = [
        .create, .write, .changeMode, .synchronize, .rename, .link, .makeDirectory, .removeDirectory,
    ]

    /// Each call that changes the disk fails once, wherever it is made.
    @Test(arguments: calls) func aCreationThatFailsLeavesWhatWasThere(call: FaultyDisk.Call) throws {
        var position = 1
        while true {
            let vault = try vault("app\(position)")
            let (storage, identity) = (vault.storage(for: test), try Samples.stored("app"))
            try storage.setEntry(identity, named: "entry")
            disk.fail(call, at: position, with: EIO)
            let failure: ProviderError?
            do throws(ProviderError) {
                try vault.create(passcode: passcode, values: ["id": passcode])
                failure = nil
            } catch { failure = error }
            let count = disk.counts[call] ?? 0
            disk.repair()
            if failure == nil {
                #expect(try vault.value(named: "id") == passcode)
                // Each call has failed once.
                if count < position { break }
            }
            #expect(
                failure.map { $0.code == .storeWriteFailed } ?? true, "at \(position): \(String(describing: failure))")
            // Either there is no vault, and everything is as before, or it is whole.
            let later = try self.vault("app\(position)")
            if try later.state() == .none {
                #expect(try later.storage(for: test).entry(named: "entry") == identity, "at \(position)")
                try later.create(passcode: passcode, values: ["id": passcode])
            } else {
                try later.unlock(passcode)
            }
            #expect(try later.storage(for: test).entry(named: "entry") == identity, "at \(position)")
            #expect(try later.value(named: "id") == passcode)
            #expect(!directory.contents().contains { $0.hasPrefix("state/applications/app\(position)/store") })
            position += 1
        }
        #expect(position > 1)
    }

    /// A backup may have been restored without it.
    @Test func aVaultWhoseKeyIsMissingIsNotReplaced() throws {
        let identity = try Samples.stored("app")
        try vault().create(passcode: passcode, values: ["id": passcode])
        let unlocked = try vault()
        try unlocked.unlock(passcode)
        try unlocked.storage(for: test).setEntry(identity, named: "entry")
        let (file, aside) = (directory["state/applications/app/vault/key"], directory["aside"])
        try #require(rename(file, aside) == 0)
        for body in [
            { _ = try self.vault().state() }, { try self.vault().unlock(self.passcode) },
            { try self.vault().create(passcode: self.passcode) },
            { try self.vault().storage(for: self.test).setEntry(identity, named: "entry") },
            { _ = try unlocked.storage(for: self.test).entry(named: "entry") },
        ] {
            let error = try error(body)
            #expect(error.code == .storeReadFailed && error.message.contains("\(file), is missing; rest"), "\(error)")
        }
        try #require(rename(aside, file) == 0)
        let later = try vault()
        try later.unlock(passcode)
        #expect(try later.storage(for: test).entry(named: "entry") == identity)

        try #require(unlink(file) == 0)
        try vault().destroy()
        try vault().create(passcode: wrong)

        let values = try vault("values")
        try values.create(passcode: passcode, values: ["id": passcode])
        try #require(unlink(directory["state/applications/values/vault/key"]) == 0)
        #expect(try code { _ = try vault("values").state() } == .storeReadFailed)
    }

    /// A damaged key opens nothing any more, and does not stand in the way.
    @Test func aVaultWithADamagedKeyIsDestroyed() throws {
        try vault().create(passcode: passcode)
        let file = directory["state/applications/app/vault/key"]
        try Data("garbage".utf8).write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        #expect(try code { try vault().unlock(passcode) } == .storeReadFailed)
        try vault().destroy()
        try vault().create(passcode: passcode)
    }

    /// With the right passcode a process comes back, even if what else is to be done then fails.
    @Test func anUnlockSucceedsAlthoughTheRestFails() throws {
        let stronger = ScryptParameters(logarithmOfCost: 4, blockSize: 2, parallelism: 1)
        let vault = try vault(parameters: stronger)
        try self.vault().create(passcode: passcode, values: ["value": passcode])
        disk.fail(.rename, at: 1, with: ENOSPC)
        try vault.unlock(passcode)
        #expect(disk.counts[.rename] == 1)
        #expect(try vault.value(named: "value") == passcode)
    }

    /// On a full disk, the right passcode unlocks, and wrong ones count.
    @Test func aFullDiskDoesNotLockOut() throws {
        let vault = try vault { $0.maximumAttempts = 3 }
        try vault.create(passcode: passcode, values: ["value": passcode])
        for _ in 0..<2 {
            vault.lock()
            // Counts from now on.
            disk.fail(.rename, at: 1, with: ENOSPC)
            #expect(try code { try vault.unlock(wrong) } == .wrongPassword)
            #expect(try vault.attemptsLeft() == 2)
            try vault.unlock(passcode)
            for call in [FaultyDisk.Call.rename, .link, .makeDirectory] { #expect(disk.counts[call] == nil) }
            #expect(try vault.attemptsLeft() == 3 && vault.value(named: "value") == passcode)
            disk.repair()
        }
    }

    @Test("On a full disk, four wrong passcodes of a source are tried once each, and the right one unlocks")
    func aFullDiskDoesNotForgetAWrongPasscode() throws {
        try vault().create(passcode: passcode)
        disk.fill()
        for number in 0..<12 {
            let wrong = SecretBytes(utf8: "wrong \(number % 4)")
            #expect(try code { try vault().unlock(wrong, isAutomatic: true) } == .wrongPassword)
        }
        #expect(try vault().attemptsLeft() == 6)
        try vault().unlock(passcode, isAutomatic: true)
        #expect(try vault().attemptsLeft() == 10)
    }

    @Test("Where a wrong passcode cannot be noted, none of a source is tried after the first wrong one")
    func withoutANoteNoFurtherPasscodeIsTried() throws {
        try vault().create(passcode: passcode)
        let file = directory["state/applications/app/rejected"]
        try #require(unlink(file) == 0)
        disk.fill()
        #expect(try code { try vault().unlock(wrong, isAutomatic: true) } == .wrongPassword)
        for secret in [wrong, passcode] {
            let error = try error { try vault().unlock(secret, isAutomatic: true) }
            #expect(error.code == .storeWriteFailed && error.message.contains("unlock --ask"), "\(error)")
        }
        #expect(try vault().attemptsLeft() == 9)
        // A user may try.
        #expect(try code { try vault().unlock(wrong) } == .wrongPassword)
        disk.repair()
        try vault().unlock(passcode, isAutomatic: true)
        #expect(try vault().attemptsLeft() == 10)
    }

    /// A file of another passcode, such as one from an old backup, was there for a while.
    @Test("The right passcode of a source is tried again after another key file was in place")
    func anotherKeyFileDoesNotRejectForThisOne() throws {
        try vault("other").create(passcode: wrong)
        let vault = try vault()
        try vault.create(passcode: passcode)
        let file = directory["state/applications/app/vault/key"]
        let (own, other) = (
            try Data(contentsOf: URL(filePath: file)),
            try Data(contentsOf: URL(filePath: directory["state/applications/other/vault/key"]))
        )
        func put(_ content: Data) throws {
            try content.write(to: URL(filePath: file))
            try #require(chmod(file, 0o600) == 0)
        }
        try put(other)
        for _ in 0..<3 { #expect(try code { try self.vault().unlock(passcode, isAutomatic: true) } == .wrongPassword) }
        #expect(try vault.attemptsLeft() == 9)
        try put(own)
        try self.vault().unlock(passcode, isAutomatic: true)
    }

    @Test("A lock that is held is not a full disk, and its holder is named")
    func aHeldLockIsNamed() throws {
        try vault().create(passcode: passcode)
        let lock = directory["state/applications/app/.lock"]
        // flock(1) holds the lock for as long as the shell waits for our end of the pipe.
        let process = try Subprocess(["flock", "--no-fork", lock, "sh", "-c", "echo locked; read line"])
        #expect(process.readLine() == "locked")
        let vault = try vault(lockTimeout: .zero)
        for attempt in [{ try vault.unlock(self.passcode) }, { try vault.destroy() }] {
            let error = try error(attempt)
            #expect(error.code == .operationNotAllowed && error.reason == .busy, "\(error)")
            #expect(error.message.contains("the process ") && error.message.contains(lock), "\(error)")
        }
        process.closeInput()
        #expect(process.wait(seconds: 600) == 1)
        try vault.unlock(passcode)
    }

    @Test("Messages about a damaged value or name speak of the value")
    func messagesSpeakOfTheValue() throws {
        let vault = try vault()
        try vault.create(passcode: passcode, values: ["token": passcode])
        let file = directory["state/applications/app/vault/values/application/token"]
        let content = try Data(contentsOf: URL(filePath: file))
        try content.dropLast().write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        let name = try error { _ = try vault.value(named: "../a") }
        for error in [try error { _ = try vault.value(named: "token") }, name] {
            #expect(error.code == .storeReadFailed && error.message.contains("The value '"), "\(error)")
            #expect(!error.message.contains("identity") && error.provider == nil, "\(error)")
        }
        // The vault's data of the registration is restored, and not removed.
        let storage = vault.storage(for: ProviderID("registration_"))
        try storage.updateRecord(named: "connection") { _ in passcode }
        let record = directory["state/applications/app/vault/records/registration_/connection"]
        try Data(contentsOf: URL(filePath: record)).dropLast().write(to: URL(filePath: record))
        try #require(chmod(record, 0o600) == 0)
        let damaged = try error { _ = try storage.record(named: "connection") }
        #expect(damaged.message.contains("restore the file from a backup"), "\(damaged)")
        #expect(!damaged.message.contains("remove the file"), "\(damaged)")
    }

    /// An attempt that cannot be written down is not made.
    @Test(arguments: [FaultyDisk.Call.create, .write, .synchronize])
    func anAttemptThatDoesNotCountIsNotMade(call: FaultyDisk.Call) throws {
        let vault = try vault()
        try vault.create(passcode: passcode)
        vault.lock()
        // The first creation is that of the lock.
        disk.fail(call, at: call == .create ? 2 : 1, with: ENOSPC)
        #expect(try code { try vault.unlock(passcode) } == .storeWriteFailed)
        disk.repair()
        #expect(try vault.state() == .locked)
        try vault.unlock(passcode)
        #expect(try vault.attemptsLeft() == 10)
    }

    @Test(arguments: [FaultyDisk.Call.create, .unlink, .removeDirectory, .synchronize])
    func aDestructionThatFailsIsDoneAgain(call: FaultyDisk.Call) throws {
        for position in 1..<12 {
            let vault = try vault("app\(position)")
            try vault.create(passcode: passcode)
            try vault.storage(for: test).setEntry(try Samples.stored("app"), named: "entry")
            disk.fail(call, at: position, with: EIO)
            do throws(ProviderError) { try vault.destroy() } catch {
                #expect(error.code == .deleteFailed, "\(error)")
            }
            disk.repair()
            // Whatever is left needs a key that is gone, unless nothing was removed.
            let isThere = try self.vault("app\(position)").state() != .none
            #expect(!isThere || position == 1 || call == .unlink || call == .create, "at \(position)")
            try self.vault("app\(position)").destroy()
            let left = directory.contents().filter { $0.hasPrefix("state/applications/app\(position)/") }
            #expect(left == ["state/applications/app\(position)/.lock"], "at \(position): \(left)")
        }
    }

    @Test("A damaged key costs no attempt")
    func aDamagedKeyCostsNoAttempt() throws {
        try vault().create(passcode: passcode)
        let file = directory["state/applications/app/vault/key"]
        let whole = try Data(contentsOf: URL(filePath: file))
        var bytes = whole
        bytes[whole.count - 40] ^= 4
        try bytes.write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        for isAutomatic in [true, false] {
            let error = try error { try vault().unlock(passcode, isAutomatic: isAutomatic) }
            #expect(error.code == .storeReadFailed && error.message.contains(file), "\(error)")
        }
        try whole.write(to: URL(filePath: file))
        try #require(chmod(file, 0o600) == 0)
        #expect(try vault().attemptsLeft() == 10)
        try vault().unlock(passcode, isAutomatic: true)
    }

    /// A destruction may be killed behind the key.
    @Test func aNewVaultDoesNotHaveTheRejectedPasscodesOfAnother() throws {
        let vault = try vault()
        try vault.create(passcode: passcode, values: [:])
        vault.lock()
        #expect(try code { try vault.unlock(wrong, isAutomatic: true) } == .wrongPassword)
        disk.fail(.removeDirectory, at: 1, with: EIO)
        #expect(try code { try vault.destroy() } == .deleteFailed)
        disk.repair()
        #expect(directory.contents().contains("state/applications/app/rejected"))
        try vault.create(passcode: wrong, values: [:])
        vault.lock()
        try vault.unlock(wrong, isAutomatic: true)
    }

    /// With an empty one a rejected passcode would be tried again.
    @Test(
        "A record of rejected passcodes that is newer or damaged is left alone",
        arguments: ["update certprov", "damaged"])
    func anUnreadableRecordOfRejectedPasscodesIsLeftAlone(problem: String) throws {
        let vault = try vault()
        try vault.create(passcode: passcode, values: [:])
        vault.lock()
        #expect(try code { try vault.unlock(wrong, isAutomatic: true) } == .wrongPassword)
        let file = URL(filePath: directory["state/applications/app/rejected"])
        let content = String(decoding: try Data(contentsOf: file), as: UTF8.self)
            .replacing(#""version":1"#, with: problem == "damaged" ? "" : #""version":2"#)
        try Data(content.utf8).write(to: file)
        let refused = try error { try vault.unlock(passcode, isAutomatic: true) }
        #expect(refused.code == .storeReadFailed && refused.message.contains(problem), "\(refused)")
        #expect(try vault.attemptsLeft() == 9 && String(contentsOf: file, encoding: .utf8) == content)
        // A user may try.
        try vault.unlock(passcode, isAutomatic: false)
        vault.lock()
        try vault.unlock(passcode, isAutomatic: true)
    }
}
