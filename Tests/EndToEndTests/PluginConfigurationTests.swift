import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

/// Two property files with one plugin: each has an identity of its own, in all that the command does with it.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct PluginConfigurationTests {
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        mkdir(sandbox.path + "/plugins", 0o700)
        for name in ["web", "alice"] { try makeIdentity(name) }
    }

    /// Makes an identity in a directory of its name.
    private func makeIdentity(_ name: String) throws {
        try sandbox.shell(
            """
            set -eu
            mkdir -m 700 $1 && cd $1
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout key.pem -out cert.pem -days 30 \\
                -subj /CN=$2
            """, sandbox.path + "/" + name, name
        ).require()
    }

    /// Installs the template of a language as the plugin `corp`.
    private func install(_ language: String) throws {
        try sandbox.shell(
            """
            set -eu
            cd "$HOME"
            "$CERTPROV" plugin new corp --language $1
            cd corp
            [ $1 != go ] || GOFLAGS=-mod=mod go build -o certprov-plugin-corp .
            install -m 700 certprov-plugin-corp $2/certprov-plugin-corp
            """, language, sandbox.path + "/plugins"
        ).require()
    }

    /// - Parameter lines: More of the property file, before the parameter `directory`.
    @discardableResult
    private func configure(_ name: String, directory: String? = nil, _ lines: String = "") throws -> String {
        try sandbox.write(
            """
            PluginDirectory = \(sandbox.path)/plugins
            CertificateProvider = corp
            \(lines)
            CertificateProvider.corp.directory = \(sandbox.path)/\(directory ?? name)

            """, to: name + ".properties")
    }

    private func stored(_ file: String) throws -> [String?] {
        try sandbox.certprov("list", "--json", "--config", file).document("IdentityList")["items"].array
            .map { $0["subject"].string }
    }

    private func entries(_ file: String) throws -> [JSON] {
        try sandbox.certprov("store", "list", "--json", "--config", file).document("StoredIdentities")["items"].array
    }

    /// Exports the identity of a property file, and checks that its key is that of the certificate in the directory.
    private func expectExport(_ file: String, _ name: String) throws {
        let out = sandbox.path + "/out-" + name
        try sandbox.certprov("fetch", "--config", file, "--out", out, "--export-key").expect()
        try sandbox.shell(
            """
            set -eu
            openssl pkey -in $1/current/key.pem -pubout >$1.exported
            openssl x509 -in $2/cert.pem -noout -pubkey >$1.expected
            cmp $1.exported $1.expected
            cmp $1/current/certificate.pem $2/cert.pem
            """, out, sandbox.path + "/" + name
        ).expect()
    }

    @Test(arguments: ["python", "sh", "go"]) func eachPropertyFileHasItsIdentity(language: String) throws {
        try install(language)
        let (web, alice) = (try configure("web"), try configure("alice"))
        let started = try [web, alice].map { try sandbox.start([BuiltCommand.path, "fetch", "--config", $0]) }
        for process in started {
            let output = process.wait()
            #expect(output.status == 0, "\(output)")
        }
        let files = [(web, "web"), (alice, "alice")]
        for (file, name) in files {
            #expect(try stored(file) == ["CN=\(name)"])
            try expectExport(file, name)
            // The key that signs.
            let data = try sandbox.write("to sign", to: "data")
            try sandbox.certprov("sign", "raw", "--out", data + ".sig", "--force", data, "--config", file).expect()
            try sandbox.shell(
                """
                openssl x509 -in $1/cert.pem -noout -pubkey >$1.pub
                openssl dgst -sha256 -verify $1.pub -signature $2.sig $2
                """, sandbox.path + "/" + name, data
            ).expect()
            let all = try entries(file)
            #expect(all.count == 2 && all.allSatisfy { $0["entry"].string?.hasPrefix("corp/identity@") == true })
            #expect(all.filter { $0["used"].bool == true }.map { $0["propertyFile"].string } == [file], "\(all)")
        }
        // A new identity of one does not take away the other one's.
        #expect(try sandbox.certprov("fetch", "--force", "--config", alice).status == 0)
        try expectExport(web, "web")
        #expect(try sandbox.certprov("delete", "--yes", "--config", alice).status == 0)
        #expect(try stored(alice) == [] && stored(web) == ["CN=web"])
        try expectExport(web, "web")
        try sandbox.certprov(
            "plugin", "verify", sandbox.path + "/plugins/certprov-plugin-corp", "--set", "directory=\(sandbox.path)/web"
        ).expect(stdout: "passed   provider: configurationsAreApart")
    }

    @Test("The order of parameters, and those that do not distinguish, change nothing")
    func whatDoesNotDistinguishKeepsTheIdentity() throws {
        try install("python")
        let file = try configure("web")
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        // Only the store has it now.
        try #require(rename(sandbox.path + "/web", sandbox.path + "/moved") == 0)
        for lines in ["CertificateProvider.corp.timeout = 200", "CertificateProvider.corp.environment = LANG"] {
            try configure("web", lines)
            #expect(try sandbox.certprov("fetch", "--config", file).status == 0, "\(lines)")
        }
        #expect(try entries(file).count == 1)
    }

    @Test("After a change of a parameter the former identity is listed and can be deleted, also if it is the same one")
    func aFormerIdentityIsDeleted() throws {
        try install("python")
        let file = try configure("web")
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        try #require(rename(sandbox.path + "/web", sandbox.path + "/moved") == 0)
        try configure("web", directory: "moved")
        #expect(try stored(file) == [])
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        let all = try entries(file)
        #expect(all.count == 2 && all.count { $0["used"].bool == true } == 1, "\(all)")
        let former = try #require(all.first { $0["used"].bool == false }?["entry"].string)
        let used = try #require(all.first { $0["used"].bool == true }?["entry"].string)
        try sandbox.certprov("store", "delete", used, "--yes", "--json", "--config", file)
            .expectFailure("operationNotAllowed", status: 75)
        try sandbox.certprov("store", "delete", former, "--yes", "--config", file).expect()
        #expect(try entries(file).map { $0["entry"].string } == [used])
        #expect(try stored(file) == ["CN=web"])
    }

    @Test("An identity that rests under a name without a configuration is listed and can be deleted")
    func anIdentityUnderAnOldNameIsDeleted() throws {
        try install("python")
        let file = try configure("web")
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        let storage = IdentityStore(path: sandbox.store).storage(for: ProviderID("corp"))
        let name = try #require(try storage.entryNames().first)
        let entry = try #require(try storage.entry(named: name))
        try storage.removeEntry(named: name)
        try storage.setEntry(entry, named: "identity")
        #expect(try stored(file) == [])
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        #expect(Set(try entries(file).map { $0["entry"].string }) == ["corp/identity", "corp/" + name])
        try sandbox.certprov("store", "delete", "corp/identity", "--yes", "--config", file).expect()
        #expect(try entries(file).map { $0["entry"].string } == ["corp/" + name])
    }

    /// A mistake in the template's plugin, and how the verification names it.
    struct Mistake: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var replaced: [(String, String)]
        var check: String
        var reason: String
    }

    private static let forgetting = (#"return ask("entry.remove", {"name": "identity"})"#, "return {}")

    @Test(
        "A plugin that does not forget, names entries by paths, or leaves its files open, fails its verification",
        arguments: [
            Mistake(
                testDescription: "forgets nothing", replaced: [forgetting], check: "forgettingTwice",
                reason: "is still stored"),
            Mistake(
                testDescription: "forgets nothing, and says that the store is a file",
                replaced: [forgetting, (#""location": "store""#, #""location": "file""#)], check: "forgettingTwice",
                reason: "is still stored"),
            Mistake(
                testDescription: "open file",
                replaced: [
                    (
                        "        entry = {\"chain\": chain",
                        """
                                pathlib.Path(configured["directory"], "copy").write_bytes(key)
                                pathlib.Path(configured["directory"], "copy").chmod(0o640)
                                entry = {"chain": chain
                        """
                    )
                ], check: "files", reason: "has the mode 640"),
            Mistake(
                testDescription: "path in the store",
                replaced: [
                    (
                        #"        entry = ask("entry.read""#,
                        """
                                try:
                                    ask("record.read", {"name": "../identity"})
                                except Failure:
                                    pass
                                entry = ask("entry.read"
                        """
                    )
                ], check: "storageNames", reason: "A name in the store"),
        ])
    func mistakesOfAPlugin(mistake: Mistake) throws {
        try install("python")
        let program = sandbox.path + "/plugins/certprov-plugin-corp"
        var text = try String(contentsOfFile: program, encoding: .utf8)
        for (old, new) in mistake.replaced {
            try #require(text.contains(old), "\(old)")
            text = text.replacing(old, with: new)
        }
        try sandbox.installPlugin("corp", text)
        let output = try sandbox.certprov(
            "plugin", "verify", "--json", program, "--set", "directory=\(sandbox.path)/web")
        let failed = try output.document("PluginVerification")["items"].array.filter {
            $0["outcome"].string == "failed"
        }
        #expect(output.status == 76 && failed.map { $0["name"].string } == [mistake.check], "\(output)")
        #expect(failed.first?["reason"].string?.contains(mistake.reason) == true, "\(failed)")
    }

    /// It has a file of its own, which the host knows nothing of.
    @Test func aPluginThatMixesConfigurationsUpFailsItsVerification() throws {
        try install("python")
        let program = sandbox.path + "/plugins/certprov-plugin-corp"
        let text = try String(contentsOfFile: program, encoding: .utf8)
        let mixed = text.replacing(
            "def ask(request, params):\n",
            with: """
                def ask(request, params):
                    if request.startswith("entry."):
                        cache = pathlib.Path("\(sandbox.path)/cache")
                        if request == "entry.write":
                            cache.write_text(json.dumps(params["entry"], default=lambda der: base64.b64encode(der).decode()))
                        if request == "entry.remove":
                            cache.unlink(missing_ok=True)
                        return {"entry": json.loads(cache.read_text())} if cache.exists() else {}

                """)
        try #require(mixed != text)
        try sandbox.installPlugin("corp", mixed)
        let output = try sandbox.certprov(
            "plugin", "verify", "--json", program, "--set", "directory=\(sandbox.path)/web")
        let failed = try output.document("PluginVerification")["items"].array.filter {
            $0["outcome"].string == "failed"
        }
        #expect(output.status == 76 && failed.map { $0["name"].string } == ["configurationsAreApart"], "\(output)")
        #expect(failed.first?["reason"].string?.contains("With another 'directory'") == true, "\(failed)")
    }
}
