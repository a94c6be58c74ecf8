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
        let (one, other): (PEMFiles, PEMFiles)

        init() throws {
            directory = try TemporaryDirectory()
            one = try PEMFiles(try Samples.identity("one"), exportingKey: true)
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
        // Unless somebody has changed it.
        try fixture.directory.write([1], to: "pem/current/key.pem")
        _ = try fixture.write(fixture.one)
        #expect(fixture.isCurrent(fixture.one))
        chmod(fixture.directory["pem/current/key.pem"], 0o644)
        _ = try fixture.write(fixture.one)
        #expect(try mode(fixture.directory["pem/current/key.pem"]) == 0o600)
    }

    @Test("Without the key, the key of the set before is removed, and its certificates stay")
    func theKeyOfTheSetBeforeIsRemoved() throws {
        let fixture = try Fixture()
        let certificates = try PEMFiles(try Samples.identity("one"), exportingKey: false)
        _ = try fixture.write(fixture.one)
        for _ in 0..<2 {
            _ = try fixture.write(certificates)
            #expect(fixture.isCurrent(certificates) && fixture.sets.count == 2)
            for set in fixture.sets {
                let names = try FileManager.default.contentsOfDirectory(atPath: fixture.directory["pem/\(set)"])
                #expect(names.sorted() == ["certificate.pem", "chain.pem"])
            }
        }
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
    private struct TokenKey: IdentityKey {
        let publicKey: PublicKeyInfo
        let signatureSchemes: [SignatureScheme] = []
        let location = KeyLocation.token
        func signature(
            for message: [UInt8], using scheme: SignatureScheme
        ) async throws(CertificateProviderError) -> [UInt8] { [] }
    }

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
        let identity = try Identity(
            certificateChain: software.certificateChain, key: TokenKey(publicKey: software.key.publicKey),
            provenance: software.provenance)
        #expect(try PEMFiles(identity, exportingKey: false).files.count == 2)
        let error = try error { _ = try PEMFiles(identity, exportingKey: true) }
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("cannot leave its token"))
    }
}
