import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

@testable import IdentityFiles

@Suite struct FileSetDirectoryTests {
    private struct Fixture {
        let directory: TemporaryDirectory
        let disk = FaultyDisk()
        /// The identity of ``one``.
        let identity: Identity
        let (one, other): (FileSet, FileSet)

        init() throws {
            directory = try TemporaryDirectory()
            identity = try Samples.identity("one")
            one = try FileSet(identity, exportingKey: true)
            other = try FileSet(try Samples.identity("other"), exportingKey: true)
        }

        func write(
            _ set: FileSet, _ permissions: FilePermissions = FilePermissions(), notifies: Bool = false
        ) throws -> [String] {
            try FileSetDirectory(path: directory["pem"], permissions: permissions, files: disk.fileSystem)
                .write(set, notifies: notifies)
        }

        /// Whether `current` is that set, whole.
        func isCurrent(_ set: FileSet) -> Bool {
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
        #expect(fixture.disk.counts == [:], "not even the lock is opened")
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
        _ = try fixture.write(try FileSet(old, exportingKey: true))
        let paths = try fixture.write(try FileSet(old, exportingKey: false))
        #expect(try fixture.isCurrent(FileSet(old, exportingKey: true)) && fixture.sets.count == 1)
        #expect(
            paths.map { $0.split(separator: "/").last } == ["certificate.pem", "chain.pem", "key.pem", "identity.pem"])
        _ = try fixture.write(try FileSet(new, exportingKey: false))
        #expect(try fixture.isCurrent(FileSet(new, exportingKey: true)) && fixture.sets.count == 2)
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
            let error = try error { _ = try fixture.write(try FileSet(identity, exportingKey: false)) }
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

    @Test("A mode that an administrator has set is no change, and the next set has it too")
    func theModeOfBeforeStays() throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        for name in ["key.pem", "identity.pem"] { chmod(fixture.directory["pem/current/\(name)"], 0o640) }
        let before = fixture.sets
        _ = try fixture.write(fixture.one)
        #expect(fixture.sets == before)
        _ = try fixture.write(fixture.other)
        #expect(fixture.isCurrent(fixture.other))
        #expect(try mode(fixture.directory["pem/current/key.pem"]) == 0o640)
        // A mode that is demanded takes its place, also where the content stays.
        _ = try fixture.write(fixture.other, FilePermissions(keyMode: 0o440))
        #expect(try mode(fixture.directory["pem/current/identity.pem"]) == 0o440)
        #expect(try mode(fixture.directory["pem/current/chain.pem"]) == 0o644)
    }

    @Test("The next set has the access control list of the set before, and its owner's group gets no more by it")
    func theAccessListOfBeforeStays() throws {
        let fixture = try Fixture()
        let key = fixture.directory["pem/current/key.pem"]
        func list() throws -> [String] {
            String(decoding: try Subprocess.run(["getfacl", "-c", "--numeric", key]), as: UTF8.self)
                .split(separator: "\n").map(String.init)
        }
        _ = try fixture.write(fixture.one)
        _ = try Subprocess.run(["setfacl", "-m", "u:12345:r", key])
        let wanted = ["user::rw-", "user:12345:r--", "group::---", "mask::r--", "other::---"]
        #expect(try list() == wanted)
        let before = fixture.sets
        _ = try fixture.write(fixture.one)
        #expect(fixture.sets == before)
        _ = try fixture.write(fixture.other)
        #expect(try fixture.isCurrent(fixture.other) && list() == wanted)
        // A mode that is demanded bounds the list.
        _ = try fixture.write(fixture.other, FilePermissions(keyMode: 0o600))
        #expect(try list().contains("mask::---"))
        // And is the group's, too: also where the mode, which has the list's bound, is that already.
        chmod(key, 0o640)
        _ = try fixture.write(fixture.other, FilePermissions(keyMode: 0o640))
        #expect(
            try list() == ["user::rw-", "user:12345:r--", "group::r--", "mask::r--", "other::---"])
        var files = fixture.disk.fileSystem
        files.changeAccessList = { _, _ in
            errno = EOPNOTSUPP
            return -1
        }
        let directory = FileSetDirectory(path: fixture.directory["pem"], files: files)
        let error = try error { _ = try directory.write(fixture.one) }
        #expect(error.code == .storeWriteFailed && error.message.contains("access control list"))
        #expect(fixture.isCurrent(fixture.other))
    }

    @Test("Where the key is in PKCS#12 alone, a set without a key is refused for that reason")
    func aKeyInPKCS12Alone() throws {
        let fixture = try Fixture()
        let form = FileSet.PKCS12(password: SecretBytes(utf8: "s3cret"), isLegacy: false)
        _ = try fixture.write(
            try FileSet(fixture.identity, exportingKey: true, formats: [.pkcs12], pkcs12: form))
        let error = try error { _ = try fixture.write(FileSet(fixture.identity, exportingKey: false)) }
        #expect(error.code == .storeWriteFailed && error.message.contains("identity.p12 alone"), "\(error.message)")
    }

    @Test("An owner that cannot be given leaves the files as they were")
    func anOwnerThatCannotBeGiven() throws {
        let fixture = try Fixture()
        _ = try fixture.write(fixture.one)
        var files = fixture.disk.fileSystem
        files.changeOwner = { _, _, _ in
            errno = EPERM
            return -1
        }
        let directory = FileSetDirectory(
            path: fixture.directory["pem"], permissions: FilePermissions(owner: geteuid() + 1, group: getegid() + 1),
            files: files)
        let error = try error { _ = try directory.write(fixture.other) }
        #expect(error.code == .storeWriteFailed && error.message.contains("the owner \(geteuid() + 1) and the group"))
        #expect(fixture.isCurrent(fixture.one) && fixture.sets.count == 1)
    }

    @Test("Programs are told of each new set once, and again after a failure")
    func programsAreTold() throws {
        let fixture = try Fixture()
        let directory = FileSetDirectory(path: fixture.directory["pem"])
        var told = 0
        func tell() throws { try directory.notify { () throws(ProviderError) in told += 1 } }
        _ = try fixture.write(fixture.one, notifies: true)
        let error = try error {
            try directory.notify { () throws(ProviderError) in
                throw ProviderError(.unavailable, "Not now.")
            }
        }
        #expect(error.message == "Not now." && directory.notNotified != nil)
        try tell()
        #expect(told == 1 && directory.notNotified == nil)
        _ = try fixture.write(fixture.one, notifies: true)
        try tell()
        #expect(told == 1)
        _ = try fixture.write(fixture.other, notifies: true)
        // A set that another process has written during that is not taken for this one.
        try directory.notify { () throws(ProviderError) in
            do { _ = try fixture.write(fixture.one, notifies: true) } catch { Issue.record("\(error)") }
        }
        try tell()
        #expect(told == 2 && directory.notNotified == nil)
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
        let set = try FileSet(try Samples.identity("x"), exportingKey: false)
        #expect(
            try error { _ = try FileSetDirectory(path: directory["a/b"]).write(set) }.code == .storeWriteFailed)
    }
}

