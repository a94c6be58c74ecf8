import CertificateProviding
import Dispatch
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct KeyFileTests {
    @Test(arguments: 1...5) func ofManyFirstWritersOneKeyWins(round: Int) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("racer")
        // Two processes' worth of stores, and a separate one.
        let stores = [fixture.store(), fixture.store()]
        let failures = Mutex<[String]>([])
        DispatchQueue.concurrentPerform(iterations: 24) { index in
            let store = index % 3 == 2 ? fixture.store() : stores[index % 3]
            do {
                try store.storage(for: ProviderID("test")).setEntry(identity, named: "entry\(index % 12)")
            } catch {
                failures.withLock { $0.append("\(error)") }
            }
        }
        #expect(failures.withLock { $0 } == [])
        for index in 0..<12 {
            #expect(try fixture.storage().entry(named: "entry\(index)") == identity)
            for store in stores {
                #expect(try store.storage(for: ProviderID("test")).entry(named: "entry\(index)") == identity)
            }
        }
        #expect(fixture.leftovers.isEmpty)
    }

    @Test func readersSeeTheOldOrTheNewEntryWhileItIsReplaced() throws {
        let fixture = try StoreFixture()
        let identities = [try Samples.stored("one"), try Samples.stored("other")]
        try fixture.storage().setEntry(identities[0], named: "entry")
        let isDone = Atomic(false)
        let problems = Mutex<[String]>([])
        DispatchQueue.concurrentPerform(iterations: 3) { index in
            do {
                let storage = fixture.storage()
                if index == 0 {
                    defer { isDone.store(true, ordering: .sequentiallyConsistent) }
                    for round in 0..<100 { try storage.setEntry(identities[round % 2], named: "entry") }
                }
                while !isDone.load(ordering: .sequentiallyConsistent) {
                    guard let found = try storage.entry(named: "entry"), identities.contains(found) else {
                        problems.withLock { $0.append("a mixed entry, or none") }
                        return
                    }
                }
            } catch {
                problems.withLock { $0.append("\(error)") }
            }
        }
        #expect(problems.withLock { $0 } == [])
    }

    @Test func anExistingKeyStays() throws {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("x"), named: "entry")
        let key = try fixture.directory.read("state/store.key")
        #expect(key.count == KeyFile.size)
        try fixture.storage().setEntry(try Samples.stored("y"), named: "other")
        #expect(try fixture.directory.read("state/store.key") == key)
    }

    @Test(arguments: [0, 1, 31, 33, 100]) func aKeyOfTheWrongSizeIsNotUsed(size: Int) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("x")
        try fixture.storage().setEntry(identity, named: "entry")
        try fixture.directory.write([UInt8](repeating: 7, count: size), to: "state/store.key")
        let writing = try error { try fixture.storage().setEntry(identity, named: "entry") }
        #expect(writing.message.contains("store.key") && writing.message.contains("\(size) bytes"), "\(writing)")
        #expect(try error { _ = try fixture.storage().entry(named: "entry") }.code == .storeReadFailed)
    }

    @Test func theFileSystemOfTheKeyFails() throws {
        let fixture = try StoreFixture()
        fixture.disk.fail(.link, at: 1, with: EPERM)
        let error = try error { try fixture.storage().setEntry(try Samples.stored("x"), named: "entry") }
        #expect(error.code == .storeWriteFailed && error.message.contains("store.key"))
        #expect(!fixture.directory.contents().contains("state/store.key"))
    }
}

@Suite struct SystemdCredentialKeyTests {
    private struct FixedKey: SealingKeySource {
        var key: SecretBytes?
        func existingKey() throws(ProviderError) -> SecretBytes? { key }
        func keyForSealing() throws(ProviderError) -> SecretBytes {
            guard let key else { throw ProviderError(.vaultLocked, "The vault is locked.") }
            return key
        }
    }

    @Test func aKeyFromElsewhereLeavesNoKeyFile() throws {
        let fixture = try StoreFixture()
        let source = FixedKey(key: SecretBytes(utf8: "0123456789abcdef0123456789abcdef"))
        let identity = try Samples.stored("x")
        try fixture.store(keySource: source).storage(for: ProviderID("test")).setEntry(identity, named: "entry")
        #expect(try fixture.store(keySource: source).storage(for: ProviderID("test")).entry(named: "entry") == identity)
        #expect(!fixture.directory.contents().contains("state/store.key"))
        #expect(throws: ProviderError.self) { _ = try fixture.storage().entry(named: "entry") }
    }

    @Test("An error of the key's source is passed on")
    func whatTheSourceSaysComesThrough() throws {
        let fixture = try StoreFixture()
        let storage = fixture.store(keySource: FixedKey(key: nil)).storage(for: ProviderID("test"))
        let error = try error { try storage.setEntry(try Samples.stored("x"), named: "entry") }
        #expect(error.code == .vaultLocked && error.provider == ProviderID("test"))
    }

    @Test func aLockedSourceIsNoReasonToDeleteAnything() throws {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("x"), named: "entry")
        let storage = fixture.store(keySource: LockedKey()).storage(for: ProviderID("test"))
        let error = try error { _ = try storage.entry(named: "entry") }
        #expect(error.code == .vaultLocked && error.provider == ProviderID("test"))
        #expect(error.message == "The vault is locked.")
    }

    private struct LockedKey: SealingKeySource {
        func existingKey() throws(ProviderError) -> SecretBytes? {
            throw ProviderError(.vaultLocked, "The vault is locked.")
        }
        func keyForSealing() throws(ProviderError) -> SecretBytes {
            throw ProviderError(.vaultLocked, "The vault is locked.")
        }
    }

    /// Only an absent file means that there is no credential: any other failure must not end in a store that is sealed with a
    /// key file.
    @Test("Only a missing credential file counts as absent")
    func isAbsentOnlyWhereThereIsNone() throws {
        let directory = try TemporaryDirectory()
        func key(in directory: String?) throws(ProviderError) -> SystemdCredentialKey? {
            try SystemdCredentialKey(secrets: SecretReader { $0 == "CREDENTIALS_DIRECTORY" ? directory : nil })
        }
        #expect(try key(in: nil) == nil && key(in: "") == nil && key(in: directory.path) == nil)
        let path = directory[SystemdCredentialKey.credentialName]
        symlink(path, path)
        #expect(try error { _ = try key(in: directory.path) }.code == .configurationInvalid, "a loop")
        unlink(path)
        mkdir(path, 0o700)
        #expect(try error { _ = try key(in: directory.path) }.code == .configurationInvalid, "a directory")
        #expect(try error { _ = try key(in: "relative") }.code == .configurationInvalid)
        rmdir(path)
        try directory.write(Array("short".utf8), to: SystemdCredentialKey.credentialName)
        #expect(try error { _ = try key(in: directory.path) }.code == .configurationInvalid)
        try directory.write([UInt8](repeating: 7, count: 32), to: SystemdCredentialKey.credentialName)
        #expect(try key(in: directory.path)?.existingKey()?.count == 32)
    }
}
