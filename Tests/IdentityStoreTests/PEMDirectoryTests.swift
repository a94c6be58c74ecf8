import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct PEMDirectoryTests {
    private struct Fixture {
        let directory: TemporaryDirectory
        let disk = FaultyDisk()
        /// The identity of ``one``.
        let identity: Identity
        let (one, other): (PEMFiles, PEMFiles)

        init() throws {
            directory = try TemporaryDirectory()
            identity = try Samples.identity("one")
            one = try PEMFiles(identity, exportingKey: true)
            other = try PEMFiles(try Samples.identity("other"), exportingKey: true)
        }

        func write(_ set: PEMFiles) throws -> [String] {
            try PEMDirectory(path: directory["pem"], files: disk.fileSystem).write(set)
        }

        /// Whether `current` is that set, whole.
        func isCurrent(_ set: PEMFiles) -> Bool {
            set.files.allSatisfy { (try? directory.read("pem/current/\($0.name)")) == $0.content }
        }

        var sets: [String] {
            (try? FileManager.default.contentsOfDirectory(atPath: directory["pem"]))?
                .filter { $0.hasPrefix(".set-") } ?? []
        }
    }

    @Test func switchesAndKeepsTheSetBefore() throws {
        let fixture = try Fixture()
        let paths = try fixture.write(fixture.one)
        #expect(
            paths.map { $0.split(separator: "/").last } == ["certificate.pem", "chain.pem", "key.pem", "identity.pem"])
        #expect(fixture.isCurrent(fixture.one) && fixture.sets.count == 1)
        let before = try FileManager.default.destinationOfSymbolicLink(atPath: fixture.directory["pem/current"])
        #expect(try fixture.write(fixture.other) == paths)
        #expect(fixture.isCurrent(fixture.other) && fixture.sets.count == 2 && fixture.sets.contains(before))
        _ = try fixture.write(fixture.one)
        #expect(fixture.isCurrent(fixture.one) && fixture.sets.count == 2 && !fixture.sets.contains(before))
    }

    @Test func theSameSetIsNotWrittenAgain() throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        fixture.disk.repair()
        _ = try fixture.write(fixture.one)
        #expect(fixture.disk.counts == [.create: 1], "only the lock is opened")
        // Unless it was changed.
        try fixture.directory.write([1], to: "pem/current/key.pem")
        _ = try fixture.write(fixture.one)
        #expect(fixture.isCurrent(fixture.one))
        chmod(fixture.directory["pem/current/key.pem"], 0o644)
        _ = try fixture.write(fixture.one)
        #expect(try mode(fixture.directory["pem/current/key.pem"]) == 0o600)
    }

    @Test("A set that had a key keeps it, with a renewed certificate too")
    func theKeyOfAnUnchangedIdentityStays() throws {
        let fixture = try Fixture()
        let authority = try TestAuthority()
        let old = try authority.issue("one")
        let certificate = try authority.renew(old, as: "one", notBefore: Date())
        let new = try Identity(certificateChain: [certificate], key: old.key, provenance: old.provenance)
        _ = try fixture.write(try PEMFiles(old, exportingKey: true))
        let paths = try fixture.write(try PEMFiles(old, exportingKey: false))
        #expect(try fixture.isCurrent(PEMFiles(old, exportingKey: true)) && fixture.sets.count == 1)
        #expect(
            paths.map { $0.split(separator: "/").last } == ["certificate.pem", "chain.pem", "key.pem", "identity.pem"])
        _ = try fixture.write(try PEMFiles(new, exportingKey: false))
        #expect(try fixture.isCurrent(PEMFiles(new, exportingKey: true)) && fixture.sets.count == 2)
        #expect(try mode(fixture.directory["pem/current/key.pem"]) == 0o600)
    }

    @Test("A set without a key never takes the place of one with another key", arguments: [nil, "", "no key"])
    func aSetWithoutAKeyIsRefused(keyFile: String?) throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        let key = fixture.directory["pem/current/key.pem"]
        if let keyFile { try fixture.directory.write(Array(keyFile.utf8), to: "pem/current/key.pem") }
        let before = (fixture.sets, try Data(contentsOf: URL(filePath: key)))
        // The one whose key it was, too, where the file does not have it any more.
        let sets = [try Samples.identity("other")] + (keyFile == nil ? [] : [fixture.identity])
        for identity in sets {
            let error = try error { _ = try fixture.write(try PEMFiles(identity, exportingKey: false)) }
            #expect(error.code == .storeWriteFailed && error.message.contains("--export-key"), "\(error)")
            #expect(try fixture.sets == before.0 && Data(contentsOf: URL(filePath: key)) == before.1)
        }
        _ = try fixture.write(fixture.other)
        #expect(fixture.isCurrent(fixture.other))
    }

    private func mode(_ path: String) throws -> UInt32 {
        let attributes = try FileManager.default.attributesOfItem(atPath: path)
        return try #require((attributes[.posixPermissions] as? NSNumber)?.uint32Value)
    }

    @Test func theKeyIsForItsOwner() throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        let modes = try fixture.one.files.map { try mode(fixture.directory["pem/current/\($0.name)"]) }
        #expect(modes == [0o644, 0o644, 0o600, 0o600])
    }

    @Test(
        arguments: [
            FaultyDisk.Call.create, .write, .changeMode, .synchronize, .rename, .symbolicLink, .makeDirectory,
        ], [true, false])
    func aFaultLeavesCurrentAsItWas(call: FaultyDisk.Call, hasOld: Bool) throws {
        let counting = try Fixture()
        if hasOld { _ = try counting.write(counting.one) }
        counting.disk.repair()
        _ = try counting.write(counting.other)
        let calls = try #require(counting.disk.counts[call])
        for position in 1...calls {
            let fixture = try Fixture()
            if hasOld { _ = try fixture.write(fixture.one) }
            fixture.disk.fail(call, at: position, with: ENOSPC)
            let error = try error { _ = try fixture.write(fixture.other) }
            #expect(error.code == .storeWriteFailed && error.message.contains(errorText(ENOSPC)), "\(error)")
            #expect(fixture.isCurrent(fixture.one) == hasOld, "at \(position)")
            #expect(!fixture.isCurrent(fixture.other), "at \(position)")
            fixture.disk.repair()
            _ = try fixture.write(fixture.other)
            #expect(fixture.isCurrent(fixture.other))
            #expect(fixture.sets.count == (hasOld ? 2 : 1), "at \(position): \(fixture.sets)")
        }
    }

    @Test("A set of files that a crash left is removed")
    func whatACrashLeftIsRemoved() throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        mkdir(fixture.directory["pem/.set-crashed"], 0o700)
        try fixture.directory.write([1], to: "pem/.set-crashed/key.pem")
        symlink(".set-crashed", fixture.directory["pem/.set-crashed.link"])
        _ = try fixture.write(fixture.other)
        #expect(fixture.sets.count == 2 && !fixture.sets.contains { $0.contains("crashed") })
    }

    @Test func refusesWhatItDidNotWrite() throws {
        let fixture = try Fixture()
        mkdir(fixture.directory["pem"], 0o755)
        symlink("/etc", fixture.directory["pem/current"])
        #expect(try error { _ = try fixture.write(fixture.one) }.message.contains("was not written by certprov"))
        unlink(fixture.directory["pem/current"])
        mkdir(fixture.directory["pem/current"], 0o755)
        #expect(try error { _ = try fixture.write(fixture.one) }.code == .storeWriteFailed)
        rmdir(fixture.directory["pem/current"])
        chmod(fixture.directory["pem"], 0o777)
        #expect(try error { _ = try fixture.write(fixture.one) }.message.contains("chmod go-w"))
    }

    @Test func aMissingParentIsNotMade() throws {
        let directory = try TemporaryDirectory()
        let set = try PEMFiles(try Samples.identity("x"), exportingKey: false)
        #expect(try error { _ = try PEMDirectory(path: directory["a/b"]).write(set) }.code == .storeWriteFailed)
    }
}

@Suite struct PEMFilesTests {
    @Test(arguments: TestAuthority.KeyKind.allCases) func opensslReadsThem(kind: TestAuthority.KeyKind) throws {
        let directory = try TemporaryDirectory()
        let identity = try Samples.identity("pem", kind: kind)
        for file in try PEMFiles(identity, exportingKey: true).files {
            try directory.write(file.content, to: file.name)
        }
        let fromKey = try Subprocess.run(["openssl", "pkey", "-in", "identity.pem", "-pubout"], in: directory.path)
        let fromCertificate = try Subprocess.run(
            ["openssl", "x509", "-in", "identity.pem", "-noout", "-pubkey"], in: directory.path)
        #expect(fromKey == fromCertificate)
    }

    @Test func aKeyThatCannotLeaveItsHome() throws {
        let software = try Samples.identity("token")
        let identity = try software.with(TestKey(software.key))
        #expect(try PEMFiles(identity, exportingKey: false).files.count == 2)
        let error = try error { _ = try PEMFiles(identity, exportingKey: true) }
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("cannot leave its token"))
    }
}