@Suite struct FileSetTests {
    @Test(arguments: TestAuthority.KeyKind.allCases, [false, true])
    func opensslReadsPKCS12AndDER(kind: TestAuthority.KeyKind, isLegacy: Bool) throws {
        let directory = try TemporaryDirectory()
        let identity = try Samples.identity("forms", kind: kind)
        let form = FileSet.PKCS12(password: SecretBytes(utf8: "s3cret ä"), isLegacy: isLegacy)
        let set = try FileSet(identity, exportingKey: true, formats: [.der, .pkcs12], pkcs12: form)
        #expect(set.files.map(\.name) == ["certificate.der", "key.der", "identity.p12"])
        for file in set.files { try directory.write(file.content, to: file.name) }
        func openssl(_ words: String...) throws -> [UInt8] {
            try Subprocess.run(["openssl"] + words, in: directory.path)
        }
        let wanted = try openssl("x509", "-inform", "der", "-in", "certificate.der", "-noout", "-pubkey")
        #expect(try openssl("pkey", "-inform", "der", "-in", "key.der", "-pubout") == wanted)
        let file = ["pkcs12", "-in", "identity.p12", "-passin", "pass:s3cret ä", "-nodes"]
        try directory.write(try Subprocess.run(["openssl"] + file, in: directory.path), to: "all.pem")
        #expect(try openssl("pkey", "-in", "all.pem", "-pubout") == wanted)
        #expect(try openssl("x509", "-in", "all.pem", "-noout", "-pubkey") == wanted)
    }

    @Test("A name that PKCS#12 cannot have is written without those characters")
    func aNameBeyondUTF16() throws {
        let form = FileSet.PKCS12(password: SecretBytes(utf8: "s3cret"), isLegacy: false)
        let set = try FileSet(
            try Samples.identity("\u{1f511} key"), exportingKey: true, formats: [.pkcs12], pkcs12: form)
        let directory = try TemporaryDirectory()
        try directory.write(set.files[0].content, to: "identity.p12")
        let shown = try Subprocess.run(
            ["openssl", "pkcs12", "-in", "identity.p12", "-passin", "pass:s3cret", "-nokeys"], in: directory.path)
        #expect(String(decoding: shown, as: UTF8.self).contains("friendlyName: \u{fffd} key"))
    }

    @Test("An encrypted file with the same content and password is the same")
    func theSamePKCS12() throws {
        let directory = try TemporaryDirectory()
        let identity = try Samples.identity("same")
        func write(_ identity: Identity, _ password: String, isLegacy: Bool = false) throws -> String {
            let form = FileSet.PKCS12(password: SecretBytes(utf8: password), isLegacy: isLegacy)
            _ = try FileSetDirectory(path: directory["out"]).write(
                try FileSet(identity, exportingKey: true, formats: [.pkcs12], pkcs12: form))
            return try FileManager.default.destinationOfSymbolicLink(atPath: directory["out/current"])
        }
        let first = try write(identity, "a")
        #expect(try write(identity, "a") == first)
        var targets = [first, try write(identity, "b"), try write(identity, "b", isLegacy: true)]
        targets.append(try write(try Samples.identity("other"), "b", isLegacy: true))
        #expect(Set(targets).count == 4)
    }

