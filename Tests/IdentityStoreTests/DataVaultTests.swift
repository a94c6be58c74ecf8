import CertificateProviding
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

/// The contents of a vault, and their owners.
@Suite struct DataVaultTests: VaultTesting {
    let directory: TemporaryDirectory
    let disk = FaultyDisk()

    init() throws { directory = try TemporaryDirectory() }

    @Test("A new vault takes in stored identities and seals them with its own key")
    func whatIsStoredIsTakenInAndSealedAnew() throws {
        let (identity, vault) = (try Samples.stored("app"), try vault())
        #expect(try vault.state() == .none && vault.attemptsLeft() == 10)
        let storage = vault.storage(for: test)
        try storage.setEntry(identity, named: "entry")
        try storage.updateRecord(named: "record") { _ in SecretBytes(utf8: "one") }
        let old = try Data(contentsOf: URL(filePath: directory["state/applications/app/store/store.key"]))

        try vault.create(passcode: passcode, values: ["connection": SecretBytes(utf8: "id")])
        #expect(try vault.state() == .unlocked)
        #expect(try storage.entry(named: "entry") == identity)
        #expect(try storage.record(named: "record") == SecretBytes(utf8: "one"))
        #expect(try vault.value(named: "connection") == SecretBytes(utf8: "id"))
        #expect(!directory.contents().contains { $0.contains("store") })
        // A copy of the old key opens nothing.
        let key = SealingKey(SecretBytes(copying: old))
        for file in directory.contents() {
            guard let bytes = try? Data(contentsOf: URL(filePath: directory[file])) else { continue }
            #expect(throws: (any Error).self) {
                _ = try SealedEnvelope.open(Array(bytes), name: "test/entry", key: key)
            }
        }

