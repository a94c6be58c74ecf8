import Foundation
import Glibc
import TestSupport
import Testing

/// The command with plugins: the example of the documentation, and ones that write down that they were started.
@Suite(.enabled(if: TestLength.hasSeconds)) struct PluginTests {
    private let sandbox: Sandbox
    private let configuration: String

    init() throws {
        sandbox = try Sandbox()
        for name in ["plugins", "identity"] { mkdir(sandbox.path + "/" + name, 0o700) }
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../../Documentation/WritingAPlugin.md")
        let blocks = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "```")
        let program = try #require(blocks.first { $0.hasPrefix("python\n") }).dropFirst("python\n".count)
        try sandbox.shell(
            """
            set -eu
            openssl pkcs8 -topk8 -nocrypt -in $1/ec.key -out $2/identity/key.pem
            cat $1/ec.pem $1/intermediate.pem >$2/identity/cert.pem
            """, Fixtures.path(""), sandbox.path
        ).require()
        configuration = try sandbox.write(
            """
            PluginDirectory = \(sandbox.path)/plugins
            CertificateProvider = files
            CertificateProvider.files.directory = \(sandbox.path)/identity

            """, to: "plugin.properties")
        try sandbox.installPlugin("files", String(program))
    }

    @Test func aPluginIsUsedLikeABuiltInProvider() throws {
        let list = try sandbox.certprov("list", "--json", "--config", configuration)
        let fetched = try sandbox.certprov("fetch", "--json", "--config", configuration).document("Identity")[
            "identity"]
        #expect(fetched["provider"].string == "files" && fetched["key"]["location"].string == "file", "\(fetched)")
        #expect(try list.document("IdentityList")["items"].array.map { $0["provider"].string } == ["files"], "\(list)")
        let out = sandbox.path + "/out"
        try sandbox.certprov("fetch", "--config", configuration, "--out", out, "--export-key").expect()
        try sandbox.shell(
            """
            openssl x509 -in $1/current/certificate.pem -noout -pubkey >$1.a && \
            openssl pkey -in $1/current/key.pem -pubout >$1.b && cmp $1.a $1.b
            """, out
        ).expect()
        #expect(try sandbox.certprov("delete", "--yes", "--config", configuration).status == 0)
    }

    /// The name of a plugin tells whose a scheme is.
    @Test func providersShowsThatASchemeBelongsToAnotherPlugin() throws {
        for (id, schemes) in [("sea", ["sea", "sea-deep"]), ("sea-deep", ["sea-deep"])] {
            let stores = schemes.map {
                #"{"scheme":"\#($0)","displayName":"Sea","summary":"Water.","parameters":[],"makes":{"p256":["sign"]}}"#
            }
            let hello = #"{"version":1,"id":"\#(id)","keyStores":[\#(stores.joined(separator: ","))]}"#
            try sandbox.installPlugin(id, "#!/bin/sh\nread line\necho '{\"id\":1,\"result\":\(hello)}'\nread line\n")
        }
        let document = try sandbox.certprov("providers", "--json", "--config", configuration).document("ProviderList")
        let plugins = document["plugins"].array.filter { $0["id"].string?.hasPrefix("sea") == true }
        #expect(plugins.map { $0["id"].string } == ["sea", "sea-deep"])
        #expect(plugins[0]["error"].string?.contains("'sea-deep:' of the plugin 'sea' belongs") == true, "\(plugins)")
        #expect(plugins[1]["error"].isNull, "\(plugins)")
    }

    /// An answer may depend on more than the file that is installed: `providers` and `check` ask again, and what they hear
    /// counts from then on. One with a mistake is not remembered at all.
    @Test func aPluginIsMendedWithoutAChangeOfItsFile() throws {
        func declare(_ name: String) throws {
            try sandbox.write(
                #"{"name":"\#(name)","type":"path","required":true,"summary":"A directory."}"#, to: "parameters")
        }
        try sandbox.installPlugin(
            "late",
            #"""
            #!/bin/sh
            while read line; do case $line in *'"hello"'*)
            echo '{"id":1,"result":{"version":1,"id":"late","provider":{"displayName":"L","summary":"L.","parameters":['\
            "$(cat \#(sandbox.path)/parameters)"']}}}' ;; esac; done

            """#)
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = late\n", to: "late.properties")
        try declare("Dir")
        #expect(try sandbox.certprov("fetch", "--config", file).stderr.contains("declares a parameter 'Dir'"))
        for name in ["dir", "place"] {
            try declare(name)
            let document = try sandbox.certprov("providers", "--json", "--config", configuration).document(
                "ProviderList")
            let late = try #require(document["items"].array.first { $0["id"].string == "late" })
            #expect(late["parameters"].array.first?["name"].string == name)
            let error = try sandbox.certprov("fetch", "--config", file).stderr
            #expect(error.contains("'\(name)'"), "\(error)")
        }
    }

    @Test func providersShowsPluginsAndWhyOneIsNotUsed() throws {
        try sandbox.installPlugin("open", "#!/bin/sh\n", mode: "777")
        let document = try sandbox.certprov("providers", "--json", "--config", configuration).document("ProviderList")
        let files = try #require(document["items"].array.first { $0["id"].string == "files" })
        #expect(
            files["parameters"].array.map { $0["name"].string } == [
                "directory", "timeout", "environment", "sha256", "renew-at",
            ])
        let plugins = document["plugins"].array
        #expect(plugins.map { $0["id"].string } == ["files", "open"] && plugins[0]["error"].isNull)
        #expect(plugins[0]["path"].string == sandbox.path + "/plugins/certprov-plugin-files")
        #expect(plugins[1]["error"].string?.contains("other users may write") == true)
        let text = try sandbox.certprov("providers", "--config", configuration).stdout
        #expect(
            text.contains("Plugin: \(sandbox.path)/plugins/certprov-plugin-files, version 1.0, protocol 1"), "\(text)")
        #expect(text.contains("open: not used"), "\(text)")
        let check = try sandbox.certprov("check", "--config", configuration)
        #expect(check.stdout.contains("plugin open") && check.stdout.contains("chmod go-w"), "\(check)")
        try sandbox.certprov("fetch", "--provider", "open", "--config", configuration).expect(
            78, stderr: "The plugin 'open' is not used: ", "chmod go-w")
    }

    /// A key store that no provider is needed for.
    @Test func aKeyOfAPluginIsCertifiedByHand() throws {
        try sandbox.installTestPlugin("keys")
        let file = try sandbox.write("PluginDirectory = \(sandbox.path)/plugins\n", to: "keys.properties")
        let place = ["--config", file, "--key", "keys:"]
        let made = try sandbox.certprov(
            ["keygen", "--subject", "CN=by-hand", "--out", sandbox.path + "/by-hand.csr"] + place)
        #expect(made.status == 0 && made.stdout.hasPrefix("keys:"), "\(made)")
        try sandbox.shell(
            """
            set -eu; cd $1
            openssl req -in by-hand.csr -noout -verify
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ca.key -out ca.pem -days 1 -subj /CN=CA
            openssl x509 -req -in by-hand.csr -CA ca.pem -CAkey ca.key -days 1 -out by-hand.pem
            """, sandbox.path
        ).expect()
        try sandbox.certprov(["store-certificate", sandbox.path + "/by-hand.pem"] + place)
            .expect(stdout: "CN=by-hand", stderr: "'keys:' keeps no certificates", "'pem'")
        // 'pem' names the place of the key, and not the key.
        let combined = try sandbox.write(
            """
            PluginDirectory = \(sandbox.path)/plugins
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(sandbox.path)/by-hand.pem
            CertificateProvider.pem.key = keys:

            """, to: "combined.properties")
        for _ in 0..<2 {
            try sandbox.certprov("fetch", "--config", combined).expect(stdout: "CN=by-hand")
        }
        try sandbox.certprov("delete", "--yes", "--config", combined).expect(
            stderr: "the private key of 'CN=by-hand' stays, keys:")
        // A request for the key that is there already, whose names have to be told.
        let key = made.stdout.trimmingCharacters(in: .newlines)
        try sandbox.certprov(["keygen", "--for", key] + place).expect(66, stderr: "--subject")
        let again = try sandbox.certprov(["keygen", "--for", key, "--subject", "CN=again"] + place)
        #expect(again.status == 0 && again.stdout.hasPrefix("-----BEGIN CERTIFICATE REQUEST"), "\(again)")
        try sandbox.certprov(["keygen", "--for", "keys:none", "--subject", "CN=again"] + place).expect(
            66, stderr: "Use one of: '\(key)'")
        try sandbox.certprov(["store-certificate", sandbox.path + "/ca.pem"] + place).expect(
            66, stderr: "no private key for 'CN=CA'")
        for wrong in [["--uri", "pkcs11:"], ["--key-pin-source", "1234"]] {
            #expect(try sandbox.certprov(["keygen", "--label", "x"] + place + wrong).status == 64)
        }
        #expect(try sandbox.certprov("keygen", "--label", "x", "--key", "nope:").status == 78)
    }

    /// The table of the protocol's page has each check of a provider and a key store, with its demand.
    @Test func theDemandsAreThoseOfThePage() throws {
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../../Documentation/PluginProtocol.md")
        let rows = Set(
            try String(contentsOf: page, encoding: .utf8).components(separatedBy: "## Conformance")[1].split(
                separator: "\n"
            ).map(String.init).filter { $0.hasPrefix("| ") && !$0.hasPrefix("| of ") })
        let keys = try sandbox.installTestPlugin("keys")
        // With an ability, whose check is left out otherwise.
        try sandbox.installPlugin(
            "files",
            try files().replacing(#""provider": {"#, with: #""provider": {"can": ["announceDeletions", "revoke"],"#)
                .replacing(
                    #"    if request == "forget":"#,
                    with: """
                            if request == "announceDeletions":
                                return {"sentences": []}
                            if request == "revoke":
                                return {}
                            if request == "forget":
                        """))
        let proof = try sandbox.installPlugin(
            "proof",
            try String(
                contentsOf: URL(filePath: #filePath).deletingLastPathComponent().appending(path: "attesting-plugin.py"),
                encoding: .utf8))
        var checked: Set<String> = []
        for arguments in [
            [sandbox.path + "/plugins/certprov-plugin-files", "--set", "directory=\(sandbox.path)/identity"], [keys],
            [proof],
        ] {
            let output = try sandbox.certprov(["plugin", "verify", "--json"] + arguments)
            let report = try output.document("PluginVerification")
            #expect(output.status == 0 && report["passed"].bool == true, "\(output)")
            for item in report["items"].array {
                let subject = item["subject"].string ?? ""
                let name = item["name"].string ?? ""
                if ["p384", "p521", "rsa2048", "ed25519"].contains(name) { continue }
                checked.insert(
                    "| \(subject.hasPrefix("key store") ? "key store" : subject) | \(name) | \(item["demand"].string ?? "") |"
                )
            }
        }
        #expect(checked == rows, "\(checked.symmetricDifference(rows))")
    }

    /// The program of the documentation's example.
    private func files() throws -> String {
        try String(contentsOfFile: sandbox.path + "/plugins/certprov-plugin-files", encoding: .utf8)
    }

    /// The checks that a plugin fails, with the reasons.
    private func failures(_ arguments: [String]) throws -> [String: String] {
        let output = try sandbox.certprov(["plugin", "verify", "--json"] + arguments)
        let items = try output.document("PluginVerification")["items"].array.filter { $0["outcome"].string == "failed" }
        #expect(output.status == (items.isEmpty ? 0 : 76), "\(output)")
        return [String: String](items.map { ($0["name"].string ?? "", $0["reason"].string ?? "") }) { $0 + $1 }
    }

    @Test("A plugin that does not keep what it declares fails its verification")
    func whatIsDeclaredIsChecked() throws {
        // The tenth time that an identity is obtained is the one that is cancelled.
        try sandbox.installPlugin(
            "files",
            try files().replacing(
                #""provider": {"#, with: #""shutdown": True, "provider": {"can": ["announceDeletions", "revoke"],"#
            ).replacing(
                #""parameters": ["#, with: #""parameters": [{"name": "extra", "type": "file", "summary": "A file."},"#
            ).replacing(
                "    try:\n        reply",
                with: """
                        if message["request"] == "shutdown":
                            continue
                        if message["request"] == "obtain":
                            with open("\(sandbox.path)/obtained", "a") as times:
                                times.write("x")
                                if times.tell() == 10:
                                    __import__("time").sleep(1000)
                        try:
                            reply
                    """))
        let failed = try failures([
            sandbox.path + "/plugins/certprov-plugin-files", "--set", "directory=\(sandbox.path)/identity",
        ])
        #expect(Set(failed.keys) == ["hello", "shutdown", "cancellation", "abilities", "revocation"], "\(failed)")
        #expect(failed["hello"]?.contains("'extra' has the unknown type 'file'; the types are string, ") == true)
        #expect(failed["cancellation"]?.contains("'obtain' was not answered") == true, "\(failed)")
        #expect(failed["abilities"]?.contains("does not support the request 'announceDeletions'") == true, "\(failed)")
        #expect(failed["revocation"]?.contains("does not support the request 'revoke'") == true, "\(failed)")
    }

    @Test("A plugin that says that it gives advice, and does not, fails its verification")
    func adviceIsChecked() throws {
        try sandbox.installPlugin(
            "files", try files().replacing(#""provider": {"#, with: #""provider": {"can": ["advice"],"#))
        let failed = try failures([
            sandbox.path + "/plugins/certprov-plugin-files", "--set", "directory=\(sandbox.path)/identity",
        ])
        #expect(Set(failed.keys) == ["abilities"], "\(failed)")
        #expect(failed["abilities"]?.contains("does not support the request 'advice'") == true, "\(failed)")
    }

    /// The command's key store as a plugin, in whose input a request has another name.
    @Test(
        arguments: [("key.holds", ["abilities"]), ("key.import", ["abilities", "import"])] as [(String, Set<String>)])
    func eachAbilityOfAKeyStoreIsChecked(request: String, checks: Set<String>) throws {
        try sandbox.installPlugin(
            "keys", "#!/bin/sh\nsed -u 's/\"\(request)\"/\"unknown\"/' | '\(BuiltCommand.program("TestPlugin"))' keys\n"
        )
        let failed = try failures([sandbox.path + "/plugins/certprov-plugin-keys"])
        #expect(Set(failed.keys) == checks, "\(failed)")
        let reason = "does not support the request '\(request)'"
        #expect(failed.values.allSatisfy { $0.contains(reason) }, "\(failed)")
    }

    /// The format of its statements is its own.
    @Test(
        "A key store in Python whose keys prove where they live passes its verification, and one with a flaw does not")
    func attestationIsChecked() throws {
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "attesting-plugin.py")
        let program = try String(contentsOf: source, encoding: .utf8)
        let plugin = try sandbox.installPlugin("proof", program)
        #expect(try failures([plugin]) == [:])
        let results = try sandbox.certprov("plugin", "verify", "--json", plugin).document("PluginVerification")["items"]
        #expect(results.array.contains { $0["name"].string == "attestation" && $0["outcome"].string == "passed" })
        for (right, wrong, reason) in [
            ("\"statement\": encoded(data + public)", "\"statement\": \"\"", "one of its fields is empty"),
            ("\"format\": \"proof\"", "\"format\": \"tpm\"", "must have none"),
            ("if len(data) != 32:", "if False:", "An attestation of 0 bytes is accepted"),
            ("if request == \"key.attest\":", "if False:", "does not support the request 'key.attest'"),
            ("\"attests\": True", "\"attests\": False", "and the key does not"),
        ] {
            try sandbox.installPlugin("proof", program.replacing(right, with: wrong))
            let failed = try failures([plugin])
            let isOfHost = wrong == "if False:" && right.hasPrefix("if len")
            #expect(isOfHost || failed["attestation"]?.contains(reason) == true, "\(wrong): \(failed)")
        }
    }

    @Test("A key store that uses a label in a path, or whose files others can read, fails its verification")
    func pathsAndModesAreChecked() throws {
        let (directory, keys) = (sandbox.path + "/outer/inner", try sandbox.installTestPlugin("keys"))
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let outside = try failures([keys, "--set", "directory=\(directory)"])
        #expect(Set(outside.keys) == ["files"], "\(outside)")
        #expect(
            outside["files"]?.contains("outside of the plugin's directories: \(sandbox.path)/outer/") == true,
            "\(outside)")
        // The verification leaves nothing there.
        #expect(try FileManager.default.contentsOfDirectory(atPath: sandbox.path + "/outer") == ["inner"])
        let readable = try failures([keys, "--set", "directory=\(directory)", "--set", "mode=644"])
        #expect(Set(readable.keys) == ["files"], "\(readable)")
    }

    @Test(arguments: [
        ("directory = /nonexistent", Int32(66), "fileNotFound"), ("direktory = x", 78, "configurationInvalid"),
        ("timeout = 0", 78, "configurationInvalid"),
        ("sha256 = \(String(repeating: "0", count: 64))", 78, "configurationInvalid"),
        ("sha256 =", 78, "configurationInvalid"),
        ("environment = A B", 78, "configurationInvalid"),
    ]) func mistakesAreNamed(line: String, status: Int32, code: String) throws {
        let settings =
            line.hasPrefix("directory")
            ? "" : "CertificateProvider.files.directory = \(sandbox.path)/identity\n"
        let file = try sandbox.write(
            """
            PluginDirectory = \(sandbox.path)/plugins
            CertificateProvider = files
            \(settings)CertificateProvider.files.\(line)

            """, to: "wrong.properties")
        let output = try sandbox.certprov("fetch", "--config", file).expect(status, stderr: "[\(code)]")
        #expect(output.stderr.contains("files"), "\(output)")
    }

    @Test func aPluginThatIsNotConfiguredIsNotStarted() throws {
        for number in 0..<10 {
            try sandbox.installPlugin("p\(number)", "#!/bin/sh\ntouch \(sandbox.path)/started\nexit 1\n")
        }
        #expect(try sandbox.certprov("list", "--config", configuration).status == 0)
        #expect(try sandbox.certprov("fetch", "--config", configuration).status == 0)
        #expect(!FileManager.default.fileExists(atPath: sandbox.path + "/started"))
        // And shows when it is.
        let listed = try sandbox.certprov("providers", "--json", "--config", configuration).document("ProviderList")
        // On a busy host, the news of the end can be late.
        let ended = listed["plugins"].array.compactMap(\.["error"].string).filter {
            $0.contains("has ended with the status 1") || $0.contains("has closed its standard output")
        }
        #expect(ended.count == 10 && ended.contains { $0.contains("status 1") }, "\(listed["plugins"])")
        #expect(FileManager.default.fileExists(atPath: sandbox.path + "/started"))
    }

    /// A plugin ends with the command, however that ends.
    @Test func aPluginEndsWithTheCommand() throws {
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = hangs\n", to: "hangs.properties")
        let (command, pid) = try start(["fetch", "--config", file])
        command.kill()
        _ = command.wait()
        #expect(hasEnded(pid))
    }

    @Test("A signal that ends the command ends a plugin that has stopped its launcher")
    func aStoppedLauncherEndsWithTheCommand() throws {
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = hangs\n", to: "hangs.properties")
        let (command, pid) = try start(["fetch", "--config", file], doing: "trap '' TERM; kill -STOP $PPID")
        command.kill(SIGTERM)
        #expect(command.wait().signal == SIGTERM)
        #expect(hasEnded(pid))
    }

    /// Each of three waits until all have been started.
    @Test func allPluginsAreAskedAtTheSameTime() throws {
        for number in 1...3 {
            let hello =
                #"{"version":1,"id":"p\#(number)","provider":{"displayName":"P","summary":"P.","parameters":[]}}"#
            try sandbox.installPlugin(
                "p\(number)",
                """
                #!/bin/sh
                touch \(sandbox.path)/started-\(number)
                while read line; do case $line in *'"hello"'*)
                    for other in 1 2 3; do while ! [ -e \(sandbox.path)/started-$other ]; do sleep 0.1; done; done
                    echo '{"id":1,"result":\(hello)}' ;;
                esac; done

                """)
        }
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\n"
                + (1...3).map { "CertificateProvider.p\($0).timeout = 300\n" }.joined(), to: "three.properties")
        let document = try sandbox.certprov("providers", "--json", "--config", file).document("ProviderList")
        #expect(document["plugins"].array.map { $0["error"].isNull } == [true, true, true, true], "\(document)")
    }

    @Test func providersAsksAPluginAsItIsConfigured() throws {
        try sandbox.installPlugin("mute", "#!/bin/sh\nexec sleep 1000\n")
        try sandbox.installPlugin("pinned", "#!/bin/sh\ntouch \(sandbox.path)/pinned\n")
        let file = try sandbox.write(
            """
            PluginDirectory = \(sandbox.path)/plugins
            CertificateProvider.mute.timeout = 1
            CertificateProvider.pinned.sha256 = \(String(repeating: "0", count: 64))

            """, to: "configured.properties")
        let document = try sandbox.certprov("providers", "--json", "--config", file).document("ProviderList")
        let errors = document["plugins"].array.map { $0["error"].string ?? "" }
        #expect(errors.count == 3 && errors[1].contains("within 1 seconds"), "\(errors)")
        #expect(errors[2].contains("SHA-256"), "\(errors)")
        #expect(!FileManager.default.fileExists(atPath: sandbox.path + "/pinned"))
    }

    /// The certificate of the example is readable by all users, its key is not.
    @Test func checkKnowsWhichFilesAreSecret() throws {
        func check(_ kind: String, _ file: String) throws -> String {
            try sandbox.installPlugin(
                "files", try files().replacing(/"type": "[a-z-]+"/, with: "\"type\": \"\(kind)\""))
            let properties = try sandbox.write(
                """
                PluginDirectory = \(sandbox.path)/plugins
                CertificateProvider = files
                CertificateProvider.files.directory = \(sandbox.path)/\(file)

                """, to: "secret.properties")
            return try sandbox.certprov("check", "--config", properties).stdout
        }
        let (certificate, key) = (sandbox.path + "/identity/cert.pem", sandbox.path + "/identity/key.pem")
        try #require(chmod(certificate, 0o644) == 0 && chmod(key, 0o600) == 0)
        for place in ["identity", "identity/cert.pem"] {
            for kind in ["path", "secret-path"] {
                let found = try check(kind, place)
                #expect(!found.contains("by all users"), "\(kind) \(place): \(found)")
            }
        }
        try #require(chmod(key, 0o644) == 0)
        #expect(try check("secret-path", "identity").contains("\(key) can be read by all users"))
        #expect(try !check("path", "identity").contains("by all users"))
    }

    @Test func aSignalLeavesNothingOfAVerification() throws {
        let temporary = sandbox.path + "/temporary"
        mkdir(temporary, 0o700)
        let (command, pid) = try start(
            ["plugin", "verify", sandbox.path + "/plugins/certprov-plugin-hangs"], with: ["TMPDIR": temporary])
        command.kill(SIGTERM)
        #expect(command.wait().signal == SIGTERM)
        #expect(try contents(of: temporary).allSatisfy { !$0.hasPrefix("certprov-verify-") })
        #expect(hasEnded(pid))
        try expectToBecomeEmpty(temporary)
    }

    @Test func killedAtAnyMomentItLeavesNoDirectory() throws {
        let temporary = sandbox.path + "/temporary"
        mkdir(temporary, 0o700)
        try sandbox.installPlugin("hangs", "#!/bin/sh\nsleep 1000 & wait\n")
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = hangs\n", to: "hangs.properties")
        for _ in 0..<TestLength.rounds(15, full: 40, soak: 1000) {
            let command = try sandbox.start(
                [BuiltCommand.path, "fetch", "--config", file], with: ["TMPDIR": temporary])
            usleep(UInt32.random(in: 0...50_000))
            command.kill()
            _ = command.wait()
        }
        try expectToBecomeEmpty(temporary)
    }

    private func contents(of directory: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory)
    }

    /// A process that the command could not wait for ends by itself, and removes its directory.
    private func expectToBecomeEmpty(_ directory: String) throws {
        let end = ContinuousClock.now + .seconds(600)
        while try !contents(of: directory).isEmpty, .now < end { usleep(10000) }
        #expect(try contents(of: directory) == [])
    }

    /// Starts a command with a plugin that hangs, whose process it returns.
    ///
    /// - Parameter action: What the plugin does before.
    private func start(
        _ arguments: [String], with variables: [String: String] = [:], doing action: String = ":"
    ) throws -> (command: Subprocess, plugin: pid_t) {
        let pidFile = sandbox.path + "/pid"
        try sandbox.installPlugin(
            "hangs",
            "#!/bin/sh\n\(action)\necho $$ >\(pidFile).new; mv \(pidFile).new \(pidFile)\nsleep 1000 & wait\n")
        let command = try sandbox.start([BuiltCommand.path] + arguments, with: variables)
        let end = ContinuousClock.now + .seconds(600)
        while !FileManager.default.fileExists(atPath: pidFile), .now < end { usleep(10000) }
        return (
            command, try #require(pid_t(try String(contentsOfFile: pidFile, encoding: .utf8).split(separator: "\n")[0]))
        )
    }

    private func hasEnded(_ process: pid_t) -> Bool {
        let end = ContinuousClock.now + .seconds(600)
        while Glibc.kill(process, 0) == 0, .now < end { usleep(10000) }
        return Glibc.kill(process, 0) != 0
    }
}
