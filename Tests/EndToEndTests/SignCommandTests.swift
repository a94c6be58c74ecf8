import Foundation
import Glibc
import TestSupport
import Testing

/// `sign raw` and `sign cms`, with keys in each kind of key store; OpenSSL verifies.
@Suite(.timeLimit(.minutes(20))) struct SignCommandTests {
    private let sandbox: Sandbox
    private let variables: [String: String]
    private let content: String

    init() throws {
        sandbox = try Sandbox()
        mkdir(sandbox.path + "/plugins", 0o700)
        variables = ["SOFTHSM2_CONF": sandbox.path + "/softhsm2.conf"]
        content = try sandbox.write((0..<500_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }, to: "content")
    }

    /// A key store, and how a key is made there.
    enum Place: String, CaseIterable { case store, token, plugin, tpm }

    /// Has a key made in a key store and certified. Returns the options for the identity.
    private func identity(_ place: Place, _ type: String, _ tpm: SoftwareTPM? = nil) throws -> [String] {
        var options: [String]
        var settings = "PluginDirectory = \(sandbox.path)/plugins\n"
        switch place {
        case .store: options = ["--key", "store:"]
        case .token:
            _ = try SoftToken(in: sandbox)
            options = [
                "--key", "pkcs11:token=demo?module-path=\(SoftToken.library)", "--key-pin-source",
                "file:\(sandbox.path)/pin",
            ]
        case .plugin:
            try sandbox.installTestPlugin("keys")
            options = ["--key", "keys:"]
        case .tpm:
            settings = try sandbox.installTPMPlugin(try #require(tpm).tcti)
            options = ["--key", "tpm:"]
        }
        let plugins = try sandbox.write(settings, to: "plugins.properties")
        let request = sandbox.path + "/signer.csr"
        let made = try sandbox.certprov(
            ["keygen", "--subject", "CN=signer", "--key-type", type, "--out", request, "--config", plugins] + options,
            with: variables
        ).require()
        try certify(request)
        let key = made.stdout.trimmingCharacters(in: .newlines)
        let file = try sandbox.write(
            settings
                + """
                CertificateProvider = pem
                CertificateProvider.pem.certificate = \(sandbox.path)/signer.pem
                CertificateProvider.pem.key = \(place == .token ? options[1] : key)
                \(place == .token ? "CertificateProvider.pem.key-pin-source = file:\(sandbox.path)/pin" : "")

                """, to: "signer.properties")
        return ["--config", file]
    }

    /// Has the fixtures' authority issue `signer.pem`.
    private func certify(
        _ request: String, usage: String = "digitalSignature", purposes: String = "clientAuth,emailProtection"
    ) throws {
        try sandbox.shell(
            #"""
            set -e; cd "$1"
            printf 'keyUsage=critical,%s\nextendedKeyUsage=%s\n' "$4" "$5" >signer.ext
            openssl x509 -req -in "$3" -CA "$2/intermediate.pem" -CAkey "$2/intermediate.key" -set_serial 77 \
                -days 30 -extfile signer.ext -out signer.pem
            openssl x509 -in signer.pem -noout -pubkey >signer.pub
            cat "$2/intermediate.pem" >>signer.pem
            """#, sandbox.path, Fixtures.path(""), request, usage, purposes
        ).require()
    }

    /// The options for the fixture `ec`.
    private static let fixture = [
        "--provider", "pkcs12", "--set", "path=\(Fixtures.path("ec.p12"))", "--set", "password-source=env:P12_PASSWORD",
    ]

    private func sign(_ arguments: [String], seconds: Double = 600) throws -> Output {
        try sandbox.certprov(["sign"] + arguments, with: variables)
    }

    private func verify(_ script: String) throws {
        try sandbox.shell("set -e; cd \"$1\"; \(script)", sandbox.path, Fixtures.path("root.pem")).expect(about: script)
    }

    private static let document = TestPDF.text

    private static let cms = "openssl cms -verify -cades -inform DER -binary -purpose any -CAfile $2 -out out"

    @Test(
        "OpenSSL verifies the signatures of keys in the store, in a token, in a plugin and in a TPM",
        arguments: [
            (Place.store, "p256"), (.store, "p384"), (.store, "p521"), (.store, "rsa2048"), (.store, "ed25519"),
            (.token, "p256"), (.token, "p384"), (.token, "p521"), (.token, "rsa2048"), (.token, "ed25519"),
            (.plugin, "p256"), (.plugin, "p384"), (.plugin, "p521"), (.plugin, "rsa2048"), (.plugin, "ed25519"),
            (.tpm, "p256"), (.tpm, "p384"), (.tpm, "rsa2048"),
        ])
    func eachStore(place: Place, type: String) throws {
        let tpm = place == .tpm ? try SoftwareTPM() : nil
        let identity = try identity(place, type, tpm)
        defer { #expect((try? tpm?.leftovers()) ?? "" == "") }
        let document = try sandbox.write(Self.document.utf8, to: "document.pdf")
        try verify("mkdir nss; certutil -d sql:nss -N --empty-password")
        let out = sandbox.path + "/signature"
        let schemes: [(name: String?, verify: String)] =
            switch type {
            case "ed25519":
                [(nil, "openssl pkeyutl -verify -pubin -inkey signer.pub -rawin -in content -sigfile signature")]
            case "rsa2048":
                [
                    (nil, "openssl dgst -sha256 -verify signer.pub -signature signature content"),
                    ("rsa_pkcs1_sha512", "openssl dgst -sha512 -verify signer.pub -signature signature content"),
                    (
                        "rsa_pss_rsae_sha256",
                        "openssl dgst -sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest -verify signer.pub "
                            + "-signature signature content"
                    ),
                ]
            case "p384": [(nil, "openssl dgst -sha384 -verify signer.pub -signature signature content")]
            case "p521": [(nil, "openssl dgst -sha512 -verify signer.pub -signature signature content")]
            default: [(nil, "openssl dgst -sha256 -verify signer.pub -signature signature content")]
            }
        for scheme in schemes {
            let options = (scheme.name.map { ["--scheme", $0] } ?? []) + identity + ["--force", "--out", out, content]
            if type != "ed25519" {
                try sign(
                    ["pdf", "--force", "--out", sandbox.path + "/signed.pdf", document]
                        + (scheme.name.map { ["--scheme", $0] } ?? []) + identity
                ).expect()
                try verify("pdfsig -nssdir nss signed.pdf | grep 'Signature is Valid'; qpdf --check signed.pdf")
            }
            let raw = try sign(["raw"] + options)
            #expect(raw.status == 0 && raw.stdout == out + "\n" && raw.stderr.isEmpty, "\(raw)")
            try verify(scheme.verify)
            for attached in [[], ["--attached"]] {
                try sign(["cms"] + attached + options).expect()
                // OpenSSL 3.0 verifies no CMS by Ed25519.
                guard type != "ed25519" else { continue }
                try verify("\(Self.cms) -in signature \(attached.isEmpty ? "-content content" : ""); cmp out content")
            }
        }
    }

    private static let pyHanko = Page.root.appending(path: ".build/pyhanko/bin/python").path

    @Test(
        "pyHanko verifies CMS by Ed25519, which OpenSSL 3.0 cannot, and notices one flipped byte",
        .enabled(if: access(pyHanko, X_OK) == 0, "pyHanko was not run: make test installs it"))
    func edwards() throws {
        let identity = try identity(.store, "ed25519")
        try sign(["cms", "--out", sandbox.path + "/signature", content] + identity).expect()
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "validate-cms.py").path
        let command = [Self.pyHanko, "-B", script, sandbox.path + "/signature", content, Fixtures.path("root.pem")]
        let valid = try sandbox.run(command)
        #expect(valid.status == 0 && valid.stdout == "INTACT:TRUSTED\n", "\(valid)")
        var bytes = try Data(contentsOf: URL(filePath: content))
        bytes[1000] ^= 1
        try sandbox.write(bytes, to: "content")
        let invalid = try sandbox.run(command)
        #expect(invalid.status == 1 && invalid.stdout == "INVALID\n", "\(invalid)")
    }

    @Test("stdin is signed to stdout; a terminal gets no binary")
    func streams() throws {
        try verify("exit 0")
        try sandbox.shell(
            #"""
            set -e; cd "$1"; shift
            "$CERTPROV" sign cms --attached "$@" <content >signature
            "$CERTPROV" sign raw "$@" - <content >raw
            """#, sandbox.path, Self.fixture[0], Self.fixture[1], Self.fixture[2], Self.fixture[3], Self.fixture[4],
            Self.fixture[5]
        ).expect()
        try verify("\(Self.cms) -in signature; cmp out content")
        try sandbox.run(
            [
                "script", "-qec", "\(BuiltCommand.path) sign raw \(Self.fixture.joined(separator: " ")) \(content)",
                "/dev/null",
            ]).expect(64, stdout: "--out")
    }

    @Test("Several files are signed with one login; outputs are never over an input or another file")
    func files() throws {
        let identity = try identity(.token, "p256")
        let other = try sandbox.write("other".utf8, to: "other")
        mkdir(sandbox.path + "/signed", 0o755)
        let directory = sandbox.path + "/signed"
        let signed = try sign(["cms", "--json", "--out-dir", directory, content, other] + identity)
        let document = try signed.document("Signatures")
        #expect(signed.status == 0 && document["subject"].string == "CN=signer", "\(signed)")
        #expect(document["scheme"].string == "ecdsa_secp256r1_sha256")
        #expect(document["items"].array.map { $0["input"].string } == [content, other])
        #expect(
            document["items"].array.map { $0["file"].string } == [directory + "/content.p7s", directory + "/other.p7s"])
        try verify(
            "\(Self.cms) -in signed/content.p7s -content content; \(Self.cms) -in signed/other.p7s -content other")

        let before = try Data(contentsOf: URL(filePath: directory + "/other.p7s"))
        try sign(["cms", "--out-dir", directory, other] + identity).expect(73, stderr: "--force")
        #expect(try Data(contentsOf: URL(filePath: directory + "/other.p7s")) == before)
        #expect(try sign(["cms", "--force", "--out-dir", directory, other] + identity).status == 0)

        try #require(link(other, sandbox.path + "/same") == 0)
        for name in [other, sandbox.path + "/same"] {
            try sign(["raw", "--force", "--out", name, other] + identity).expect(64, stderr: "is the file to sign")
        }
        #expect(try String(contentsOfFile: other, encoding: .utf8) == "other")
        mkdir(sandbox.path + "/more", 0o755)
        try sandbox.write("x".utf8, to: "more/other")
        try sign(["raw", "--out-dir", directory, other, sandbox.path + "/more/other"] + identity).expect(
            64, stderr: "Two files would be written")
        let absent = try sign(["raw", "--out", directory + "/absent", sandbox.path + "/absent"] + identity)
        #expect(absent.status == 66 && !FileManager.default.fileExists(atPath: directory + "/absent"), "\(absent)")
        try sign(["raw", "--out", directory + "/folder", directory] + identity).expect(74, stderr: "is a directory")
    }

    @Test(
        "Options that do not fit together are refused",
        arguments: [
            ["raw", "--json", "file"], ["raw", "a", "b"], ["raw", "--out", "x", "--out-dir", "y", "a"],
            ["raw", "--out-dir", "y"], ["raw", "--force", "a"], ["raw", "--scheme", "md5", "a"],
            ["cms", "--time-stamp", "http://127.0.0.1/", "a"], ["cms", "--time-stamp-anchors", "x", "a"],
            ["cms", "--time-stamp", "tsa", "--time-stamp-anchors", "x", "a"],
            [
                "cms", "--time-stamp", "http://127.0.0.1/", "--time-stamp-anchors", "x", "--time-stamp-server-pin", "y",
                "a",
            ],
            ["cms", "--time-stamp", "http://127.0.0.1/", "--time-stamp-anchors", "x", "--time-stamp-user", "y", "a"],
            [
                "cms", "--time-stamp", "http://127.0.0.1/", "--time-stamp-anchors", "x", "--time-stamp-user", "y",
                "--time-stamp-password-source", "prompt", "a",
            ],
            ["cms", "--level", "b-lta", "a"], ["cms", "--level", "b-lt", "a"], ["pdf", "--level", "b-t", "a"],
            ["cms", "--level", "b-lt", "--time-stamp", "none", "a"],
            [
                "cms", "--level", "b-b", "--time-stamp", "http://127.0.0.1/", "--time-stamp-anchors",
                Fixtures.path("ec.pem"), "a",
            ],
        ])
    func usage(arguments: [String]) throws {
        try sign(arguments + Self.fixture).expect(64, stdout: "")
    }

    @Test("A certificate that is not for signatures is refused before its token's PIN is needed")
    func unusable() throws {
        _ = try identity(.token, "p256")
        try certify(sandbox.path + "/signer.csr", usage: "keyAgreement")
        try sandbox.certprov(
            [
                "store-certificate", sandbox.path + "/signer.pem", "--uri", "pkcs11:token=demo", "--set",
                "module-path=\(SoftToken.library)", "--set", "pin-source=file:\(sandbox.path)/pin",
            ], with: variables
        ).require()
        // There is no PIN, and no terminal to ask at.
        let identity = [
            "--uri", "pkcs11:token=demo;object=signer", "--set", "module-path=\(SoftToken.library)",
        ]
        let out = sandbox.path + "/signature"
        try sign(["raw", "--out", out, content] + identity).expect(65, stderr: "[certificateNotUsable]")
        #expect(!FileManager.default.fileExists(atPath: out))
    }

    @Test("nonRepudiation alone is enough to sign")
    func nonRepudiation() throws {
        let identity = try identity(.store, "p256")
        try certify(sandbox.path + "/signer.csr", usage: "nonRepudiation")
        try sign(["cms", "--out", sandbox.path + "/signature", content] + identity).expect()
        try verify("\(Self.cms) -in signature -content content")
        try sandbox.shell("echo CertificateProvider.pem.usage=signature >>\"$1\"", identity[1]).expect()
        try sandbox.certprov(["check"] + identity, with: variables).expect(stdout: "valid for usage=signature")
        #expect(try !sandbox.certprov(["list"] + identity, with: variables).stdout.contains("unusable"))
        try certify(sandbox.path + "/signer.csr", usage: "keyEncipherment")
        try sandbox.certprov(["check"] + identity, with: variables).expect(65, stdout: "has neither the key usage")
    }

    @Test("A certificate for signatures alone signs, and is in order with usage=signature only")
    func signatureAlone() throws {
        let identity = try identity(.store, "p256")
        try certify(sandbox.path + "/signer.csr", purposes: "emailProtection")
        let warned = try sandbox.certprov(["check"] + identity, with: variables)
        #expect(warned.stdout.contains("usage=client"), "\(warned)")
        try sandbox.shell("echo CertificateProvider.pem.usage=signature >>\"$1\"", identity[1]).expect()
        let checked = try sandbox.certprov(["check"] + identity, with: variables)
        #expect(
            checked.stdout.contains("valid for usage=signature") && !checked.stdout.contains("usage=client"),
            "\(checked)")
        try sign(["cms", "--out", sandbox.path + "/signature", content] + identity).expect()
        try verify("\(Self.cms) -in signature -content content")
    }

    @Test("Without its time stamp there is no output", arguments: ["http://127.0.0.1:9/", "https://127.0.0.1:9/"])
    func noTimeStamp(url: String) throws {
        let out = sandbox.path + "/signature"
        let refused = try sign(
            ["cms", "--time-stamp", url, "--time-stamp-anchors", Fixtures.path("root.pem"), "--out", out, content]
                + Self.fixture)
        #expect(refused.status == 69 && !FileManager.default.fileExists(atPath: out), "\(refused)")
    }

    /// Starts a time-stamp server, or a CA with one, which writes its CA to `tsa/ca.pem`. Returns its origin too.
    private func startTimeStampServer(_ script: String = "tsa.py") throws -> (Subprocess, String) {
        let script = Page.root.appending(path: "Tests/SigningTests/\(script)").path
        mkdir(sandbox.path + "/tsa", 0o700)
        let server = try Subprocess(["python3", script, sandbox.path + "/tsa"], .held)
        let port = sandbox.path + "/tsa/port"
        try server.waitUntil { (try? !contents(port).isEmpty) == true }
        return (server, "http://127.0.0.1:\(String(decoding: try contents(port), as: UTF8.self))")
    }

    @Test("The time-stamp server of the property file counts; an option wins, and none means none")
    func configuredTimeStamps() throws {
        let (server, origin) = try startTimeStampServer()
        defer { server.stop() }
        let url = origin + "/ok"
        let anchors = sandbox.path + "/tsa/ca.pem"
        let out = sandbox.path + "/signature"
        func sign(_ kind: String, _ lines: [String], _ options: String...) throws -> Output {
            let file = try sandbox.configure(lines.joined(separator: "\n"), to: "stamped.properties")
            let document = try sandbox.write(kind == "pdf" ? Array(Self.document.utf8) : [1, 2, 3], to: "data")
            return try self.sign([kind, "--config", file, "--force", "--json", "--out", out, document] + options)
        }
        let stamped = [
            "Signing.time-stamp-url = \(url)", "Signing.time-stamp-anchors = \(anchors)",
            "Signing.time-stamp-policy = 1.2.3.4.1",
        ]
        let silent = [
            "Signing.time-stamp-url = http://127.0.0.1:9/", "Signing.time-stamp-anchors = \(Fixtures.path("root.pem"))",
        ]
        func level(_ output: Output) throws -> String? { try output.document("Signatures")["level"].string }
        for kind in ["cms", "pdf"] {
            #expect(try level(sign(kind, stamped)) == "B-T")
            // The attribute id-aa-timeStampToken.
            let stamp = #"{ tr -d '\n' | grep -q 060b2a864886f70d010910020e; }"#
            try sandbox.shell(
                kind == "pdf" ? #"sed 's/.*/\L&/' "$1" | \#(stamp)"# : #"xxd -p "$1" | \#(stamp)"#, out
            ).expect()
            #expect(try level(sign(kind, stamped, "--time-stamp", "none")) == "B-B")
            #expect(try level(sign(kind, ["Signing.time-stamp-url = none"])) == "B-B")
            #expect(try level(sign(kind, [])) == "B-B")
            // The other server does not answer.
            #expect(try sign(kind, silent).status == 69)
            #expect(
                try level(sign(kind, silent, "--time-stamp", url, "--time-stamp-anchors", anchors)) == "B-T")
            // Each other option wins over its line.
            #expect(try sign(kind, stamped, "--time-stamp-anchors", Fixtures.path("root.pem")).status == 76)
            #expect(try sign(kind, stamped, "--time-stamp-policy", "1.2.3.4.9").status == 77)
            #expect(try sign(kind, [stamped[0]]).status == 78)
            #expect(try sign(kind, stamped, "--time-stamp-server-pin", "sha256/x").status == 64)
        }
        let raw = try sign("raw", silent)
        #expect(try raw.document("Signatures")["level"].isNull, "\(raw)")
        #expect(try sign("cms", stamped, "--time-stamp", "none", "--time-stamp-policy", "1.2.3").status == 64)
    }

    @Test("Level B-LT has the data of the certificates' own servers, and is written whole or not at all")
    func longTerm() throws {
        let (server, origin) = try startTimeStampServer("ca.py")
        defer { server.stop() }
        let directory = sandbox.path + "/tsa"
        let document = try sandbox.write(Self.document.utf8, to: "document.pdf")
        let out = sandbox.path + "/signature"
        func sign(_ kind: String, by name: String, _ options: String...) throws -> Output {
            try self.sign(
                [
                    kind, "--json", "--out", out, "--time-stamp", origin + "/tsa", "--time-stamp-anchors",
                    directory + "/ca.pem", "--provider", "pem", "--set", "certificate=\(directory)/\(name).pem",
                    "--set",
                    "key=\(directory)/\(name).key", "--set", "usage=signature", kind == "pdf" ? document : content,
                ] + options)
        }
        try sandbox.shell("chmod 600 \"$1\"/*.key", directory).require()
        for kind in ["cms", "pdf"] {
            let missing = try sign(kind, by: "missing", "--level", "b-lt")
            #expect(missing.status == 76 && missing.description.contains("CN=missing"), "\(missing)")
            let revoked = try sign(kind, by: "revoked", "--level", "b-lt")
            #expect(revoked.status == 65 && revoked.description.contains("is revoked since"), "\(revoked)")
            // It names no URL of its issuer.
            let bare = try sign(kind, by: "bare", "--level", "b-lt", "--set", "trust-bundle=\(directory)/ca.pem")
            #expect(bare.status == 65 && bare.description.contains("the certificate names none"), "\(bare)")
            #expect(!FileManager.default.fileExists(atPath: out))
            for (level, name) in [("b-t", "missing"), ("b-lt", "signer")] {
                let signed = try sign(kind, by: name, "--level", level, "--force")
                #expect(try signed.document("Signatures")["level"].string == level.uppercased(), "\(signed)")
            }
            if kind == "pdf" {
                try sandbox.certprov(["verify", "--trust-anchors", directory + "/root.pem", out]).expect(
                    stdout: "1 revision came later: signatures and validation data only")
            }
            try FileManager.default.removeItem(atPath: out)
        }
    }

    @Test("A typed password: sign says that the identity is stored, once, and signs without it afterwards")
    func typedPassword() throws {
        let options = "--provider pkcs12 --set path=\(Fixtures.path("ec.p12")) --set password-source=prompt"
        let result = try sandbox.atTerminal(
            #""$CERTPROV" sign raw --out "$HOME/signature" \#(content) \#(options)"#, asked: "ec.p12: ", with: variables
        ) { try $0.type(Fixtures.password + "\n") }
        guard let (status, screen) = result else { return }
        #expect(status == 0 && screen.contains("ec.p12 is now stored"), "\(screen)")
        #expect(screen.contains("certprov delete"), "\(screen)")
        let arguments = options.split(separator: " ").map(String.init)
        try sign(["raw", "--out", sandbox.path + "/again", content] + arguments).expect(stderr: "")
        try sandbox.certprov(["delete", "--yes"] + arguments).expect()
        try sign(["raw", "--out", sandbox.path + "/third", content] + arguments).expect(
            77, stderr: "[interactionRequired]")
    }

    @Test("A time-stamp server that asks for a user gets the password of a source, and a rejected one once")
    func aServerWithAPassword() throws {
        let (server, origin) = try startTimeStampServer()
        defer { server.stop() }
        let (url, anchors) = (origin + "/login", sandbox.path + "/tsa/ca.pem")
        let account = ["clerk", "file:\(sandbox.path)/password"]
        let output = ["--force", "--out", sandbox.path + "/signature", content]
        func sign(at url: String) throws -> Output {
            let options = ["--time-stamp-user", account[0], "--time-stamp-password-source", account[1]]
            return try self.sign(
                ["cms", "--time-stamp", url, "--time-stamp-anchors", anchors] + options + output + Self.fixture)
        }
        let file = try sandbox.configure(
            "Signing.time-stamp-url = \(url)", "Signing.time-stamp-anchors = \(anchors)",
            "Signing.time-stamp-user = \(account[0])", "Signing.time-stamp-password-source = \(account[1])",
            to: "stamped.properties")
        try sandbox.write("wrong", to: "password")
        try sign(at: "http://tsa.example/").expect(78, stderr: "over TLS only")
        try sign(at: url).expect(77, stderr: "with the status 401")
        let before = "has rejected this password of 'clerk' before"
        try sign(at: url).expect(77, stderr: before)
        try self.sign(["cms", "--config", file] + output).expect(77, stderr: before)
        try sandbox.shell(
            "curl -s -H 'Content-Type: application/timestamp-query' -d clerk \"$1\"s", url
        ).expect(stdout: "1")
        try sandbox.write("tspass", to: "password")
        for signed in [try sign(at: url), try self.sign(["cms", "--config", file] + output)] {
            signed.expect()
            try sandbox.shell("openssl cms -cmsout -print -inform DER -in \"$1\"", sandbox.path + "/signature")
                .expect(stdout: "id-smime-aa-timeStampToken")
        }
    }

    @Test(
        "A signal leaves nothing beside the output, while the server of time stamps is waited for",
        arguments: [SIGINT, SIGTERM, SIGHUP, SIGKILL])
    func ended(by signal: Int32) throws {
        let port = try ReservedPort()
        let server = try Subprocess(
            [
                "python3", "-u", "-c",
                """
                import socket
                listening = socket.create_server(('127.0.0.1', \(port)))
                print('up')
                client = listening.accept()[0]
                print('asked')
                while client.recv(65536): pass
                """,
            ], environment: ["PATH": "/usr/bin:/bin"])
        defer { server.stop() }
        try #require(server.readLine() == "up")
        let results = sandbox.path + "/results"
        try FileManager.default.createDirectory(atPath: results, withIntermediateDirectories: false)
        let signing = try sandbox.start(
            [
                BuiltCommand.path, "sign", "cms", "--time-stamp", "http://127.0.0.1:\(port)", "--time-stamp-anchors",
                Fixtures.path("root.pem"), "--out", results + "/signature", content,
            ] + Self.fixture, with: variables)
        try #require(server.readLine() == "asked")
        signing.kill(signal)
        _ = signing.wait()
        #expect(try FileManager.default.contentsOfDirectory(atPath: results).isEmpty)
    }

    @Test("Memory does not grow with the content; a file that grows too large is no output")
    func largeContent() throws {
        try sandbox.shell(
            #"""
            cd "$1"; shift; truncate -s 150M large
            (
                ulimit -f 100000
                "$CERTPROV" sign cms --attached --out full large "$@"
                [ $? = 73 ] && ! [ -e full ]
            ) || exit 3
            [ "$(find . -name '.certprov*')" = "" ] || exit 4
            for mode in --attached --force; do
                # The data that the process has, in bytes: less than the content.
                prlimit --data=100000000 "$CERTPROV" sign cms $mode --force --out "signature$mode" large "$@" || exit 5
            done
            """#, sandbox.path, Self.fixture[0], Self.fixture[1], Self.fixture[2], Self.fixture[3], Self.fixture[4],
            Self.fixture[5]
        ).expect(stderr: "[storeWriteFailed]")
        try verify("\(Self.cms) -in ./signature--force -content large")
        try verify("\(Self.cms) -in ./signature--attached; cmp out large")
    }
}
