import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct DataVaultTests {
    private static let cheap = ScryptParameters(logarithmOfCost: 1, blockSize: 1, parallelism: 1)
    private let directory: TemporaryDirectory
    private let disk = FaultyDisk()
    private let passcode = SecretBytes(utf8: "correct horse")
    private let wrong = SecretBytes(utf8: "wrong horse")
    private let test = ProviderID("test")

    init() throws { directory = try TemporaryDirectory() }

    /// The vault of a process that has just started.
    private func vault(
        _ id: String = "app", now: Date = Date(timeIntervalSince1970: 1e9), parameters: ScryptParameters = cheap,
        _ change: (inout PasscodePolicy) -> Void = { _ in }
    ) throws -> DataVault {
        var policy = PasscodePolicy()
        change(&policy)
        return try DataVault(
            id, in: directory["state"], policy: policy, keySource: nil, now: { now }, parameters: parameters,
            files: disk.fileSystem)
    }

    private func code(_ body: () throws -> Void) throws -> CertificateProviderError.Code { try error(body).code }

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
            #expect(throws: CertificateProviderError.self) { try vault.setValue(passcode, named: name) }
        }
        let files = directory.contents().compactMap { try? Data(contentsOf: URL(filePath: directory[$0])) }
        #expect(!files.contains { $0.range(of: Data("correct horse".utf8)) != nil })
    }

    @Test func wrongPasscodesCountUntilTheyDestroy() throws {
        let vault = try vault { $0.maximumAttempts = 3 }
        try vault.create(passcode: passcode)
        try vault.storage(for: test).setEntry(try Samples.stored("app"), named: "entry")
        let copies = try copy()
        vault.lock()
        let first = try error { try vault.unlock(wrong) }
        #expect(first.code == .wrongPassword && first.message.contains("2 more wrong ones"), "\(first)")
        #expect(try vault.attemptsLeft() == 2)
        #expect(try error { try vault.unlock(wrong) }.message.contains("1 more wrong one."))
        // The right one begins anew.
        try vault.unlock(passcode)
        #expect(try vault.attemptsLeft() == 3)
        vault.lock()
        #expect(try code { try vault.unlock(nil) } == .vaultLocked, "Nothing is tried.")
        for code in [CertificateProviderError.Code.wrongPassword, .wrongPassword, .vaultDestroyed] {
            #expect(try self.code { try vault.unlock(wrong) } == code)
        }
        #expect(try vault.state() == .none && vault.attemptsLeft() == 3)
        #expect(
            directory.contents() == [
                "state", "state/applications", "state/applications/app", "state/applications/app/.lock",
            ])
        #expect(try code { try vault.unlock(passcode) } == .notFound)
        #expect(!copies.isEmpty)
        // A new vault has another key.
        try vault.create(passcode: passcode)
        #expect(try vault.storage(for: test).entry(named: "entry") == nil)
    }

    private func copy() throws -> [String: Data] {
        var copies: [String: Data] = [:]
        for file in directory.contents() {
            copies[file] = try? Data(contentsOf: URL(filePath: directory[file]))
        }
        return copies
    }

    /// Passcodes that were wrong under another policy do not destroy: one attempt is left at least.
    @Test(arguments: [0, -1, 20]) func aLimitThatIsLoweredLeavesAnAttempt(former: Int) throws {
        let vault = try vault { $0.maximumAttempts = former }
        try vault.create(passcode: passcode)
        vault.lock()
        for _ in 0..<12 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        try self.vault().unlock(passcode)
        for _ in 0..<12 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        #expect(try code { try self.vault().unlock(wrong) } == .vaultDestroyed)
    }

    /// With the right passcode, a disk that fails afterwards does not matter.
    @Test func aSuccessIsOneWhateverFailsAfterwards() throws {
        let vault = try vault()
        try vault.create(passcode: passcode)
        for position in 1..<6 {
            vault.lock()
            disk.fail(.synchronize, at: position, with: EIO)
            var failure: CertificateProviderError?
            do throws(CertificateProviderError) { try vault.unlock(passcode) } catch { failure = error }
            disk.repair()
            // The first is that of the counter before the attempt.
            #expect((failure != nil) == (position <= 1), "at \(position): \(String(describing: failure))")
            try vault.unlock(passcode)
            #expect(try vault.attemptsLeft() == 10)
        }
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
                        do throws(CertificateProviderError) {
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

    @Test func theLimitMayBeOff() throws {
        let vault = try vault { $0.maximumAttempts = 0 }
        try vault.create(passcode: passcode)
        vault.lock()
        for _ in 0..<30 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        #expect(try vault.attemptsLeft() == nil)
        try vault.unlock(passcode)
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

    @Test func aPasscodeIsChanged() throws {
        let (vault, new) = (try vault(), SecretBytes(utf8: "battery staple"))
        try vault.create(passcode: passcode)
        try vault.setValue(passcode, named: "value")
        #expect(try code { try vault.changePasscode(from: wrong, to: new) } == .wrongPassword)
        #expect(try vault.attemptsLeft() == 9)
        #expect(
            try code { try vault.changePasscode(from: passcode, to: SecretBytes(utf8: "short")) }
                == .configurationInvalid)
        #expect(try vault.attemptsLeft() == 9, "Nothing is tried.")
        let other = try self.vault()
        try other.unlock(passcode)
        try vault.changePasscode(from: passcode, to: new)
        // It has the same key.
        #expect(try other.state() == .unlocked && other.value(named: "value") == passcode)
        let later = try self.vault()
        #expect(try code { try later.unlock(passcode) } == .wrongPassword)
        try later.unlock(new)
        #expect(try later.value(named: "value") == passcode)
    }

    @Test func aPasscodeExpires() throws {
        let (set, days) = (Date(timeIntervalSince1970: 1e9), 30.0 * 86400)
        try vault(now: set).create(passcode: passcode)
        #expect(try !vault(now: set + days) { $0.validDays = 30 }.isPasscodeExpired())
        let late = try vault(now: set + days + 1) { $0.validDays = 30 }
        #expect(try late.isPasscodeExpired())
        // A service comes back all the same.
        try late.unlock(passcode)
        try late.changePasscode(from: passcode, to: SecretBytes(utf8: "battery staple"))
        #expect(try !late.isPasscodeExpired())
        // The clock was wrong when it was set.
        #expect(try vault(now: set - 2 * 86400) { $0.validDays = 30 }.isPasscodeExpired())
    }

    @Test func aVaultMayHaveNoPasscodeWhereThePolicyPermitsIt() throws {
        #expect(try code { try self.vault().create(passcode: nil) } == .configurationInvalid)
        let vault = try self.vault { $0.allowsDefault = true }
        try vault.create(passcode: nil)
        try vault.setValue(passcode, named: "value")
        let later = try self.vault()
        #expect(try later.hasNoPasscode() && later.state() == .locked)
        #expect(try code { try later.unlock(passcode) } == .operationNotAllowed)
        try later.unlock(nil)
        #expect(try later.value(named: "value") == passcode && later.attemptsLeft() == 10)
        try later.changePasscode(from: nil, to: passcode)
        #expect(try code { try self.vault().unlock(nil) } == .vaultLocked)
    }

    /// The passcode is known only then.
    @Test func weakParametersAreRaisedAtTheNextUnlock() throws {
        let stronger = ScryptParameters(logarithmOfCost: 4, blockSize: 2, parallelism: 1)
        let set = Date(timeIntervalSince1970: 1e9)
        try vault(now: set).create(passcode: passcode)
        #expect(try code { try vault(parameters: stronger).unlock(wrong) } == .wrongPassword)
        #expect(try storedKey().parameters == Self.cheap)
        try vault(now: set + 5, parameters: stronger).unlock(passcode)
        #expect(try storedKey().parameters == stronger && storedKey().passcodeSetAt == set)
        // Not lowered.
        try vault().unlock(passcode)
        #expect(try storedKey().parameters == stronger)
    }

    private func storedKey() throws -> VaultKeyFile {
        let file = directory["state/applications/app/vault/key"]
        return try VaultKeyFile(Array(Data(contentsOf: URL(filePath: file))))
    }

    /// Each command unlocks it.
    @Test func withoutAPasscodeNoTimeIsSpentOnGuessing() throws {
        let costly = ScryptParameters(logarithmOfCost: 4, blockSize: 2, parallelism: 1)
        func vault() throws -> DataVault { try self.vault(parameters: costly) { $0.allowsDefault = true } }
        try vault().create(passcode: nil)
        for _ in 0..<2 {
            #expect(try storedKey().parameters == Self.cheap)
            try vault().unlock(nil)
        }
        try vault().changePasscode(from: nil, to: passcode)
        #expect(try storedKey().parameters == costly)
        try vault().changePasscode(from: passcode, to: nil)
        #expect(try storedKey().parameters == Self.cheap)
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
        bytes[8] = 3
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

    // MARK: - Faults

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
            let failure: CertificateProviderError?
            do throws(CertificateProviderError) {
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

    @Test(arguments: [FaultyDisk.Call.unlink, .removeDirectory, .synchronize])
    func aDestructionThatFailsIsDoneAgain(call: FaultyDisk.Call) throws {
        for position in 1..<12 {
            let vault = try vault("app\(position)")
            try vault.create(passcode: passcode)
            try vault.storage(for: test).setEntry(try Samples.stored("app"), named: "entry")
            disk.fail(call, at: position, with: EIO)
            do throws(CertificateProviderError) { try vault.destroy() } catch {
                #expect(error.code == .deleteFailed, "\(error)")
            }
            disk.repair()
            // Whatever is left needs a key that is gone, unless nothing was removed.
            let isThere = try self.vault("app\(position)").state() != .none
            #expect(!isThere || position == 1 || call == .unlink, "at \(position)")
            try self.vault("app\(position)").destroy()
            let left = directory.contents().filter { $0.hasPrefix("state/applications/app\(position)/") }
            #expect(left == ["state/applications/app\(position)/.lock"], "at \(position): \(left)")
        }
    }

    // MARK: - The platform server's demands

    @Test func demandsTighten() throws {
        var demands = PasscodeDemands()
        (demands.minimumLength, demands.needsDigit, demands.maximumAttempts) = (12, true, 2)
        func create(_ vault: DataVault, _ text: String?) throws {
            try vault.create(
                passcode: text.map { SecretBytes(utf8: $0) }, records: [:], of: test,
                terms: VaultTerms(demands: demands))
        }
        let vault = try vault()
        let weak = try error { try create(vault, "correct horse") }
        #expect(weak.code == .configurationInvalid && weak.message.contains("a digit"), "\(weak)")
        #expect(weak.message.contains("platform server") && !weak.message.contains("12 characters"), "\(weak)")
        let own = try error { try create(vault, "short") }
        #expect(own.message.contains("8 characters") && !own.message.contains("platform server"), "\(own)")
        #expect(try vault.state() == .none)
        try create(vault, "correct horse 1")
        #expect(try vault.attemptsLeft() == 2)
        #expect(
            try code { try vault.changePasscode(from: SecretBytes(utf8: "correct horse 1"), to: passcode) }
                == .configurationInvalid)
        #expect(try vault.attemptsLeft() == 2)
        try vault.changePasscode(from: SecretBytes(utf8: "correct horse 1"), to: SecretBytes(utf8: "correct horse 2"))
        vault.lock()
        #expect(try code { try vault.unlock(wrong) } == .wrongPassword)
        #expect(try code { try self.vault().unlock(wrong) } == .vaultDestroyed)
    }

    @Test func demandsNeverLoosen() {
        var (policy, demands) = (PasscodePolicy(), PasscodeDemands())
        policy.needsSpecial = true
        (policy.validDays, policy.maximumAttempts) = (30, 5)
        #expect(policy.tightened(by: nil) == policy && policy.tightened(by: demands) == policy)
        (demands.minimumLength, demands.minimumUniqueCharacters) = (1, 0)
        (demands.needsSpecial, demands.needsDigit, demands.allowsDefault) = (false, false, true)
        (demands.validDays, demands.maximumAttempts) = (0, 0)
        #expect(policy.tightened(by: demands) == policy)
        (demands.validDays, demands.maximumAttempts) = (60, 10)
        #expect(policy.tightened(by: demands) == policy)
        (demands.validDays, demands.maximumAttempts) = (7, 3)
        let tightened = policy.tightened(by: demands)
        #expect(tightened.validDays == 7 && tightened.maximumAttempts == 3)
        (policy.validDays, policy.maximumAttempts, policy.allowsDefault) = (0, 0, true)
        demands.allowsDefault = false
        let limited = policy.tightened(by: demands)
        #expect(limited.validDays == 7 && limited.maximumAttempts == 3 && !limited.allowsDefault)
    }

    // MARK: - A key that wraps the vault's

    /// It is neither written anew nor taken for an empty one, with which a rejected passcode would be tried again.
    @Test func aNewerRecordOfRejectedPasscodesIsLeftAlone() throws {
        let vault = try vault()
        try vault.create(passcode: passcode, values: [:])
        vault.lock()
        #expect(try code { try vault.unlock(wrong, isAutomatic: true) } == .wrongPassword)
        let file = URL(filePath: directory["state/applications/app/rejected"])
        var content = try Data(contentsOf: file)
        content[0] += 1
        try content.write(to: file)
        let refused = try error { try vault.unlock(passcode, isAutomatic: true) }
        #expect(refused.code == .storeReadFailed && refused.message.contains("update certprov"), "\(refused)")
        #expect(try vault.attemptsLeft() == 9 && Data(contentsOf: file) == content)
        try vault.unlock(passcode, isAutomatic: false)
    }

    @Test func theFactorIsNeededBesidesThePasscode() throws {
        let factor = SecretBytes(copying: Array(0..<32))
        let key = KeyReference(publicKey: try Samples.identity("app").key.publicKey, uri: "test:key")
        let terms = VaultTerms(
            wrapping: VaultKeyWrapping(factor, key: key, scheme: "test", ciphertext: [1, 2, 3]))
        let vault = try vault { $0.maximumAttempts = 2 }
        try vault.create(passcode: passcode, records: [:], of: test, terms: terms, factor: factor)
        #expect(try vault.terms()?.wrapping?.key.uri == "test:key")
        vault.lock()
        // Without the right factor no attempt is made.
        for _ in 0..<4 {
            let missing = try error { try vault.unlock(passcode) }
            #expect(missing.code == .vaultLocked && missing.message.contains("test:key"), "\(missing)")
            #expect(try code { try vault.unlock(passcode, factor: passcode, isAutomatic: false) } == .storeReadFailed)
        }
        #expect(try vault.attemptsLeft() == 2)
        try vault.unlock(passcode, factor: factor, isAutomatic: false)
        let new = SecretBytes(utf8: "another horse")
        try vault.changePasscode(from: passcode, to: new, factor: factor, isAutomatic: false)
        vault.lock()
        #expect(try code { try vault.unlock(new) } == .vaultLocked)
        try vault.unlock(new, factor: factor, isAutomatic: true)
        vault.lock()
        #expect(try code { try vault.unlock(wrong, factor: factor, isAutomatic: false) } == .wrongPassword)
        #expect(try code { try vault.unlock(wrong, factor: factor, isAutomatic: false) } == .vaultDestroyed)
    }
}