    @Test(arguments: [
        ("0640", 0o640), ("600", 0o600), ("0444", nil), ("0700", nil), ("0200", nil), ("+600", nil), ("x", nil),
    ])
    func modesOfKeys(text: String, mode: Int?) { #expect(FilePermissions.keyMode(text).map(Int.init) == mode) }

    @Test(
        "A value of Files.reload is units or a path",
        arguments: [
            ("nginx.service postgresql@15-main.service", true), ("/usr/local/bin/hook", true),
            ("/bin/sh -c true", false),
            ("nginx", false), ("-H evil.service", false), ("a.service;b.service", false), ("", false),
        ])
    func reloads(text: String, isValid: Bool) { #expect((ProgramReload(text) != nil) == isValid) }

    /// It stands for none in chown(2): files would be written anew each time.
    @Test("The highest number is no user and no group")
    func theHighestNumber() {
        for find in [FilePermissions.user, FilePermissions.group] {
            #expect(find("4294967295") == nil && find("4294967294") == 4_294_967_294 && find("0") == 0)
            #expect(find("+1") == nil && find("-1") == nil)
        }
    }

    @Test("A password with a NUL is refused, and not cut")
    func aPasswordWithANUL() throws {
        let form = FileSet.PKCS12(password: SecretBytes(utf8: "a\0b"), isLegacy: false)
        let error = try error {
            _ = try FileSet(Samples.identity("nul"), exportingKey: true, formats: [.pkcs12], pkcs12: form)
        }
        #expect(error.code == .configurationInvalid && error.message.contains("NUL"))
    }

    /// Such as the descriptor of a secret (fd:N).
    @Test("A reload's program gets no open file of certprov, and what it leaves behind may write without end")
    func whatAProgramGetsAndLeaves() throws {
        let directory = try TemporaryDirectory()
        func run(_ script: String) throws -> ProviderError? {
            let reload = ProgramReload(command: ["/bin/sh", "-c", script, "sh"], takesDirectory: true)
            do throws(ProviderError) { try reload.run("/srv/tls") } catch { return error }
            return nil
        }
        // Without O_CLOEXEC, as a shell opens it.
        let secret = open("/dev/null", O_RDONLY)
        defer { close(secret) }
        let high = fcntl(secret, F_DUPFD, 200)
        defer { close(high) }
        #expect(try run("! test -e /proc/self/fd/\(secret) && ! test -e /proc/self/fd/\(high)") == nil)
        let failed = try run("yes & echo $! >'\(directory["pid"])'; exit 3")
        let yes = try #require(pid_t(String(decoding: try directory.read("pid"), as: UTF8.self).dropLast()))
        defer { kill(yes, SIGKILL) }
        #expect(failed?.message.contains("failed with status 3") == true)
    }

    @Test func aProgramThatFailsHangsOrIsMissing() throws {
        let directory = try TemporaryDirectory()
        func run(_ script: String, atMost time: Duration = .seconds(60)) -> ProviderError? {
            let reload = ProgramReload(command: ["/bin/sh", "-c", script, "sh"], takesDirectory: true, time: time)
            do throws(ProviderError) { try reload.run("/srv/tls") } catch { return error }
            return nil
        }
        #expect(run("test \"$1\" = /srv/tls; exit $?") == nil)
        setenv("CERTPROV_TEST_PIN", "123456", 1)
        #expect(run("test -z \"$CERTPROV_TEST_PIN\"") == nil, "variables are not passed on")
        let failed = run("echo one; echo two. >&2; exit 3")
        #expect(
            failed?.code == .unavailable
                && failed?.message.contains("failed with status 3: one | two. The files are there") == true)
        #expect(run("kill -9 $$")?.message.contains("was ended by signal 9") == true)
        // With all that it has started.
        let hung = run("sleep 1000 & echo $! > '\(directory["pid"])'; wait", atMost: .milliseconds(300))
        #expect(hung?.code == .timedOut && hung?.message.contains("was killed") == true)
        // A daemon that it leaves behind holds the output.
        #expect(run("sleep 1000 & echo $! > '\(directory["daemon"])'") == nil)
        let daemon = try #require(pid_t(String(decoding: try directory.read("daemon"), as: UTF8.self).dropLast()))
        #expect(kill(daemon, SIGKILL) == 0)
        let missing = ProgramReload("/nonexistent/hook")
        let error = try error { try missing?.run("/srv/tls") }
        #expect(error.code == .unavailable && error.message.contains("check /nonexistent/hook"))
    }

    @Test(arguments: TestAuthority.KeyKind.allCases) func opensslReadsThem(kind: TestAuthority.KeyKind) throws {
        let directory = try TemporaryDirectory()
        let identity = try Samples.identity("pem", kind: kind)
        for file in try FileSet(identity, exportingKey: true).files {
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
        #expect(try FileSet(identity, exportingKey: false).files.count == 2)
        let error = try error { _ = try FileSet(identity, exportingKey: true) }
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("cannot leave its token"))
    }
}
