import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// The way to a directory: where another user may put links, none is followed.
@Suite(.enabled(if: geteuid() == 0, "only root can give directories and links away")) struct ReachedDirectoryTests {
    private static let other: uid_t = 65_534
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        for name in ["own", "own/inner", "target", "target/inner"] { mkdir(directory[name], 0o755) }
    }

    private func isReached(_ name: String, as target: String? = nil) throws -> Bool {
        guard let reached = try ReachedDirectory.open(directory[name]) else { return false }
        let place = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(reached.descriptor)")
        return place == directory[target ?? name]
    }

    private func refusal(_ name: String) -> String? {
        do throws(SafeDirectory.Refusal) { _ = try ReachedDirectory.open(directory[name]) } catch {
            return error.reason
        }
        return nil
    }

    @Test("Directories and links of root and this user are passed, relative and absolute ones")
    func ownLinks() throws {
        symlink("../target", directory["own/relative"])
        symlink(directory["target"], directory["own/absolute"])
        symlink("absolute/./inner/../inner/", directory["own/twice"])
        #expect(try isReached("own/inner"))
        #expect(try isReached("own/relative/inner", as: "target/inner"))
        #expect(try isReached("own/absolute/inner", as: "target/inner"))
        #expect(try isReached("own/twice", as: "target/inner"))
        #expect(try ReachedDirectory.open(directory["own/missing/inner"]) == nil)
        #expect(try ReachedDirectory.open("/")?.foreign == nil)
        #expect(try ReachedDirectory.open("") != nil)
        symlink("loop", directory["own/loop"])
        #expect(refusal("own/loop")?.contains("too many links") == true)
        try directory.write([], to: "own/file")
        #expect(refusal("own/file/inner")?.contains("is not a directory") == true)
    }

    @Test("Directories of another user are passed and named, and no link in or below them is followed")
    func anotherUsersDirectory() throws {
        mkdir(directory["own/inner/root"], 0o755)
        symlink("root", directory["own/inner/link"])
        symlink("inner", directory["own/link"])
        chown(directory["own"], Self.other, Self.other)
        #expect(try isReached("own/inner/root"))
        let foreign = try #require(try ReachedDirectory.open(directory["own/inner/root"])?.foreign)
        #expect(foreign.path == directory["own"] && foreign.owner == Self.other)
        for name in ["own/link/root", "own/inner/link"] {
            #expect(refusal(name)?.contains("symbolic link that another user may have made") == true, "\(name)")
        }
    }

    @Test(
        "A link in a directory that others may write to is not followed, but in one such as /tmp those of root and this user are"
    )
    func sharedDirectories() throws {
        symlink("inner", directory["own/mine"])
        symlink("inner", directory["own/theirs"])
        lchown(directory["own/theirs"], Self.other, Self.other)
        for (mode, mine) in [(mode_t(0o755), true), (0o777, false), (0o775, false), (0o1777, true)] {
            chmod(directory["own"], mode)
            #expect((refusal("own/mine") == nil) == mine, "\(String(mode, radix: 8))")
            #expect(refusal("own/theirs") != nil, "\(String(mode, radix: 8))")
            #expect(try isReached("own/inner") && ReachedDirectory.open(directory["own/inner"])?.foreign == nil)
        }
    }

    @Test("What is stored and written goes through no link of another user", arguments: ["open", "make", "create"])
    func safeDirectories(call: String) throws {
        symlink(directory["target"], directory["own/link"])
        chown(directory["own"], Self.other, Self.other)
        let path = directory["own/link/" + (call == "open" ? "inner" : "new")]
        do throws(SafeDirectory.Refusal) {
            switch call {
            case "open": _ = try SafeDirectory.open(path)
            case "make": try SafeDirectory.make(path, mode: 0o755, .system)
            default: _ = try SafeDirectory.create(path, .system)
            }
            Issue.record("it was not refused")
        } catch { #expect(error.reason.contains("does not follow it"), "\(error.reason)") }
        #expect(directory.contents().filter { $0.hasPrefix("target") } == ["target", "target/inner"])
    }

    @Test(
        "A directory that is put in the place of a new one is not opened to others", arguments: ["link", "directory"])
    func aNewDirectoryThatIsReplaced(kind: String) throws {
        let secret = directory["own/secret"]
        mkdir(secret, 0o700)
        try directory.write(Array("x".utf8), to: "own/secret/file")
        var files = FileSystem.system
        let make = files.makeDirectory
        // The owner of the directory above is quick.
        files.makeDirectory = { [directory] parent, name, mode in
            guard make(parent, name, mode) == 0 else { return -1 }
            _ = renameat(parent, name, parent, "moved")
            if kind == "link" {
                _ = symlinkat("secret", parent, name)
            } else {
                _ = rename(directory["own/secret"], directory["own/new"])
            }
            return 0
        }
        #expect(throws: SafeDirectory.Refusal.self) {
            try SafeDirectory.make(directory["own/new"], mode: 0o755, files)
        }
        let kept = kind == "link" ? secret : directory["own/new"]
        #expect(try FileManager.default.attributesOfItem(atPath: kept)[.posixPermissions] as? Int == 0o700)
    }
}
