import Foundation
import Glibc
import TestSupport
import Testing

/// Keys made on a token, from the command line.
@Suite struct KeygenTests {
    private let sandbox: Sandbox
    private let token: SoftToken
    private var variables: [String: String] { token.variables }
    private let options = [
        "--uri", "pkcs11:token=demo", "--set", "module-path=\(SoftToken.library)", "--set", "pin-source=env:PIN",
    ]

    init() throws {
        sandbox = try Sandbox()
        token = try SoftToken(in: sandbox)
    }

    private func certprov(_ command: String, _ more: String...) throws -> Output {
        try sandbox.certprov([command] + options + more, with: variables)
    }

    /// The alternative names, as openssl shows them.
    private static let names =
        "DNS:client.example, URI:https://a.example/x,y, othername: UPN::alice@example.com"

    private func count() throws -> Int { try token.objects().count }

    @Test func aTokenIsEnrolledByHand() throws {
        let request = sandbox.path + "/client.csr"
        let made = try certprov(
            "keygen", "--subject", "CN=client,O=Example", "--san", "dns:client.example", "--san",
            "uri:https://a.example/x,y", "--san", "upn:alice@example.com", "--out", request
        ).expect(stderr: "")
        #expect(made.stdout.hasPrefix("pkcs11:") && made.stdout.contains("object=client;type=private\n"), "\(made)")
        #expect(mode(request) == 0o644)
        try sandbox.run(["openssl", "req", "-verify", "-noout", "-text", "-in", request]).expect(stdout: Self.names)

        try certprov("store-certificate", try sandbox.issue(request, to: "client.pem", serial: 91)).expect(
            stdout: "CN=client,O=Example")
        let item = try certprov("list", "--json").document("IdentityList")["items"][0]
        #expect(item["subject"].string == "CN=client,O=Example" && item["chainLength"].int == 2)
        #expect(
            item["subjectAlternativeNames"].array.map(\.string) == [
                "dns:client.example", "uri:https://a.example/x,y", "upn:alice@example.com",
            ])
        #expect(item["key"]["uri"].string == made.stdout.trimmingCharacters(in: .newlines))
        #expect(try certprov("fetch").status == 0)
        #expect(try count() == 4)

        // A renewed certificate for the same key takes the old one's place when that is asked for.
        let renewed = try sandbox.issue(request, to: "renewed.pem", serial: 92, days: 31)
        let replaced = try certprov("store-certificate", "--replace", "--json", renewed)
        #expect(try replaced.document("Identity")["identity"]["serialNumber"].string == "5c", "\(replaced)")
        #expect(try count() == 4)

