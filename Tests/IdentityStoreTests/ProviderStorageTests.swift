import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct ProviderStorageTests {
    @Test(arguments: TestAuthority.KeyKind.allCases) func givesBackWhatWasStored(kind: TestAuthority.KeyKind) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("round trip", kind: kind)
        #expect(try fixture.storage().entry(named: "entry") == nil)
        try fixture.storage().setEntry(identity, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == identity)
    }

    @Test func anIdentityWithoutAKeyOrAttributes() throws {
        let fixture = try StoreFixture()
        var identity = try Samples.stored("in a token")
        identity.privateKey = nil
        identity.attributes = [:]
        try fixture.storage().setEntry(identity, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == identity)
    }

    @Test("Reading an absent entry creates no file")
    func nothingIsMadeByLooking() throws {
        let fixture = try StoreFixture()
        #expect(try fixture.storage().entry(named: "entry") == nil)
        try fixture.storage().removeEntry(named: "entry")
        #expect(fixture.directory.contents().isEmpty)
    }

    @Test func storesOnOneDirectorySeeEachOther() throws {
        let fixture = try StoreFixture()
        let (one, other) = (fixture.storage(), fixture.storage())
        #expect(try other.entry(named: "entry") == nil)
        let (first, second) = (try Samples.stored("first"), try Samples.stored("second"))
        try one.setEntry(first, named: "entry")
        #expect(try other.entry(named: "entry") == first)
        try other.setEntry(second, named: "entry")
        #expect(try one.entry(named: "entry") == second)
        try one.removeEntry(named: "entry")
        #expect(try other.entry(named: "entry") == nil)
    }

    @Test func providersAndEntriesAreApart() throws {
        let fixture = try StoreFixture()
        let (first, second) = (try Samples.stored("first"), try Samples.stored("second"))
        try fixture.storage(ProviderID("a")).setEntry(first, named: "entry")
        try fixture.storage(ProviderID("b")).setEntry(second, named: "entry")
        try fixture.storage(ProviderID("a")).setEntry(second, named: "other")
        #expect(try fixture.storage(ProviderID("a")).entry(named: "entry") == first)
        #expect(try fixture.storage(ProviderID("b")).entry(named: "entry") == second)
        try fixture.storage(ProviderID("a")).removeEntry(named: "entry")
        #expect(try fixture.storage(ProviderID("a")).entry(named: "other") == second)
        #expect(try fixture.storage(ProviderID("b")).entry(named: "entry") == second)
    }

    @Test(arguments: ["", ".", "..", "../../store.key", "a/b", ".tmp-x", "a\0b", String(repeating: "n", count: 129)])
    func refusesNamesThatLeadElsewhere(name: String) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("x")
        try fixture.storage().setEntry(identity, named: "entry")
        let before = fixture.directory.contents()
        #expect(try error { _ = try fixture.storage().entry(named: name) }.code == .storeReadFailed)
        #expect(try error { try fixture.storage().setEntry(identity, named: name) }.code == .storeWriteFailed)
        #expect(try error { try fixture.storage().removeEntry(named: name) }.code == .deleteFailed)
        #expect(fixture.directory.contents() == before)
    }

    @Test(arguments: ["state", "state/identities", "state/identities/test"])
    func aDirectoryThatIsRemovedAndMadeAnew(folder: String) throws {
        let fixture = try StoreFixture()
        let (first, second) = (try Samples.stored("first"), try Samples.stored("second"))
        let (one, other) = (fixture.storage(), fixture.storage())
        try one.setEntry(first, named: "entry")
        #expect(try other.entry(named: "entry") == first)
        try FileManager.default.removeItem(atPath: fixture.directory[folder])
        #expect(try other.entry(named: "entry") == nil)
        // Written by a process that still remembers the key of the directory that is gone.
        try one.setEntry(second, named: "entry")
        #expect(try other.entry(named: "entry") == second)
        #expect(try fixture.storage().entry(named: "entry") == second, "after a restart")
    }

    @Test func anIdentityThatIsTooLargeIsNotStored() throws {
        let fixture = try StoreFixture()
        var identity = try Samples.stored("large")
        try fixture.storage().setEntry(identity, named: "entry")
        identity.attributes["large"] = String(repeating: "x", count: IdentityStore.maximumEntrySize)
        #expect(try error { try fixture.storage().setEntry(identity, named: "entry") }.code == .storeWriteFailed)
        #expect(try fixture.storage().entry(named: "entry")?.attributes["large"] == nil)
    }

    @Test func newerFormatsAreNeitherReadNorReplaced() throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("future")
        try fixture.storage().setEntry(identity, named: "entry")
        var file = try fixture.directory.read(StoreFixture.entryFile)
        file[8] = 2
        try fixture.directory.write(file, to: StoreFixture.entryFile)
        let reading = try error { _ = try fixture.storage().entry(named: "entry") }
        #expect(reading.code == .storeReadFailed && reading.message.contains("newer certprov (format 2)"))
        #expect(reading.underlying == nil)
        let writing = try error { try fixture.storage().setEntry(identity, named: "entry") }
        #expect(writing.code == .storeWriteFailed && writing.message.contains("newer certprov (format 2)"))
        #expect(try fixture.directory.read(StoreFixture.entryFile) == file)
        // A person who says "delete" means it; refusing would leave no way out but `rm`.
        try fixture.storage().removeEntry(named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == nil)
    }

    @Test("A damaged record, and one whose key is lost, can be removed; one of a newer version stays")
    func aRecordIsRemovedUnread() throws {
        let fixture = try StoreFixture()
        let file = "state/records/test/record"
        for damage in ["content", "key", "version"] {
            try fixture.storage().updateRecord(named: "record") { _ in SecretBytes(utf8: "content") }
            var bytes = try fixture.directory.read(file)
            switch damage {
            case "content": bytes[40] ^= 1
            case "key": unlink(fixture.directory["state/store.key"])
            default: bytes[8] += 1
            }
            try fixture.directory.write(bytes, to: file)
            let reading = try error { _ = try fixture.storage().record(named: "record") }
            #expect((reading.reason == .damaged) == (damage != "version"), "\(damage): \(reading)")
            do throws(ProviderError) {
                try fixture.storage().removeRecord(named: "record")
                #expect(damage != "version")
                #expect(try fixture.storage().record(named: "record") == nil)
            } catch {
                #expect(damage == "version" && error.code == .storeReadFailed && error.message.contains("newer"))
                #expect(try fixture.directory.read(file) == bytes)
            }
        }
    }

    @Test(arguments: ["identities/test/other", "identities/elsewhere/entry"])
    func anEntryDoesNotPassForAnother(place: String) throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("original")
        try fixture.storage().setEntry(identity, named: "entry")
        try fixture.storage(ProviderID("elsewhere")).setEntry(identity, named: "entry")
        let file = try fixture.directory.read(StoreFixture.entryFile)
        try fixture.directory.write(file, to: "state/" + place)
        let parts = place.split(separator: "/").map(String.init)
        let provider = try #require(ProviderID(rawValue: parts[1]))
        let error = try error { _ = try fixture.storage(provider).entry(named: parts[2]) }
        #expect(error.code == .storeReadFailed && error.message.contains("damaged"))
        #expect(error.reason == .damaged)
    }

    @Test func anotherSealingKeyIsCalledThat() throws {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("x"), named: "entry")
        let running = fixture.storage()
        _ = try running.entry(named: "entry")
        let key = try fixture.directory.read("state/store.key")
        try fixture.directory.write(key.reversed(), to: "state/store.key")
        let error = try error { _ = try fixture.storage().entry(named: "entry") }
        #expect(error.code == .storeReadFailed && error.message.contains("sealed with another key"))
        #expect(error.reason == .damaged)
        unlink(fixture.directory["state/store.key"])
        let lost = #expect(throws: ProviderError.self) { _ = try fixture.storage().entry(named: "entry") }
        #expect(lost?.reason == .damaged)
        try fixture.directory.write(key, to: "state/store.key")
        #expect(try fixture.storage().entry(named: "entry") != nil)
        #expect(try running.entry(named: "entry") != nil)
    }

    @Test("An identity that could not be read again is not stored")
    func whatCouldNotBeReadIsNotStored() throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("x")
        var chainless = identity
        chainless.certificateChain = []
        var misnamed = identity
        misnamed.attributes["a\0b"] = "c"
        for (flawed, text) in [(chainless, "no certificate"), (misnamed, "NUL")] {
            let error = try error { try fixture.storage().setEntry(flawed, named: "entry") }
            #expect(error.code == .storeWriteFailed && error.message.contains(text), "\(error)")
        }
        #expect(fixture.directory.contents().isEmpty)
        misnamed = identity
        misnamed.attributes = ["": "nameless", "name": "a\0b"]
        try fixture.storage().setEntry(misnamed, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == misnamed)
    }

    @Test func aRelativePathIsTakenOnce() {
        let here = FileManager.default.currentDirectoryPath
        #expect(IdentityStore(path: "state").path == here + "/state")
    }

    @Test("A lost key of the store is not replaced while private keys are sealed with it")
    func aLostKeyIsNotReplacedBesidePrivateKeys() async throws {
        let fixture = try StoreFixture()
        func keys() -> SealedKeyStore {
            SealedKeyStore(environment: .testing(storage: fixture.storage(ProviderID("store"))))
        }
        let key = try await keys().make(NewKey(.p256, label: "key"), NoUserInteraction()) { _ in }
        let (sealingKey, keysDirectory) = (try fixture.directory.read("state/store.key"), "state/records/store")
        unlink(fixture.directory["state/store.key"])
        let identity = try Samples.stored("x")
        let error = try error { try fixture.storage().setEntry(identity, named: "entry") }
        #expect(
            error.code == .storeReadFailed && error.message.contains(fixture.directory[keysDirectory])
                && error.message.contains("Restore the key"), "\(error)")
        #expect(!fixture.directory.contents().contains("state/store.key"))
        try fixture.directory.write(sealingKey, to: "state/store.key")
        #expect(try keys().storedKey(for: KeyReference(publicKey: key.publicKey, uri: key.uri ?? "")) != nil)
        // The message's first claim.
        unlink(fixture.directory["state/store.key"])
        try FileManager.default.removeItem(atPath: fixture.directory[keysDirectory])
        try fixture.storage().setEntry(identity, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == identity)
    }

    /// Beside a new key, the old one could not be brought back without losing the entries that were sealed since.
    @Test func aLostKeyIsNotReplacedWhileOthersNeedIt() throws {
        let fixture = try StoreFixture()
        let (first, second) = (try Samples.stored("first"), try Samples.stored("second"))
        try fixture.storage().setEntry(first, named: "entry")
        try fixture.storage(ProviderID("a")).setEntry(first, named: "entry")
        let key = try fixture.directory.read("state/store.key")
        unlink(fixture.directory["state/store.key"])
        for (provider, name, other) in [("test", "entry", "a"), ("a", "entry", "test"), ("b", "new", "identities/")] {
            let storage = fixture.storage(try #require(ProviderID(rawValue: provider)))
            let error = try error { try storage.setEntry(second, named: name) }
            #expect(error.code == .storeReadFailed && error.message.contains("Restore the key"), "\(error)")
            #expect(error.message.contains(other) && error.provider?.rawValue == provider, "\(error)")
        }
        #expect(!fixture.directory.contents().contains("state/store.key"))

        try fixture.directory.write(key, to: "state/store.key")
        #expect(try fixture.storage().entry(named: "entry") == first)
        #expect(try fixture.storage(ProviderID("a")).entry(named: "entry") == first)
        // An entry that is alone may be replaced: no other one is lost.
        unlink(fixture.directory["state/store.key"])
        try fixture.storage(ProviderID("a")).removeEntry(named: "entry")
        try fixture.storage().setEntry(second, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == second)
    }
}
