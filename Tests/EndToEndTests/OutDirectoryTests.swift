import Foundation
import Glibc
import TestSupport
import Testing

/// `fetch --out`: the files that other programs read.
@Suite struct OutDirectoryTests {
    private let sandbox: Sandbox
    private let out: String

    init() throws {
        sandbox = try Sandbox()
        out = sandbox.path + "/out"
    }

    private func fetch(_ fixture: String, _ more: String...) throws -> Output {
        try sandbox.certprov(["fetch", "--json", "--out", out] + more + adHoc(Fixtures.path(fixture)))
    }

    @Test("Files by --out have the documented modes whatever the umask", arguments: ["000", "022", "077"])
    func hasTheSameModesWhateverTheUmask(umask: String) throws {
        let arguments = ["fetch", "--json", "--export-key", "--out", out] + adHoc(Fixtures.path("ec.p12"))
        let output = try sandbox.run(
            ["/bin/sh", "-c", "umask \(umask); exec \"$CERTPROV\" \"$@\"", "sh"] + arguments
        ).expect(stderr: "")
        let current = out + "/current"
        for directory in [out, current] { #expect(mode(directory) == 0o755) }
        let modes: [String: mode_t] = [
            "certificate.pem": 0o644, "chain.pem": 0o644, "key.pem": 0o600, "identity.pem": 0o600,
        ]
        #expect(try FileManager.default.contentsOfDirectory(atPath: current).sorted() == modes.keys.sorted())
        for (name, expected) in modes { #expect(mode("\(current)/\(name)") == expected, "\(name)") }
        // The store is for its owner alone.
        for name in ["", "/identities", "/identities/pkcs12"] { #expect(mode(sandbox.store + name) == 0o700) }
        for path in [sandbox.store + "/store.key", try sandbox.entry()] { #expect(mode(path) == 0o600) }

        let files = try output.document("Identity")["files"]
        #expect(files.keys == ["certificate", "chain", "identity", "key"])
        for key in files.keys { #expect(files[key].string == "\(current)/\(key).pem") }
    }

    @Test(arguments: ["ec", "ed25519", "rsa", "legacy"]) func writesWhatOpenSSLTakes(name: String) throws {
        #expect(try fetch("\(name).p12", "--export-key").status == 0)
        let script = """
            set -eu; cd "$1/current"
            openssl verify -CAfile "$2" -untrusted chain.pem certificate.pem
            [ "$(openssl x509 -in certificate.pem -pubkey -noout)" = "$(openssl pkey -in key.pem -pubout)" ]
            openssl x509 -in "$3" | cmp - certificate.pem
            openssl pkey -in "$4" | cmp - key.pem
            [ "$(grep -c BEGIN chain.pem)" = 2 ]
            cat key.pem chain.pem | cmp - identity.pem
            """
        try sandbox.shell(
            script, out, Fixtures.path("root.pem"), Fixtures.path("\(name).pem"), Fixtures.path("\(name).key")
        ).expect()
    }

    /// In its plainest form the command line is not the parser's to read.
    @Test func theFormOfTheOptionsMakesNoDifference() throws {
        let plain = try sandbox.certprov(
            ["fetch", "--json", "--force", "--export-key", "--out", out] + adHoc(Fixtures.path("ec.p12")))
        let parsed = try sandbox.certprov(
            ["fetch", "--json", "--force", "--export-key", "--out=\(out)"] + adHoc(Fixtures.path("ec.p12")))
        #expect(plain.status == 0 && plain.stdout.contains("key.pem"), "\(plain)")
        #expect(parsed.status == 0 && parsed.stdout == plain.stdout, "\(parsed)")
    }

    @Test(arguments: [
        ["--out"], ["--out", ""], ["--out", "--force"], ["--export-key"], ["--force", "--no-such-option"],
        ["--dry-run"], ["--config", ""], ["--set", "path=/other.p12"], ["--uri", "pkcs11:token=other"],
    ])
    func refusesOptionsThatAreWrong(words: [String]) throws {
        try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12")) + words).expect(
            64, stderr: "Usage: certprov fetch")
        #expect(!FileManager.default.fileExists(atPath: sandbox.store))
    }

    @Test func writesNoKeyUnlessAsked() throws {
        #expect(try fetch("ec.p12").document("Identity")["files"].keys == ["certificate", "chain"])
        let names = try FileManager.default.contentsOfDirectory(atPath: out + "/current")
        #expect(names.sorted() == ["certificate.pem", "chain.pem"])
        // Without --out there are no files to speak of.
        let plain = try sandbox.certprov(["fetch", "--json"] + adHoc(Fixtures.path("ec.p12")))
        #expect(try plain.document("Identity").keys == ["apiVersion", "identity", "kind", "warnings"])
    }

    /// A look with --json must not take the key from the server that reads the directory.
    @Test("fetch --out without --export-key leaves the key of the set, and refuses a set of another key")
    func theKeyOfTheSetStays() throws {
        #expect(try fetch("a.p12", "--export-key").status == 0)
        let target = try FileManager.default.destinationOfSymbolicLink(atPath: out + "/current")
        let key = try contents(out + "/current/key.pem")
        #expect(try fetch("a.p12").document("Identity")["files"].keys == ["certificate", "chain", "identity", "key"])
        for more in [[], ["--force"]] {
            let output = try sandbox.certprov(["fetch", "--json", "--out", out] + more + adHoc(Fixtures.path("b.p12")))
            let message = try output.expectFailure("storeWriteFailed", status: 73)
            #expect(message.contains("--export-key") && message.contains("current is unchanged"), "\(message)")
        }
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: out + "/current") == target)
        #expect(try contents(out + "/current/key.pem") == key)
        #expect(try fetch("b.p12", "--export-key").status == 0)
        #expect(try contents(out + "/current/key.pem") != key)
    }

    @Test func writesNothingWhereNothingChanged() throws {
        #expect(try fetch("ec.p12", "--export-key").status == 0)
        let current = out + "/current"
        let target = try FileManager.default.destinationOfSymbolicLink(atPath: current)
        let inode = try #require(status("\(out)/\(target)")).inode
        let changed = try #require(status(out)).modified
        for more in [[], ["--force"]] {
            #expect(
                try sandbox.certprov(
                    ["fetch", "--export-key", "--out", out] + more + adHoc(Fixtures.path("ec.p12"))
                ).status == 0)
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: current) == target)
            #expect(status("\(out)/\(target)")?.inode == inode)
            #expect(status(out)?.modified == changed)
        }
    }

    @Test func switchesWhatAReaderSeesAndKeepsTheSetBefore() throws {
        let source = try sandbox.copy("a.p12", to: "client.p12")
        let arguments = ["fetch", "--force", "--export-key", "--out", out] + adHoc(source)
        #expect(try sandbox.certprov(arguments).status == 0)
        let old = try FileManager.default.destinationOfSymbolicLink(atPath: out + "/current")
        _ = try sandbox.copy("b.p12", to: "client.p12")
        #expect(try sandbox.certprov(arguments).status == 0)
        let new = try FileManager.default.destinationOfSymbolicLink(atPath: out + "/current")
        #expect(new != old)
        #expect(try contents("\(out)/\(old)/key.pem") != contents("\(out)/\(new)/key.pem"))
        // Taken back after a change by hand.
        try sandbox.write("damaged", to: "\(out)/current/chain.pem")
        #expect(try sandbox.certprov(arguments).status == 0)
        #expect(try contents("\(out)/current/chain.pem").count > 1000)
    }

    @Test(arguments: ["file", "directory", "link"]) func leavesAForeignCurrentAlone(kind: String) throws {
        mkdir(out, 0o700)
        let current = out + "/current"
        switch kind {
        case "file": try sandbox.write("mine", to: current)
        case "directory": mkdir(current, 0o700)
        default: symlink("elsewhere", current)
        }
        let before = try #require(status(current))
        try fetch("ec.p12").expectFailure("storeWriteFailed", status: 73)
        let after = try #require(status(current))
        #expect(after == before)
        #expect(status(sandbox.store + "/identities") == nil, "an identity was obtained")
        let names = try FileManager.default.contentsOfDirectory(atPath: out).filter { $0 != ".lock" }
        #expect(names == ["current"])
    }

    @Test func obtainsNothingForADirectoryThatCannotBeMade() throws {
        try sandbox.certprov(["fetch", "--out", out + "/of/none"] + adHoc(Fixtures.path("ec.p12"))).expect(
            73, stderr: "create the directory that it is to be in")
        #expect(status(sandbox.store + "/identities") == nil, "an identity was obtained")
    }

    @Test(arguments: [0o777, 0o1777, 0o775]) func refusesADirectoryThatOthersMayWriteTo(mode: mode_t) throws {
        mkdir(out, 0o700)
        chmod(out, mode)
        let message = try fetch("ec.p12", "--export-key").expectFailure("storeWriteFailed", status: 73)
        // A directory for all users, such as /tmp, stays one.
        #expect(message.contains("chmod go-w \(out)") == (mode & 0o1000 == 0), "\(message)")
        #expect(message.contains("name a new subdirectory of it"), "\(message)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: out) == [])
    }

    @Test func refusesALinkAndAMissingParent() throws {
        mkdir(sandbox.path + "/real", 0o700)
        symlink(sandbox.path + "/real", out)
        try fetch("ec.p12").expectFailure("storeWriteFailed", status: 73)
        let output = try sandbox.certprov(
            ["fetch", "--json", "--out", "\(sandbox.path)/no/such"] + adHoc(Fixtures.path("ec.p12")))
        try output.expectFailure("storeWriteFailed", status: 73)
    }
}