        vault.lock()
        for vault in [vault, try self.vault()] {
            #expect(try vault.state() == .locked)
            let storage = vault.storage(for: test)
            #expect(try code { _ = try storage.entry(named: "entry") } == .vaultLocked)
            #expect(try code { try storage.setEntry(identity, named: "entry") } == .vaultLocked)
            #expect(try code { _ = try storage.record(named: "record") } == .vaultLocked)
            #expect(try code { _ = try vault.value(named: "connection") } == .vaultLocked)
            #expect(try code { _ = try vault.valueNames() } == .vaultLocked)
            #expect(try code { try vault.setValue(passcode, named: "x") } == .vaultLocked)
            try vault.unlock(passcode)
            #expect(try storage.entry(named: "entry") == identity)
            #expect(try vault.value(named: "connection") == SecretBytes(utf8: "id"))
        }
    }

    @Test("A change of an entry shows in the directories of the part, without the vault and in it, locked or not")
    func changesShow() throws {
        let vault = try vault()
        let storage = vault.storage(for: test)
        func look() -> [FileStamp?] { storage.entryDirectories.map { FileStamp(of: $0) } }
        var looks = [look()]
        try storage.setEntry(try Samples.stored("one"), named: "entry")
        looks.append(look())
        try vault.create(passcode: passcode)
        looks.append(look())
        let other = try self.vault()
        try other.unlock(passcode)
        // The time of a change has the resolution of the kernel's clock.
        for _ in 0..<1000 where look() == looks.last {
            try other.storage(for: test).setEntry(try Samples.stored("two"), named: "entry")
        }
        looks.append(look())
        for (before, after) in zip(looks, looks.dropFirst()) { #expect(before != after) }
        vault.lock()
        #expect(look() == looks.last && looks[0] == [nil, nil])
    }

    @Test("The vault stores values by name")
    func valuesAreKeptByName() throws {
        let vault = try vault()
        try vault.create(passcode: passcode)
        try vault.setValue(SecretBytes(utf8: "1"), named: "b")
        try vault.setValue(SecretBytes(copying: []), named: "a")
        try vault.setValue(SecretBytes(utf8: "2"), named: "b")
        #expect(try vault.valueNames() == ["a", "b"])
        #expect(try vault.value(named: "b") == SecretBytes(utf8: "2") && vault.value(named: "c") == nil)
        for _ in 0..<2 { try vault.removeValue(named: "b") }
        #expect(try vault.valueNames() == ["a"])
        for name in ["", "../key", ".x", "a/b", String(repeating: "x", count: 129)] {
            #expect(throws: ProviderError.self) { try vault.setValue(passcode, named: name) }
        }
        let files = directory.contents().compactMap { try? Data(contentsOf: URL(filePath: directory[$0])) }
        #expect(!files.contains { $0.range(of: Data("correct horse".utf8)) != nil })
    }

    @Test("After another process destroyed the vault, nothing is stored outside one")
    func nothingIsStoredUnprotectedAfterAnotherProcessHasDestroyedTheVault() throws {
        let (vault, identity) = (try vault(), try Samples.stored("app"))
        try vault.create(passcode: passcode)
        let storage = vault.storage(for: test)
        try storage.setEntry(identity, named: "entry")
        try self.vault().destroy()
        #expect(try code { try storage.setEntry(identity, named: "entry") } == .vaultDestroyed)
        #expect(try code { _ = try storage.entry(named: "entry") } == .vaultDestroyed)
        #expect(!directory.contents().contains { $0.hasSuffix("/store") })
        // Told that, it may begin anew.
        vault.lock()
        try storage.setEntry(identity, named: "entry")
    }

    /// An identity that is stored while the vault is made is in the vault, or was refused.
    @Test(
        "An identity stored while the vault is made is in the vault, or was refused",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func nothingIsLostWhileTheVaultIsMade() async throws {
        for round in 0..<TestLength.rounds(5, soak: 200) {
            let id = "app\(round)"
            let identity = try Samples.stored("app")
            let stored = try await withThrowingTaskGroup(of: String?.self) { tasks in
                for number in 0..<8 {
                    let storage = try vault(id).storage(for: test)
                    tasks.addTask {
                        do throws(ProviderError) {
                            try storage.setEntry(identity, named: "entry\(number)")
                            return "entry\(number)"
                        } catch {
                            #expect([.operationNotAllowed, .vaultLocked].contains(error.code), "\(error)")
                            return nil
                        }
                    }
                }
                let (vault, passcode) = (try vault(id), passcode)
                tasks.addTask {
                    try vault.create(passcode: passcode)
                    return nil
                }
                return try await tasks.reduce(into: [String]()) { names, name in if let name { names.append(name) } }
            }
            let later = try vault(id)
            try later.unlock(passcode)
            for name in stored { #expect(try later.storage(for: test).entry(named: name) == identity, "\(name)") }
        }
    }

    /// A process that has opened the lock of the application's store, and gets it only after another process has done `work`.
    private func slow(_ work: @escaping @Sendable () throws -> Void) throws -> DataVault {
        let isFirst = Mutex(true)
        var files = FileSystem()
        files.create = { directory, name, flags in
            let descriptor = FileSystem().create(directory, name, flags)
            let isFirst = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            if isFirst { #expect(throws: Never.self) { try work() } }
            return descriptor
        }
        return try DataVault(
            "app", in: directory["state"], policy: PasscodePolicy(), keySource: nil, now: { Date() },
            parameters: Self.cheap, files: files)
    }

    @Test("An identity that a registration takes into the vault is not reported as deleted")
    func anIdentityInTheVaultIsNotDeleted() throws {
        let (other, identity, passcode) = (try vault(), try Samples.stored("app"), passcode)
        try other.storage(for: test).setEntry(identity, named: "entry")
        let late = try slow { try other.create(passcode: passcode) }
        let error = try error { try late.storage(for: test).removeEntry(named: "entry") }
        #expect(error.code == .operationNotAllowed && error.message.contains("try again"), "\(error)")
        #expect(try other.storage(for: test).entry(named: "entry") == identity)
        // Which is right by now.
        #expect(try code { try late.storage(for: test).removeEntry(named: "entry") } == .vaultLocked)
        try late.unlock(passcode)
        try late.storage(for: test).removeEntry(named: "entry")
        #expect(try other.storage(for: test).entry(named: "entry") == nil)
    }

    @Test("A writer that waited for a registration and its end starts anew")
    func aWriterThatWaitedForAVaultThatIsGoneStartsAnew() throws {
        let (other, identity, passcode) = (try vault(), try Samples.stored("app"), passcode)
        try other.storage(for: test).setEntry(identity, named: "old")
        let late = try slow {
            try other.create(passcode: passcode)
            try other.destroy()
        }
        let storage = late.storage(for: test)
        let error = try error { try storage.setEntry(identity, named: "entry") }
        #expect(error.code == .storeWriteFailed && error.message.contains("try again"), "\(error)")
        #expect(!directory.contents().contains { $0.contains("app/store/") })
        try storage.setEntry(identity, named: "entry")
        #expect(try storage.entry(named: "entry") == identity && storage.entry(named: "old") == nil)
    }

    @Test("An identity that is first stored while the vault is made is not lost")
    func theFirstIdentityIsNotLostWhileTheVaultIsMade() throws {
        let (identity, passcode, test) = (try Samples.stored("app"), passcode, test)
        let store = IdentityStore(
            path: directory["state/applications/app/store"], keySource: nil, files: FileSystem(), lockTimeout: .zero)
        let isStored = Mutex(false)
        var files = FileSystem()
        files.rename = { directory, from, to in
            // Everything is taken in by now.
            if to == VaultFiles.keyFile {
                isStored.withLock { $0 = (try? store.storage(for: test).setEntry(identity, named: "entry")) != nil }
            }
            return FileSystem().rename(directory, from, to)
        }
        let vault = try DataVault(
            "app", in: directory["state"], policy: PasscodePolicy(), keySource: nil, now: { Date() },
            parameters: Self.cheap, files: files)
        try vault.create(passcode: passcode)
        #expect(try isStored.withLock(\.self) == (vault.storage(for: test).entry(named: "entry") != nil))
        #expect(!directory.contents().contains { $0.contains("app/store") })
    }

    @Test("A value that is removed is in no file of a killed writer either")
    func aRemovedValueIsInNoTemporaryFile() throws {
        let vault = try vault()
        try vault.create(passcode: passcode, values: ["name": SecretBytes(utf8: "value")])
        let values = "state/applications/app/vault/values/application/"
        for name in ["name", "other"] {
            // The remains of a kill after the rename, or before it.
            for suffix in ["previous", "new"] {
                try directory.write(Array("sealed".utf8), to: values + SafeDirectory.temporaryPrefix + suffix)
            }
            try vault.removeValue(named: name)
            #expect(!directory.contents().contains { $0.contains(SafeDirectory.temporaryPrefix) })
        }
        #expect(try vault.valueNames() == [])
    }

    @Test func anotherApplicationIsUntouched() throws {
        let (one, other) = (try vault("one") { $0.maximumAttempts = 1 }, try vault("other"))
        let host = IdentityStore(path: directory["state"])
        try host.storage(for: test).setEntry(try Samples.stored("host"), named: "entry")
        for vault in [one, other] {
            try vault.create(passcode: passcode)
            try vault.setValue(passcode, named: "value")
        }
        one.lock()
        #expect(try code { try one.unlock(wrong) } == .vaultDestroyed)
        #expect(try other.value(named: "value") == passcode)
        #expect(try IdentityStore(path: directory["state"]).storage(for: test).entry(named: "entry") != nil)
    }

    @Test func theFilesOfAnotherApplicationDoNotFit() throws {
        try vault("one").create(passcode: passcode)
        let applications = directory["state/applications"]
        try FileManager.default.copyItem(atPath: applications + "/one", toPath: applications + "/other")
        #expect(try code { try vault("other").unlock(passcode) } == .wrongPassword)
    }

    @Test("A vault that another process destroys is gone in this one")
    func whatAnotherProcessDestroysIsGoneHereToo() throws {
        let (vault, identity) = (try vault(), try Samples.stored("app"))
        try vault.create(passcode: passcode)
        try self.vault().destroy()
        #expect(try vault.state() == .none)
        #expect(try code { try vault.setValue(passcode, named: "value") } == .vaultDestroyed)
        #expect(try code { _ = try vault.value(named: "value") } == .vaultDestroyed)
        // And made anew, it has another key.
        try self.vault().create(passcode: passcode)
        #expect(try vault.state() == .locked)
        #expect(try code { try vault.storage(for: test).setEntry(identity, named: "entry") } == .vaultLocked)
        #expect(try code { try vault.setValue(passcode, named: "value") } == .vaultDestroyed)
        try vault.unlock(passcode)
        try vault.setValue(passcode, named: "value")
    }

    @Test("An application has one vault, which is not made by unlocking or destroying")
    func thereIsOneVault() throws {
        let vault = try vault()
        #expect(try code { try vault.unlock(passcode) } == .notFound && !directory.contents().contains("state"))
        try vault.destroy()
        #expect(!directory.contents().contains("state"))
        // An application that is not registered keeps what it has.
        let (storage, identity) = (vault.storage(for: test), try Samples.stored("app"))
        try storage.setEntry(identity, named: "entry")
        try vault.destroy()
        #expect(try storage.entry(named: "entry") == identity)
        try vault.create(passcode: passcode)
        for vault in [vault, try self.vault()] {
            #expect(try code { try vault.create(passcode: passcode) } == .operationNotAllowed)
        }
        for _ in 0..<2 { try vault.destroy() }
        try vault.create(passcode: passcode)
    }

    @Test(arguments: ["", ".", "..", ".a", "a/b", "a b", "ü", "a\0", String(repeating: "x", count: 129)])
    func anIDThatIsNoNameIsRefused(id: String) throws {
        #expect(try code { _ = try vault(id) } == .configurationInvalid)
    }

    @Test(arguments: ["com.example.App-1_2", "a", "-", "_.", String(repeating: "x", count: 128)])
    func anIDIsAName(id: String) throws { try vault(id).create(passcode: passcode) }
}
