import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// Directories and files that another user could have put there, or could change or read.
@Suite struct SafeDirectoryTests {
    private static let folders = ["state", "state/identities", "state/identities/test"]

    private func filled() throws -> StoreFixture {
        let fixture = try StoreFixture()
        try fixture.storage().setEntry(try Samples.stored("x"), named: "entry")
        return fixture
    }

    /// Expects every operation to be refused with `texts` in its message.
    private func expectRefusal(_ fixture: StoreFixture, _ texts: String...) throws {
        let identity = try Samples.stored("y")
        let errors = [
            try error { _ = try fixture.storage().entry(named: "entry") },
            try error { try fixture.storage().setEntry(identity, named: "entry") },
        ]
        for error in errors {
            #expect([.storeReadFailed, .storeWriteFailed].contains(error.code))
            for text in texts { #expect(error.message.contains(text), "\(error)") }
        }
    }

    @Test(arguments: folders, [0o777, 0o775, 0o757, 0o722] as [UInt32])
    func refusesADirectoryThatOthersMayChange(folder: String, mode: UInt32) throws {
        let fixture = try filled()
        let path = fixture.directory[folder]
        chmod(path, mode)
        try expectRefusal(fixture, String(mode, radix: 8), "run: chmod go-w \(path)")
        chmod(path, 0o755)
        #expect(try fixture.storage().entry(named: "entry") != nil)
    }

    @Test("A directory for all users, such as /tmp, stays one")
    func aSharedDirectoryIsNotToBeClosed() throws {
        let fixture = try filled()
        chmod(fixture.directory["state"], 0o1777)
        try expectRefusal(fixture, "name a new subdirectory of it (for the store of identities: STATE_DIRECTORY)")
        let error = try error { _ = try fixture.storage().entry(named: "entry") }
        #expect(!error.message.contains("chmod"), "\(error)")
    }

    @Test(arguments: [StoreFixture.entryFile, "state/store.key"], [0o644, 0o640, 0o604, 0o622] as [UInt32])
    func refusesAFileThatOthersMayRead(file: String, mode: UInt32) throws {
        let fixture = try filled()
        let path = fixture.directory[file]
        chmod(path, mode)
        try expectRefusal(fixture, String(mode, radix: 8), "run: chmod 600 \(path)")
        chmod(path, 0o400)
        #expect(try fixture.storage().entry(named: "entry") != nil)
    }

    @Test(arguments: folders) func followsNoLinkToADirectory(folder: String) throws {
        let fixture = try filled()
        let path = fixture.directory[folder]
        rename(path, fixture.directory["moved"])
        symlink(fixture.directory["moved"], path)
        try expectRefusal(fixture, "symbolic link, and certprov does not follow links")
    }

    @Test(arguments: [StoreFixture.entryFile, "state/store.key"]) func followsNoLinkToAFile(file: String) throws {
        let fixture = try filled()
        rename(fixture.directory[file], fixture.directory["moved"])
        symlink(fixture.directory["moved"], fixture.directory[file])
        try expectRefusal(fixture, "symbolic link, and certprov does not follow links")
    }

    @Test func aLinkAsTheLockIsRefused() throws {
        let fixture = try filled()
        unlink(fixture.directory["state/.lock"])
        symlink(fixture.directory["elsewhere"], fixture.directory["state/.lock"])
        let error = try error { try fixture.storage().setEntry(try Samples.stored("y"), named: "entry") }
        #expect(error.code == .storeWriteFailed)
        #expect(!fixture.directory.contents().contains("elsewhere"))
    }

    @Test("A pipe or a directory in the place of an entry is refused")
    func neitherAPipeNorADirectoryIsAnEntry() throws {
        let fixture = try filled()
        let path = fixture.directory[StoreFixture.entryFile]
        unlink(path)
        mkfifo(path, 0o600)
        try expectRefusal(fixture, "not a regular file")
        unlink(path)
        mkdir(path, 0o700)
        try expectRefusal(fixture, "not a regular file")
    }

    @Test(.enabled(if: geteuid() == 0, "only root makes a file of another user"))
    func refusesWhatBelongsToAnotherUser() throws {
        for name in Self.folders + [StoreFixture.entryFile, "state/store.key"] {
            let fixture = try filled()
            chown(fixture.directory[name], 65534, 65534)
            // Taking it would lock out the service whose store it is.
            try expectRefusal(fixture, "belongs to another user (uid 65534): run certprov as that user")
        }
    }

    @Test func refusesAnEntryThatIsTooLarge() throws {
        let fixture = try filled()
        truncate(fixture.directory[StoreFixture.entryFile], 1 << 40)
        try expectRefusal(fixture, "the limit is 1048576 bytes")
        try fixture.storage().removeEntry(named: "entry")
        try fixture.storage().setEntry(try Samples.stored("y"), named: "entry")
    }

    @Test("New files and directories are for their owner alone, whatever the umask")
    func whatIsMadeIsForItsOwnerAlone() throws {
        // An entry, its key and the directories, whatever the umask is.
        Surroundings.makeUsual()
        let before = umask(0)
        defer { umask(before) }
        let fixture = try filled()
        for name in fixture.directory.contents() {
            let attributes = try FileManager.default.attributesOfItem(atPath: fixture.directory[name])
            let mode = try #require((attributes[.posixPermissions] as? NSNumber)?.uint32Value)
            #expect(mode & 0o077 == 0, "\(name)")
        }
    }

    @Test func makesParents() throws {
        let directory = try TemporaryDirectory()
        let store = IdentityStore(path: directory["a/b//c/"])
        try store.storage(for: ProviderID("test")).setEntry(try Samples.stored("x"), named: "entry")
        #expect(directory.contents().contains("a/b/c/store.key"))
    }

    @Test func aFileInTheWayOfADirectory() throws {
        let directory = try TemporaryDirectory()
        try directory.write([1], to: "file")
        for path in ["file", "file/state"] {
            let storage = IdentityStore(path: directory[path]).storage(for: ProviderID("test"))
            let identity = try Samples.stored("x")
            #expect(try error { try storage.setEntry(identity, named: "entry") }.code == .storeWriteFailed)
            #expect(try error { _ = try storage.entry(named: "entry") }.code == .storeReadFailed)
        }
    }
}
