import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

/// Key pairs with a name, from the command line.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct NamedKeysTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private func keys(_ arguments: String..., with variables: [String: String] = [:]) throws -> Output {
        try sandbox.certprov(["keys"] + arguments, with: variables)
    }

    /// The private keys in `store:` of this sandbox, or in a key store with the same format.
    private func sealed(_ part: ProviderID = ProviderID("store")) async throws -> Set<PublicKeyInfo> {
        let storage = IdentityStore(path: sandbox.store).storage(for: part)
        return Set(try await SealedKeyStore(environment: .testing(storage: storage)).list().map(\.reference.publicKey))
    }

    /// Checks a signature of a file by openssl.
    private func verify(_ name: String, _ digest: String = "sha512", variables: [String: String] = [:]) throws {
        let verified = try sandbox.shell(
            """
            set -eu; cd "$HOME"
            base64 -d <signature >signature.bin
            if [ "$1" = ed25519 ]; then
                openssl pkeyutl -verify -rawin -pubin -inkey key.pem -in text -sigfile signature.bin
            else
                openssl dgst -"$1" -verify key.pem -signature signature.bin text
            fi
            """, digest)
        #expect(verified.status == 0 && verified.stdout.lowercased().contains("verified"), "\(name): \(verified)")
    }

    @Test func theLifeOfAPair() async throws {
        let text = try sandbox.write("a text\n", to: "home/text")
        let made = try keys("create", "a pair").expect(stderr: "")
        #expect(made.stdout.wholeMatch(of: /[A-Za-z0-9+\/]+=*\n/) != nil, "\(made)")
        #expect(try keys("export", "a pair").stdout == made.stdout)
        let pem = try keys("export", "a pair", "--pem")
        try sandbox.write(pem.stdout, to: "home/key.pem")
        let shown = try sandbox.shell(#"cd "$HOME"; openssl pkey -pubin -in key.pem -outform der | base64 -w0; echo"#)
        #expect(shown.stdout == made.stdout)
        let bits = try sandbox.shell(#"cd "$HOME"; openssl pkey -pubin -in key.pem -noout -text"#)
        #expect(bits.stdout.contains("(2048 bit)"), "\(bits)")
        for (options, digest) in [([], "sha512"), (["--hash", "sha256"], "sha256"), (["--hash", "sha512"], "sha512")] {
            let signed = try sandbox.certprov(["keys", "sign", "a pair", text] + options).expect(stderr: "")
            try sandbox.write(signed.stdout, to: "home/signature")
            try verify("a pair", digest)
            // PKCS#1 has one signature of a text.
            let piped = try sandbox.shell(
                #"cat "$HOME/text" | "$CERTPROV" keys sign "a pair" "$@""#, options.first ?? "--hash",
                options.last ?? "sha512")
            #expect(piped.stdout == signed.stdout)
        }
        #expect(try keys("exists", "a pair").stdout == "true\n")
        let listed = try keys("list")
        #expect(listed.stdout.contains("a pair") && listed.stdout.contains("RSA 2048"), "\(listed)")
        try keys("create", "a pair", "--type", "p256").expect(73, stdout: "", stderr: "[alreadyExists]")
        #expect(try keys("export", "a pair").stdout == made.stdout)

        let first = try keys("delete", "a pair")
        #expect(first.status == 0 && first.stdout == "true\n" && first.stderr.isEmpty, "\(first)")
        let second = try keys("delete", "a pair")
        #expect(second.status == 0 && second.stdout == "false\n" && second.stderr.isEmpty, "\(second)")
        let absent = try keys("exists", "a pair")
        #expect(absent.status == 1 && absent.stdout == "false\n" && absent.stderr.isEmpty, "\(absent)")
        for command in [["sign", "a pair", text], ["export", "a pair"], ["export", "a pair", "--pem"]] {
            try sandbox.certprov(["keys"] + command).expect(66, stdout: "", stderr: "[notFound]")
        }
        #expect(try keys("list").stdout.isEmpty)
        #expect(try await sealed().isEmpty)
    }

    @Test("A pair of each type is verified by openssl", arguments: KeyType.allCases.map(\.rawValue))
    func eachType(type: String) throws {
        try sandbox.write("a text\n", to: "home/text")
        #expect(try keys("create", "x", "--type", type).status == 0)
        try sandbox.write(try keys("export", "x", "--pem").stdout, to: "home/key.pem")
        let signed = try keys("sign", "x", sandbox.path + "/home/text", "--json").document("NamedKeySignature")
        try sandbox.write(try #require(signed["signature"].string), to: "home/signature")
        let digests = ["p256": "sha256", "p384": "sha384", "ed25519": "ed25519"]
        try verify(type, digests[type] ?? "sha512")
    }

    @Test func theDocumentsOfEachCommand() throws {
        let made = try keys("create", "x", "--type", "p256", "--confirm", "--json").document("NamedKey")["key"]
        #expect(made["name"].string == "x" && made["type"].string == "p256" && made["confirm"].bool == true)
        #expect(made["uri"].string?.hasPrefix("store:") == true)
        let exported = try keys("export", "x", "--json").document("NamedKey")["key"]
        #expect(exported["publicKey"].string == made["publicKey"].string)
        let list = try keys("list", "--json").document("NamedKeyList")
        #expect(list["items"].array.map { $0["name"].string } == ["x"])
        #expect(try keys("exists", "x", "--json").document("NamedKeyPresence")["exists"].bool == true)
        let absent = try keys("exists", "y", "--json")
        #expect(try absent.document("NamedKeyPresence")["exists"].bool == false && absent.status == 1)
        #expect(try keys("delete", "x", "--json").document("NamedKeyDeletion")["existed"].bool == true)
        #expect(try keys("delete", "x", "--json").document("NamedKeyDeletion")["existed"].bool == false)
        try keys("sign", "x", "--json").expectFailure("notFound", status: 66)
    }

    @Test("A name that the rule excludes, and a wrong option, is a usage error")
    func usage() throws {
        let long = String(repeating: "é", count: 65)
        for name in ["", ".", ".x", "a/b", "a\nb", "a\u{7f}", long] {
            for command in ["create", "exists", "export", "sign", "delete"] {
                try keys(command, name).expect(64, stdout: "", about: "\(command) \(name)")
            }
        }
        for wrong in [
            ["create"], ["create", "x", "--type", "dsa"], ["sign", "x", "--hash", "sha1"], ["create", "--", "-x"],
            ["create", "x", "--key", "pkcs11:token=a?pin-value=1234"], ["list", "--provider", "pkcs12"],
            ["create", "x", "--key-pin-source", "1234"],
        ] {
            let output = try sandbox.certprov(["keys"] + wrong)
            #expect(output.status == 64 && !output.stderr.contains("1234"), "\(wrong): \(output)")
        }
        #expect(try keys("create", "x", "--key", "nope:").status == 78)
        #expect(try keys("create", "x", "--type", "p256").status == 0)
        #expect(try keys("sign", "x", "--hash", "sha512").status == 65)
        #expect(try keys("sign", "x", "/nonexistent").status == 66)
        #expect(try keys("sign", "x", "/").status == 74)
    }

    // MARK: - Secrecy

    @Test(
        "No byte of a private key is in the state directory, while there is a pair and after it",
        arguments: [
            "-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
            "-algorithm ED25519",
        ])
    func secrecy(key: String) async throws {
        let script = #"""
            set -eu; cd "$HOME"; umask 077
            openssl genpkey $1 -out key.pem 2>errors
            openssl pkey -in key.pem -outform der -out key.der
            "$CERTPROV" keys import secret key.pem >public
            """#
        try sandbox.shell(script, key).expect(stderr: "")
        let parsed = try sandbox.shell(#"openssl pkey -in "$HOME/key.pem" -noout -text"#)
        let parts = parsed.stdout.matches(of: /(?:priv|privateExponent|prime1|prime2):\n((?: +[0-9a-f:]+\n)+)/)
        let secrets = parts.map { part in
            Data(part.1.split { !$0.isHexDigit }.compactMap { UInt8($0, radix: 16) }.drop { $0 == 0 })
        }
        #expect(!secrets.isEmpty, "\(parsed)")
        let der = Data(try contents(sandbox.path + "/home/key.der"))
        let pem = try String(contentsOfFile: sandbox.path + "/home/key.pem", encoding: .utf8)
        let lines = pem.split(separator: "\n").filter { !$0.hasPrefix("-") && $0.count > 40 }
        #expect(!lines.isEmpty)
        let needles =
            secrets + [der] + secrets.map { $0.base64EncodedData().dropLast(4) } + lines.map { Data($0.utf8) }
            + secrets.map { Data($0.map { String(format: "%02x", $0) }.joined().utf8) }
        func search(_ moment: String) throws {
            let files = FileManager.default.enumerator(atPath: sandbox.path + "/state")?.allObjects ?? []
            var count = 0
            for file in files.compactMap({ $0 as? String }) {
                guard let data = try? Data(contentsOf: URL(filePath: sandbox.path + "/state/" + file)) else { continue }
                count += 1
                for needle in needles { #expect(data.range(of: needle) == nil, "\(moment): \(file)") }
            }
            #expect(count > 0)
        }
        try search("while it is there")
        #expect(try keys("delete", "secret").stdout == "true\n")
        try search("after it is deleted")
        #expect(try await sealed().isEmpty)
        let left = try sandbox.shell("find $1 -type f -path '*records*' ! -name '.claim-*'", sandbox.store)
        #expect(left.stdout.isEmpty, "\(left)")
    }

    @Test("An encrypted key is imported with its password, and not with another one")
    func anEncryptedKey() async throws {
        let script = #"""
            set -eu; cd "$HOME"; umask 077
            openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem
            openssl pkcs8 -topk8 -in key.pem -out encrypted.pem -passout pass:secret
            openssl ec -in key.pem -aes128 -passout pass:secret -out old.pem
            """#
        #expect(try sandbox.shell(script).status == 0)
        for file in ["encrypted.pem", "old.pem"] {
            let path = sandbox.path + "/home/" + file
            try keys("import", file, path, "--password-source", "env:P", with: ["P": "other"]).expect(
                77, stdout: "", stderr: "[wrongPassword]")
            try sandbox.run(["setsid", "--wait", BuiltCommand.path, "keys", "import", file, path]).expect(
                77, stderr: "[interactionRequired]")
            #expect(try await sealed().isEmpty)
            try keys("import", file, path, "--password-source", "env:P", with: ["P": "secret"]).expect()
            try keys("import", "another", path, "--password-source", "env:P", with: ["P": "secret"]).expect(
                73, stderr: "[alreadyExists]")
            #expect(try keys("delete", file).stdout == "true\n")
        }
        #expect(try keys("import", "x", Fixtures.path("ec.pem")).status == 65)
        #expect(try keys("import", "x", "/nonexistent").status == 66)
    }

    @Test("The key of an identity becomes no pair")
    func anIdentitysKey() async throws {
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        let key = try sandbox.copy("ec.key", to: "ec.key")
        try keys("import", "x", key).expect(73, stdout: "", stderr: "identity")
        #expect(try await sealed().isEmpty)
    }

    @Test("The key of a pair gets no certificate request")
    func aPairsKey() throws {
        let uri = try keys("create", "x", "--type", "p256", "--json").document("NamedKey")["key"]["uri"].string
        try sandbox.certprov("keygen", "--key", "store:", "--for", try #require(uri), "--subject", "CN=x").expect(
            75, stdout: "", stderr: "named pair 'x'")
    }

    // MARK: - Large data

    @Test("Data of 150 MB is signed from a pipe, in little memory")
    func largeData() throws {
        #expect(try keys("create", "x", "--type", "p256").status == 0)
        #expect(try keys("create", "ed", "--type", "ed25519").status == 0)
        try sandbox.write(try keys("export", "x", "--pem").stdout, to: "home/key.pem")
        let output = try sandbox.shell(
            #"""
            cd "$HOME"; head -c 150000000 /dev/zero >text
            cat text | "$CERTPROV" keys sign x >signature || exit 1
            cat text | "$CERTPROV" keys sign ed; echo "status $?"
            """#)
        #expect(output.stdout == "status 65\n" && output.stderr.contains("64 MiB"), "\(output)")
        try verify("x", "sha256")
    }

    // MARK: - Processes

    @Test("Of processes that create one name at once, one gets it")
    func atOnce() async throws {
        for round in 0..<5 {
            let processes = try (0..<4).map { _ in
                try sandbox.start([BuiltCommand.path, "keys", "create", "pair-\(round)", "--type", "p256"])
            }
            let outputs = processes.map { $0.wait() }
            #expect(outputs.count { $0.status == 0 } == 1, "\(outputs)")
            #expect(outputs.count { $0.status == 73 && $0.stderr.contains("[alreadyExists]") } == 3, "\(outputs)")
            let winner = try #require(outputs.first { $0.status == 0 })
            #expect(try keys("export", "pair-\(round)").stdout == winner.stdout)
        }
        #expect(try await sealed().count == 5)
    }

    /// Installs a plugin with the key store `keys:`.
    ///
    /// - Returns: The option that leads to it.
    private func plugin() throws -> [String] {
        try sandbox.installTestPlugin("keys")
        return ["--config", try sandbox.write("PluginDirectory = \(sandbox.path)/plugins\n", to: "keys.properties")]
    }

    @Test(
        "Killed at any moment, a command leaves no name that cannot be used, and no key without a name",
        arguments: [
            "store:", "keys:",
        ])
    func kills(uri: String) async throws {
        let config = uri == "keys:" ? try plugin() : []
        let part = ProviderID(rawValue: String(uri.dropLast())) ?? ProviderID("store")
        func keys(_ arguments: String...) throws -> Output { try sandbox.certprov(["keys"] + arguments + config) }
        try sandbox.write("a text\n", to: "home/text")
        try sandbox.shell(#"openssl genpkey -algorithm ED25519 -out "$HOME/import.pem""#).expect()
        let start = ContinuousClock.now
        #expect(try keys("create", "pair", "--type", "p256", "--key", uri).status == 0)
        var kills = KillMoments(TestLength.rounds(12, full: 30, soak: 300), within: ContinuousClock.now - start)
        var round = 0
        while kills.areLeft {
            let command =
                switch round % 3 {
                case 0: ["create", "made-\(round)", "--type", "p256", "--key", uri]
                case 1: ["import", "imported", sandbox.path + "/home/import.pem", "--key", uri]
                default: ["delete", ["pair", "imported", "made-\(round - 2)"][round / 3 % 3]]
                }
            _ = kills.kill(try sandbox.start([BuiltCommand.path, "keys"] + command + config))
            round += 1
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        #expect(try keys("create", "last", "--type", "p256", "--key", uri).status == 0)
        let items = try keys("list", "--json").document("NamedKeyList")["items"].array
        for item in items {
            let name = try #require(item["name"].string)
            try keys("sign", name, sandbox.path + "/home/text").expect(about: name)
        }
        let named = Set(items.compactMap { $0["publicKey"].string })
        let found = Set(try await sealed(part).map { Data($0.derRepresentation).base64EncodedString() })
        #expect(named == found)
        for item in items { #expect(try keys("delete", item["name"].string ?? "").stdout == "true\n") }
        #expect(try await sealed(part).isEmpty)
    }

    // MARK: - Other key stores

    @Test("A pair of a plugin's key store lives as one of the store's")
    func aPluginsKeyStore() throws {
        try life(in: "keys:", types: ["rsa2048", "p256", "ed25519"], plugin(), pin: [], count: nil)
    }

    @Test("A pair in a TPM lives as one of the store's, and leaves nothing there")
    func aTPM() throws {
        let tpm = try SoftwareTPM()
        let config = try sandbox.write(try sandbox.installTPMPlugin(tpm.tcti), to: "tpm.properties")
        try life(in: "tpm:", types: ["rsa2048", "p256", "p384"], ["--config", config], pin: [], count: nil)
        #expect(try tpm.leftovers().isEmpty)
    }

    /// Creates, uses and deletes pairs in a key store.
    ///
    /// - Parameter count: Returns the number of private keys there.
    private func life(
        in uri: String, types: [String], _ config: [String], pin: [String], variables: [String: String] = [:],
        count: (() throws -> Int)?
    ) throws {
        let more = config + pin
        try sandbox.write("a text\n", to: "home/text")
        let text = sandbox.path + "/home/text"
        for type in types {
            let made = try sandbox.certprov(
                ["keys", "create", type, "--type", type, "--key", uri] + more, with: variables)
            guard made.status == 0 else {
                Issue.record("\(type): \(made)")
                continue
            }
            try sandbox.certprov(["keys", "create", type, "--key", uri] + more, with: variables).expect(
                73, stderr: "[alreadyExists]")
            let pem = try sandbox.certprov(["keys", "export", type, "--pem"] + config, with: variables)
            try sandbox.write(pem.stdout, to: "home/key.pem")
            let signed = try sandbox.certprov(["keys", "sign", type, text] + more, with: variables).expect(
                stderr: "", about: type)
            try sandbox.write(signed.stdout, to: "home/signature")
            let digests = ["p256": "sha256", "p384": "sha384", "ed25519": "ed25519"]
            try verify(type, digests[type] ?? "sha512")
        }
        if let count { #expect(try count() == types.count) }
        for type in types {
            let deleted = try sandbox.certprov(["keys", "delete", type] + more, with: variables)
            #expect(deleted.status == 0 && deleted.stdout == "true\n", "\(deleted)")
            let again = try sandbox.certprov(["keys", "delete", type] + more, with: variables)
            #expect(again.status == 0 && again.stdout == "false\n", "\(again)")
        }
        if let count { #expect(try count() == 0) }
    }

    @Test("A pair in a token is sensitive and not extractable, and lives as one of the store's")
    func aToken() throws {
        let token = try SoftToken(in: sandbox)
        let (variables, place) = (token.variables, "pkcs11:token=demo?module-path=\(SoftToken.library)")
        let pin = ["--key-pin-source", "env:PIN"]
        try life(in: place, types: ["rsa2048", "p256", "p384", "p521", "ed25519"], [], pin: pin, variables: variables) {
            try token.objects().count { $0.hasPrefix("Private Key") }
        }
        try sandbox.certprov(["keys", "create", "kept", "--key", place] + pin, with: variables).expect()
        let shown = try token.listing()
        #expect(shown.contains("sensitive") && shown.contains("never extractable"), "\(shown)")
        try sandbox.shell(#"openssl genpkey -algorithm ED25519 -out "$HOME/import.pem""#).expect()
        try sandbox.certprov(
            ["keys", "import", "x", sandbox.path + "/home/import.pem", "--key", place] + pin, with: variables
        ).expect(65, stdout: "")
        // The token is gone: the pair stays, and its name can be given up.
        let empty = try sandbox.write(
            "directories.tokendir = \(sandbox.path)/home\nlog.level = ERROR\n", to: "empty.conf")
        let without = variables.merging(["SOFTHSM2_CONF": empty]) { $1 }
        try sandbox.certprov(["keys", "delete", "kept"] + pin, with: without).expect(69, stdout: "")
        #expect(try keys("exists", "kept").stdout == "true\n")
        #expect(try keys("delete", "kept", "--keep-key", with: without).stdout == "true\n")
        #expect(try keys("exists", "kept").stdout == "false\n")
    }

    @Test("A wrong PIN is sent once, and no name is left")
    func aWrongPIN() throws {
        let token = try SoftToken(in: sandbox)
        let (variables, place) = (token.variables, "pkcs11:token=demo?module-path=\(SoftToken.library)")
        let wrong = variables.merging(["PIN": "654321"]) { $1 }
        for _ in 0..<4 {
            try sandbox.certprov(
                ["keys", "create", "x", "--key", place, "--key-pin-source", "env:PIN"], with: wrong
            ).expect(77, stdout: "", stderr: "[pinIncorrect]")
        }
        #expect(try keys("exists", "x").status == 1)
        try sandbox.certprov(
            ["keys", "create", "x", "--key", place, "--key-pin-source", "env:PIN"], with: variables
        ).expect()
        for command in [["sign", "x", "/etc/hostname"], ["delete", "x"]] {
            try sandbox.certprov(["keys"] + command + ["--key-pin-source", "env:PIN"], with: wrong).expect(
                77, stdout: "")
        }
        #expect(try keys("exists", "x").status == 0)
    }

    @Test("The source of the PIN in the URI is kept for later uses")
    func thePINSourceOfTheURI() throws {
        let variables = try SoftToken(in: sandbox).variables
        let pin = sandbox.path + "/pin"
        try keys(
            "create", "x", "--type", "p256", "--key",
            "pkcs11:token=demo?module-path=\(SoftToken.library)&pin-source=file:\(pin)", with: variables
        ).expect()
        try keys("sign", "x", pin, with: variables).expect()
        #expect(try keys("delete", "x", with: variables).stdout == "true\n")
    }

    @Test("Killed at any moment, a command leaves no key without a name on a token")
    func killsWithAToken() throws {
        let token = try SoftToken(in: sandbox)
        try sandbox.write("a text\n", to: "home/text")
        let (server, remote) = try token.serve()
        let pin = ["--key-pin-source", "env:PIN"]
        let place = ["--type", "p256", "--key", "pkcs11:token=demo?module-path=\(try P11KitClient.path())"]
        func create(_ name: String) -> [String] { ["keys", "create", name] + place + pin }
        let start = ContinuousClock.now
        try sandbox.certprov(create("first"), with: remote).require()
        var kills = KillMoments(TestLength.rounds(8, full: 15, soak: 100), within: ContinuousClock.now - start)
        var round = 0
        while kills.areLeft {
            let command = round % 3 == 2 ? ["keys", "delete", "made-\(round - 1)"] + pin : create("made-\(round)")
            _ = kills.kill(try sandbox.start([BuiltCommand.path] + command, with: remote))
            round += 1
            try token.forgetLogins()
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        // The token's own leftovers are looked for at the next key, and again.
        for name in ["last", "again"] {
            try sandbox.certprov(create(name), with: remote).expect()
        }
        let names = try keys("list", "--json").document("NamedKeyList")["items"].array.compactMap { $0["name"].string }
        for name in names {
            try sandbox.certprov(["keys", "sign", name, sandbox.path + "/home/text"] + pin, with: remote).expect(
                about: name)
        }
        let objects = try token.objects()
        #expect(objects.count { $0.hasPrefix("Private Key") } == names.count, "\(names) \(objects)")
        withExtendedLifetime(server) {}
    }

    // MARK: - Tokens of OAuth

    @Test(
        "access-token prints the token of the provider's settings, and a refusal in the server's words",
        .enabled(if: !BuiltCommand.isPlugged))
    func anAccessToken() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let file = try sandbox.configureOAuth(server)
        let output = try sandbox.certprov("access-token", "--config", file, "-v", "-v")
        let token = output.stdout.dropLast()
        #expect(output.status == 0 && output.stdout.wholeMatch(of: /[!-~]+\n/) != nil, "\(output)")
        #expect(!output.stderr.contains(token), "\(output)")
        // The server takes it.
        let used = try sandbox.shell(
            #"curl -s -o /dev/null -w '%{http_code}' --cacert "$1" -H "Authorization: Bearer $2" -d x https://localhost:$3/.well-known/est/simpleenroll"#,
            server.directory["ca.pem"], String(token), String(server.port))
        #expect(used.stdout != "401", "\(used)")
        let document = try sandbox.certprov("access-token", "--config", file, "--json").document("AccessToken")
        #expect(document["accessToken"].string?.isEmpty == false)
        #expect((1...86_400).contains(document["expiresIn"].int ?? 0), "\(document)")
        let other = try sandbox.write(try TestAuthority("Other").root.pemRepresentation, to: "other.pem")
        let strange = try sandbox.write(
            try String(contentsOfFile: file, encoding: .utf8)
                + "\nCertificateProvider.mdm.token-trust-anchors = \(other)\n",
            to: "strange.properties")
        try sandbox.certprov("access-token", "--config", strange).expect(76, stderr: "check 'token-trust-anchors'")
        #expect(server.issued == 0)

        try sandbox.write("another", to: "secret")
        let refused = try sandbox.certprov("access-token", "--config", file).expect(
            77, stdout: "", stderr: "invalid_client")
        #expect(!refused.stderr.contains("another"))
        // It is not sent again by itself, also not by the provider.
        let count = try server.requests().count
        for command in ["access-token", "fetch"] {
            try sandbox.certprov(command, "--config", file).expect(77, stderr: "has rejected this secret")
        }
        #expect(try server.requests().count == count)
    }

    @Test("access-token needs no enrolment: options alone say what to ask", .enabled(if: !BuiltCommand.isPlugged))
    func anAccessTokenAlone() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--scope", "enrol status")
        let pin = String(decoding: try server.directory.read("server.pin"), as: UTF8.self)
            .split(whereSeparator: \.isWhitespace).joined()
        try sandbox.write("estsecret", to: "secret")
        let place = ["--token-url", "https://localhost:\(server.port)/token"]
        let client = ["--client-id", "estclient", "--client-secret-source", "file:\(sandbox.path)/secret"]
        let anchors = ["--token-trust-anchors", server.directory["ca.pem"]]
        func token(_ more: [String]) throws -> Output { try sandbox.certprov(["access-token"] + place + more) }
        try token(client + anchors + ["--scope", "enrol status", "--client-authentication", "body"]).expect()
        let document = try token(client + anchors + ["--json"]).document("AccessToken")
        #expect(document["scopes"].array.map(\.string) == ["enrol", "status"] || document["scopes"].isNull)
        let set = client.enumerated().filter { $0.offset % 2 == 1 }.map(\.element)
        try sandbox.certprov(
            "access-token", "--provider", "mdm", "--set", "token-url=\(place[1])", "--set", "client-id=\(set[0])",
            "--set", "client-secret-source=\(set[1])", "--set", "token-trust-anchors=\(anchors[1])"
        ).expect()
        try token(client).expect(76, stderr: "check 'token-trust-anchors'")
        try token(client + ["--token-pin", pin]).expect(76)
        try token(client + ["--token-pin", pin, "--token-pin-mode", "pin-only"]).expect()
        try token(client + ["--token-pin-mode", "pin-only"]).expect(78, stderr: "needs a 'token-pin'")
        try token(client + anchors + ["--provider", "mdm", "--set", "client-id=other"]).expect(64, stderr: "set twice")
        try token([]).expect(78, stderr: "needs a 'client-id'")
        try sandbox.certprov(["access-token"] + client).expect(78, stderr: "needs a 'token-url'")
        #expect(server.issued == 0)
        try sandbox.write("another", to: "secret")
        try token(client + anchors).expect(77, stderr: "invalid_client")
        let count = try server.requests().count
        try token(client + anchors).expect(77, stderr: "has rejected this secret")
        #expect(try server.requests().count == count)
    }

    @Test(
        "access-token keeps the refresh token of a password, sealed, and asks no person as long as the server takes it",
        .enabled(if: !BuiltCommand.isPlugged), arguments: ["keep", "rotate", "refuse"])
    func aKeptRefreshToken(kind: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", kind)
        let settings = [
            "--token-url", "https://localhost:\(server.port)/token", "--client-id", "estclient", "--grant", "password",
            "--username", ESTServer.user, "--token-trust-anchors", server.directory["ca.pem"],
        ]
        func grants() throws -> [String] { try server.requests().compactMap { $0["grant_type"] as? String } }
        let logIn = settings + ["--password-source", "env:PASSWORD"]
        let password = ["PASSWORD": ESTServer.password]
        try sandbox.certprov(["access-token"] + logIn, with: password).expect()
        // No person is there to type the password.
        let status: Int32 = kind == "refuse" ? 77 : 0
        for _ in 0..<2 {
            try sandbox.certprov(["access-token"] + settings).expect(
                status, stderr: kind == "refuse" ? "Password of" : "")
        }
        let refreshed = kind == "refuse" ? ["refresh_token"] : ["refresh_token", "refresh_token"]
        #expect(try grants() == ["password"] + refreshed)
        try sandbox.certprov(["access-token"] + settings + ["--scope", "enrol"]).expect(77)
        #expect(try sandbox.shell(#"grep -rl '"token"' "$1""#, sandbox.store).status == 1)
        try sandbox.certprov(["access-token", "--forget"] + settings).expect(stdout: "")
        try sandbox.certprov(["access-token"] + settings).expect(77)
        #expect(try grants() == ["password"] + refreshed)
    }

    @Test("access-token needs OAuth settings")
    func noAccessToken() throws {
        try sandbox.certprov("access-token", "--provider", "pkcs12", "--set", "path=x").expect(
            78, stdout: "", stderr: "token-url")
        guard !BuiltCommand.isPlugged else { return }
        try sandbox.certprov(
            "access-token", "--provider", "mdm", "--set", "protocol=est", "--set", "url=https://localhost:1", "--set",
            "subject=CN=x"
        ).expect(78, stdout: "", stderr: "token-url")
    }
}