        let remaining = try certprov("delete", "--yes").expect(
            stderr: "the private key of 'CN=client,O=Example' stays, pkcs11:")
        #expect(try count() == 4, "\(remaining)")
        #expect(try certprov("fetch").status == 0)
        let destroyed = try certprov("delete", "--yes", "--set", "delete-objects=true").expect(stderr: "")
        #expect(try count() == 1, "\(destroyed)")
    }

    /// The certificate of a key on a token ends, and its CA issues another one for a request.
    @Test func aCertificateIsRenewedByARequest() throws {
        let first = sandbox.path + "/first.csr"
        let made = try certprov(
            "keygen", "--subject", "CN=client,O=Example", "--san", "dns:client.example", "--san",
            "uri:https://a.example/x,y", "--san", "upn:alice@example.com", "--out", first)
        let key = made.stdout.trimmingCharacters(in: .newlines)
        #expect(made.status == 0, "\(made)")
        let old = try sandbox.issue(first, to: "client.pem", serial: 93)
        try certprov("store-certificate", old).expect(stderr: "")
        let objects = try count()

        // The names are those of the certificate, and the key is the same.
        let second = sandbox.path + "/second.csr"
        let requested = try certprov("keygen", "--for", key, "--out", second)
        #expect(try requested.status == 0 && requested.stdout == key + "\n" && count() == objects, "\(requested)")
        func details(_ file: String) throws -> String {
            let output = try sandbox.run(["openssl", "req", "-verify", "-noout", "-subject", "-pubkey", "-in", file])
                .expect()
            return output.stdout
        }
        #expect(try details(first) == details(second))
        for request in [first, second] {
            let text = try sandbox.run(["openssl", "req", "-noout", "-text", "-in", request]).stdout
            #expect(text.contains(Self.names), "\(text)")
        }

        // Both stay: the newer one is used, with a remark. The remark goes with the old one.
        let renewed = try sandbox.issue(second, to: "renewed.pem", serial: 94, days: 31)
        try certprov("store-certificate", renewed).expect(stderr: "more than one certificate for one key")
        try certprov("list").expect(stderr: "more than one certificate for one key")
        let fetched = try certprov("fetch", "--json")
        #expect(try fetched.document("Identity")["identity"]["serialNumber"].string == "5e", "\(fetched)")
        // An older one takes no place.
        try certprov("store-certificate", "--replace", "--json", old)
            .expectFailure("operationNotAllowed", status: 75)
        try certprov("store-certificate", "--replace", renewed).expect()
        try certprov("list").expect(stderr: "")

        // Other names, by the key's URI alone, and mistakes.
        let other = try certprov("keygen", "--for", "pkcs11:token=demo;object=client", "--subject", "CN=other")
        #expect(other.status == 0 && other.stdout.hasPrefix("-----BEGIN CERTIFICATE REQUEST"), "\(other)")
        for wrong in [["--label", "x"], ["--key-type", "p384"], ["--san", "dns:a.example"]] {
            #expect(try sandbox.certprov(["keygen", "--for", key] + options + wrong, with: variables).status == 64)
        }
        let pin = try certprov("keygen", "--for", "pkcs11:token=demo?pin-value=123456")
        #expect(pin.status == 64 && !pin.stderr.contains("123456"), "\(pin)")
        try certprov("keygen", "--for", "pkcs11:token=demo;object=none", "--subject", "CN=x").expect(
            66, stderr: "'\(key)'")
    }

    /// A request whose CA has not answered yet is made once more.
    @Test func aKeyWithoutACertificateGetsAnotherRequest() throws {
        let key = try certprov("keygen", "--label", "x", "--out", sandbox.path + "/x.csr").stdout.trimmingCharacters(
            in: .newlines)
        try certprov("keygen", "--for", key).expect(66, stderr: "--subject")
        let named = try certprov("keygen", "--for", key, "--subject", "CN=x")
        #expect(try named.status == 0 && named.stdout.hasPrefix("-----BEGIN") && count() == 2, "\(named)")
    }

    @Test("A certificate for a key in store: stays in its file, and store list shows the key")
    func aCertificateForAKeyOfTheStore() throws {
        let request = sandbox.path + "/stored.csr"
        let made = try sandbox.certprov("keygen", "--key", "store:", "--subject", "CN=stored", "--out", request)
            .expect()
        let key = made.stdout.trimmingCharacters(in: .newlines)
        func item(_ options: String...) throws -> JSON? {
            try sandbox.certprov(["store", "list", "--json"] + options).document("StoredIdentities")["items"].array
                .first { $0["entry"].string == key }
        }
        let before = try #require(try item())
        #expect(before["subject"].isNull && before["label"].string == "stored" && before["used"].isNull)
        let file = try sandbox.issue(request, to: "stored.pem", serial: 95)
        let stored = try sandbox.certprov("store-certificate", "--key", "store:", file).expect(stdout: "CN=stored")
        #expect(stored.stderr.contains("'certificate' to \(file) and its 'key' to 'store:'"), "\(stored)")
        let configuration = try sandbox.write(
            "CertificateProvider = pem\nCertificateProvider.pem.certificate = \(file)\nCertificateProvider.pem.key = store:\n",
            to: "stored.properties")
        #expect(try item("--config", configuration)?["used"].bool == false)
        try sandbox.certprov("fetch", "--config", configuration).expect(stdout: "CN=stored")
        #expect(try item("--config", configuration)?["used"].bool == true)
        try sandbox.certprov("store", "list").expect(stdout: "(key 'stored')")
        try sandbox.certprov("store", "delete", "--yes", key).expect(75, stderr: "is a key without a stored identity")
    }

    @Test("list of an absent token fails, as that of an absent file does")
    func anAbsentTokenIsAnError() throws {
        try sandbox.certprov(
            ["list", "--uri", "pkcs11:token=gone", "--set", "module-path=\(SoftToken.library)"],
            with: variables
        ).expect(69, stderr: "No token matches 'pkcs11:token=gone'")
    }

    @Test func theDocumentHasRequestAndKey() throws {
        let document = try certprov("keygen", "--json", "--label", "a+b", "--key-type", "rsa2048").document("KeyPair")
        #expect(document["provider"].string == "pkcs11")
        #expect(document["key"]["algorithm"].string == "RSA" && document["key"]["location"].string == "token")
        let pem = try #require(document["certificateRequest"].string)
        let file = try sandbox.write(pem, to: "request.pem")
        let subject = try sandbox.run(["openssl", "req", "-noout", "-subject", "-nameopt", "RFC2253", "-in", file])
        #expect(subject.stdout == "subject=CN=a\\+b\n", "\(subject)")

        let plain = try certprov("keygen", "--label", "x")
        #expect(plain.stdout.hasPrefix("-----BEGIN CERTIFICATE REQUEST-----\n"))
        #expect(plain.stderr.contains("pkcs11:"), "\(plain)")
    }

    @Test("keygen finds wrong options before it makes a key")
    func whatIsWrongIsFoundBeforeThereIsAKey() throws {
        let existing = try sandbox.write("mine", to: "existing.csr")
        for (status, arguments) in [
            (64, []), (64, ["--label", "x", "--key-type", "dsa"]), (64, ["--label", "x", "--force"]),
            (65, ["--subject", "client"]), (65, ["--label", "x", "--san", "host.example"]),
            (73, ["--label", "x", "--out", existing]), (73, ["--label", "x", "--out", sandbox.path + "/none/x"]),
            (73, ["--label", "x", "--force", "--out", "/dev/null"]),
        ] {
            try sandbox.certprov(["keygen"] + options + arguments, with: variables).expect(
                Int32(status), stdout: "", about: arguments)
        }
        #expect(try contents(existing) == Array("mine".utf8) && count() == 0)
        #expect(try certprov("keygen", "--label", "x", "--force", "--out", existing).status == 0)
        #expect(try contents(existing) != Array("mine".utf8) && mode(existing) == 0o644)
    }

    @Test func aRequestThatNobodyGetsLeavesNoKey() throws {
        let output = try sandbox.shell(
            #""$CERTPROV" keygen "$@" >/dev/full"#, options[0], options[1], options[2], options[3], options[4],
            options[5],
            "--label", "x", with: variables)
        #expect(try output.status == 73 && count() == 0, "\(output)")
    }

    @Test("A key whose request is in its file stays, whatever fails then")
    func aRequestThatIsOutKeepsItsKey() throws {
        let request = sandbox.path + "/out.csr"
        let output = try sandbox.shell(
            #""$CERTPROV" keygen "$@" >/dev/full"#, options[0], options[1], options[2], options[3], options[4],
            options[5], "--label", "x", "--out", request, with: variables)
        #expect(try output.status == 73 && count() == 2 && !contents(request).isEmpty, "\(output)")
        let next = try certprov("keygen", "--label", "y")
        #expect(try next.status == 0 && !next.stderr.contains("killed") && count() == 4, "\(next)")
    }

    @Test("As many killed commands as there are records do not stop the next one")
    func killedCommandsLeaveRoom() throws {
        let script = #"""
            cd "$HOME"; mkfifo full; exec 3<>full; head -c 65536 /dev/zero >&3
            for round in $(seq 16); do
                "$CERTPROV" keygen --key store: --label x >&3 2>errors.$round 3>&- & keygen=$!
                until grep -qs 'private key is' errors.$round; do kill -0 $keygen || exit 1; sleep 0.01; done
                kill -9 $keygen; wait $keygen
            done
            "$CERTPROV" keygen --key store: --label x 2>&1 >/dev/null | grep -c 'the key stays'
            "$CERTPROV" keygen --key store: --label x 2>&1 >/dev/null | grep -c 'the key stays'
            """#
        let output = try sandbox.run(["/bin/sh", "-c", script])
        #expect(output.stdout == "16\n0\n", "\(output)")
    }

    /// At any moment: no key is left that no command names, and none is destroyed whose request may be out. One that was killed
    /// while it wrote its request leaves its key, and the next one names it.
    @Test func killedItLeavesNoKeyWithoutARequest() throws {
        let (server, remote) = try token.serve()
        let arguments = [
            "keygen", "--uri", "pkcs11:token=demo", "--set", "module-path=\(try P11KitClient.path())", "--set",
            "pin-source=env:PIN", "--label", "x",
        ]
        func request(_ name: String) -> [String] { arguments + ["--out", "\(sandbox.path)/\(name).csr"] }

        let start = ContinuousClock.now
        try sandbox.certprov(request("first"), with: remote).require()
        var kills = KillMoments(40, within: ContinuousClock.now - start)
        var round = 0
        var named: Set<Substring> = []
        func note(_ output: Output) {
            let keys = output.stderr.matches(of: /killed while it wrote .* key (.*); the key stays/)
            named.formUnion(keys.map(\.output.1))
        }
        while kills.areLeft {
            let process = try sandbox.start([BuiltCommand.path] + request("\(round)"), with: remote)
            note(kills.kill(process))
            round += 1
            try token.forgetLogins()
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        // The output has no reader.
        let script = #"""
            cd "$HOME"; mkfifo full; exec 3<>full; head -c 65536 /dev/zero >&3
            "$CERTPROV" "$@" >&3 2>errors 3>&- & keygen=$!
            until grep -q pkcs11: errors; do kill -0 $keygen || exit 1; sleep 0.01; done
            kill -9 $keygen; wait $keygen; [ $? = 137 ]
            """#
        try sandbox.run(["/bin/sh", "-c", script, "sh"] + arguments, with: remote).expect()

        let last = try sandbox.certprov(request("last"), with: remote).expect()
        note(last)
        #expect(!named.isEmpty)
        try sandbox.certprov(request("again"), with: remote).expect(stderr: "")
        let files = try FileManager.default.contentsOfDirectory(atPath: sandbox.path).count { $0.hasSuffix(".csr") }
        let objects = try count()
        let found = "\(objects) objects, \(files) requests, \(named)"
        #expect(objects.isMultiple(of: 2) && objects / 2 <= files + named.count && objects / 2 >= files, "\(found)")
        #expect(objects / 2 >= round + 4 - kills.killed, "\(objects) objects, \(kills.killed) killed")
        withExtendedLifetime(server) {}
    }

    @Test func certificatesOfOthersAreRefused() throws {
        try certprov("store-certificate", Fixtures.path("ec.pem")).expect(66)
        try certprov("store-certificate", try sandbox.write("x", to: "damaged.pem")).expect(65)
        try certprov("store-certificate", sandbox.path + "/missing.pem").expect(66)
        #expect(try count() == 0)
    }
}
