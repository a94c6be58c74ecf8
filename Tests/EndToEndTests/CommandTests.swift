import Foundation
import Glibc
import TestSupport
import Testing

/// The output and the effects of `fetch`, `delete`, `explain`, `providers` and `check`.
@Suite struct CommandTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private var client: [String] { adHoc(Fixtures.path("ec.p12")) }

    @Test func fetchAnswersFromTheStoreWithoutTheFile() throws {
        let source = try sandbox.copy("a.p12", to: "client.p12")
        let first = try sandbox.certprov(["fetch", "--json"] + adHoc(source)).expect(stderr: "")
        let identity = try first.document("Identity")["identity"]
        #expect(identity["stored"].bool == true && identity["key"]["location"].string == "store")
        #expect(identity["subject"].string == "CN=identity-a")

        unlink(source)
        let again = try sandbox.certprov(["fetch", "--json"] + adHoc(source, password: "env:UNSET"))
        #expect(again.status == 0 && again.stdout == first.stdout, "\(again)")
        // Asked anew, the provider has nothing; the stored identity is still there.
        try sandbox.certprov(["fetch", "--json", "--force"] + adHoc(source))
            .expectFailure("fileNotFound", status: 66)
        #expect(try sandbox.certprov(["fetch", "--json"] + adHoc(source)).stdout == first.stdout)
    }

    @Test func fetchPrintsATable() throws {
        let output = try sandbox.certprov(["fetch", "--out", sandbox.path + "/out"] + client).expect(stderr: "")
        let lines = output.stdout.split(separator: "\n")
        #expect(lines.count == 4 && lines[0].hasPrefix("PROVIDER") && lines[1].contains("store"))
        #expect(
            lines[2...].map(String.init) == ["certificate", "chain"].map { "\(sandbox.path)/out/current/\($0).pem" })
    }

    @Test func listShowsTheStoredOneOnceAndSaysWhatChanged() throws {
        let source = try sandbox.copy("a.p12", to: "client.p12")
        #expect(try sandbox.certprov(["fetch"] + adHoc(source)).status == 0)
        let same = try sandbox.certprov(["list", "--json"] + adHoc(source)).document("IdentityList")
        #expect(same["items"].array.count == 1 && same["items"][0]["stored"].bool == true)
        #expect(same["warnings"].array.isEmpty)

        _ = try sandbox.copy("b.p12", to: "client.p12")
        let changed = try sandbox.certprov(["list", "--json"] + adHoc(source)).document("IdentityList")
        #expect(changed["items"].array.map { $0["subject"].string } == ["CN=identity-a", "CN=identity-b"])
        #expect(changed["items"].array.map { $0["stored"].bool } == [true, false])
        #expect(changed["warnings"].array.count == 1)
        try sandbox.certprov(["list"] + adHoc(source)).expect(stderr: "'certprov fetch' reads it again")
    }

    @Test func listTellsAMissingPasswordFromAMissingFile() throws {
        let source = try sandbox.copy("a.p12", to: "client.p12")
        let secret = try sandbox.write(Fixtures.password, to: "secret")
        let arguments = ["list"] + adHoc(source, password: "file:\(secret)")
        #expect(try sandbox.certprov(["fetch"] + adHoc(source)).status == 0)
        unlink(secret)
        let withoutPassword = try sandbox.certprov(arguments)
        #expect(
            withoutPassword.status == 66 && !withoutPassword.stderr.contains("no longer exists"), "\(withoutPassword)")
        try sandbox.write(Fixtures.password, to: "secret")
        unlink(source)
        try sandbox.certprov(arguments).expect(66, stderr: "its file no longer exists")
    }

    @Test func deleteForgetsAndSucceedsWhenThereIsNothing() throws {
        #expect(try sandbox.certprov(["fetch"] + client).status == 0)
        let entry = try sandbox.entry()
        try sandbox.certprov(["delete", "--json"] + client).expectFailure("interactionRequired", status: 77)
        #expect(status(entry) != nil)
        for remark in ["", "no identity was stored"] {
            let output = try sandbox.certprov(["delete", "--yes"] + client).expect(stdout: "")
            #expect(remark.isEmpty ? output.stderr.isEmpty : output.stderr.contains(remark), "\(output)")
            #expect(status(entry) == nil)
        }
        let listed = try sandbox.certprov(["list", "--json"] + client).document("IdentityList")
        #expect(listed["items"].array.map { $0["stored"].bool } == [false])
        #expect(status(Fixtures.path("ec.p12")) != nil)
    }

    @Test func explainSaysWhoWouldAnswer() throws {
        let forecast = try sandbox.certprov(["explain", "--json"] + client).expect().document("Explanation")
        #expect(forecast["chosen"].string == "pkcs12")
        #expect(forecast["decisions"].array.map { $0["step"].string } == ["stored", "list"])
        #expect(forecast["decisions"].array.allSatisfy { $0["durationMilliseconds"].int != nil })
        #expect(status(sandbox.store) == nil)

        #expect(try sandbox.certprov(["fetch"] + client).status == 0)
        let after = try sandbox.certprov(["explain", "--json"] + client).document("Explanation")
        #expect(after["decisions"].array.map { $0["outcome"].string } == ["identity"])

        let failing = try sandbox.certprov(["explain"] + adHoc("/nonexistent.p12")).expect(stdout: "[fileNotFound]")
        #expect(failing.stdout.hasSuffix("chosen: none\n"))
        // A step without a reason leaves no blanks behind.
        #expect(!failing.stdout.contains(" \n"), "\(failing)")
    }

    @Test func providersDocumentsTheirParameters() throws {
        let output = try sandbox.certprov("providers", "--json")
        let items = try output.document("ProviderList")["items"].array
        let pkcs12 = try #require(items.first { $0["id"].string == "pkcs12" })
        let parameters = pkcs12["parameters"].array
        #expect(parameters.map { $0["name"].string } == ["path", "password-source", "alias", "usage", "renew-at"])
        #expect(parameters.map { $0["required"].bool } == [true, false, false, false, false])
        #expect(parameters[0]["default"].isNull)
        #expect(parameters[2]["needs"].array.isEmpty && parameters[2]["excludes"].array.isEmpty)
        let mdm = try #require(items.first { $0["id"].string == "mdm" })["parameters"].array
        func parameter(_ name: String) throws -> JSON { try #require(mdm.first { $0["name"].string == name }) }
        #expect(try parameter("client-id")["needs"].array.map { $0.string } == ["token-url"])
        #expect(try parameter("ca-identifier")["needs"].array.map { $0.string } == ["protocol=scep"])
        #expect(try parameter("bearer-source")["excludes"].array.map { $0.string } == ["token-url", "username"])
        let stores = try output.document("ProviderList")["keyStores"].array
        #expect(stores.map { $0["scheme"].string } == ["pkcs11", "store"])
        #expect(stores.first?["parameters"].array.map { $0["name"].string } == ["module-path", "timeout"])
        let text = try sandbox.certprov("providers").stdout
        #expect(text.contains("Needs protocol=scep.") && text.contains("Not with token-url or username."), "\(text)")
        #expect(text.contains("key store pkcs11: ") && text.contains("KeyStore.pkcs11.PARAMETER"), "\(text)")
        for name in ["path", "password-source", "alias"] { #expect(text.contains("  \(name) ")) }
    }

    /// Property files are written by these names: no release takes one back.
    @Test(arguments: [
        ("pkcs12", ["path", "password-source", "alias"]),
        ("pkcs11", ["uri", "pin-source", "module-path", "login", "delete-objects"]),
        (
            "mdm",
            [
                "protocol", "url", "trust-anchors", "ca-fingerprint", "pin", "pin-mode", "username", "password-source",
                "challenge-source", "bearer-source", "token-url", "client-id", "client-secret-source", "grant", "scope",
                "subject", "subject-alternative-names", "key-type", "key", "renew-at", "timeout",
            ]
        ),
    ])
    func namesThatPropertyFilesRelyOnAreThere(provider: String, names: [String]) throws {
        let items = try sandbox.certprov("providers", "--json").document("ProviderList")["items"].array
        let parameters = try #require(items.first { $0["id"].string == provider })["parameters"].array
        #expect(Set(names).subtracting(parameters.compactMap { $0["name"].string }).isEmpty)
    }

    struct CheckRow: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var fixture: String
        var password = "env:P12_PASSWORD"
        var status: Int32
        var severities: [String]
        var text: String
    }

    @Test(arguments: [
        CheckRow(
            testDescription: "all well", fixture: "ec.p12", status: 0, severities: ["ok", "ok", "ok"], text: "valid"),
        CheckRow(
            testDescription: "lives for five days", fixture: "soon.p12", status: 0, severities: ["ok", "ok", "ok"],
            text: "valid"),
        CheckRow(
            testDescription: "wrong password", fixture: "ec.p12", password: "env:HOME", status: 77,
            severities: ["ok", "ok", "error"], text: "password"),
        CheckRow(
            testDescription: "no password", fixture: "ec.p12", password: "env:UNSET", status: 78,
            severities: ["ok", "error", "error"], text: "not set"),
    ])
    func checkFindsWhatNeedsAPerson(row: CheckRow) throws {
        let source = try sandbox.copy(row.fixture, to: "client.p12")
        let output = try sandbox.certprov(["check", "--json"] + adHoc(source, password: row.password)).expect(
            row.status)
        let document = try output.document("CheckReport")
        #expect(document["ok"].bool == (row.status == 0))
        #expect(document["items"].array.map { $0["severity"].string } == row.severities, "\(document)")
        #expect(document["items"].array.last?["detail"].string?.contains(row.text) == true, "\(document)")
        let text = try sandbox.certprov(["check"] + adHoc(source, password: row.password))
        #expect(text.status == row.status && text.stdout.hasPrefix("RESULT  "), "\(text)")
    }

    struct UselessRow: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// Makes `leaf.key` and `leaf.pem`, and `chain.pem` if there are intermediates, with the functions of the script.
        var script: String
        /// The state that `list` shows; `nil` if the file has no identity.
        var state: String?
        var reason: String
    }

    @Test(
        "list and check call no identity valid that TLS or its peers refuse",
        arguments: [
            UselessRow(
                testDescription: "an EC certificate without digital signatures",
                script: "ec leaf; self leaf keyUsage=keyAgreement", state: "unusable",
                reason: "its key usage does not permit digital signatures"),
            UselessRow(
                testDescription: "id-RSASSA-PSS",
                script: "openssl genpkey -algorithm rsa-pss -out leaf.key; self leaf keyUsage=digitalSignature",
                state: "unusable", reason: "id-RSASSA-PSS"),
            UselessRow(
                testDescription: "three primes",
                script:
                    "rsa leaf -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_primes:3; self leaf keyUsage=digitalSignature",
                state: nil, reason: "more than two primes"),
            UselessRow(
                testDescription: "an intermediate for servers",
                script: "ec ca; authority 20 extendedKeyUsage=serverAuth; ec leaf; issue", state: "unusable",
                reason: "'CN=ca' in its chain does not permit TLS client authentication"),
            UselessRow(
                testDescription: "an expired intermediate",
                script: "ec ca; authority -1 keyUsage=keyCertSign; ec leaf; issue", state: "expired",
                reason: "'CN=ca' in its chain expired on"),
        ])
    func whatTLSRefusesIsNotValid(row: UselessRow) throws {
        let script = #"""
            cd "$1"
            ec() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out $1.key; }
            rsa() { name=$1; shift; openssl genpkey -algorithm RSA "$@" -out $name.key; }
            self() { openssl req -x509 -new -key $1.key -subj /CN=$1 -days 20 -addext "$2" -out $1.pem; }
            authority() { # DAYS EXTENSION
                printf 'basicConstraints=critical,CA:true\n%s\n' "$2" >ca.ext
                openssl req -new -key ca.key -subj /CN=ca -out ca.csr; ec root
                openssl req -x509 -new -key root.key -subj /CN=root -days 30 -out root.pem
                openssl x509 -req -in ca.csr -CA root.pem -CAkey root.key -set_serial 7 -days $1 -extfile ca.ext -out chain.pem
            }
            issue() {
                openssl req -new -key leaf.key -subj /CN=leaf -out leaf.csr
                printf 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n' >leaf.ext
                openssl x509 -req -in leaf.csr -CA chain.pem -CAkey ca.key -set_serial 8 -days 20 -extfile leaf.ext -out leaf.pem
            }
            """# + "\n\(row.script)\n" + #"""
                if [ -e chain.pem ]; then cat root.pem >>chain.pem; set -- -certfile chain.pem; else set --; fi
                openssl pkcs12 -export -inkey leaf.key -in leaf.pem "$@" -passout env:P12_PASSWORD -out client.p12
                """#
        try sandbox.shell(script, sandbox.path).require()
        let file = sandbox.path + "/client.p12"
        let list = try sandbox.certprov(["list", "--json"] + adHoc(file))
        #expect((list.status == 0) == (row.state != nil), "\(list)")
        let document = try list.document("IdentityList")
        #expect(document["items"].array.map { $0["status"].string } == (row.state.map { [$0] } ?? []), "\(list)")
        #expect(list.stdout.contains(row.reason), "\(list)")
        if let item = document["items"].array.first {
            #expect(item["chainLength"].int == (row.script.contains("issue") ? 2 : 1), "without the root: \(list)")
        }
        let check = try sandbox.certprov(["check", "--json"] + adHoc(file))
        #expect(check.status != 0, "\(check)")
        let items = try check.document("CheckReport")["items"].array
        let errors = items.filter { $0["severity"].string == "error" }
        #expect(errors.contains { $0["detail"].string?.contains(row.reason) == true }, "\(check)")
    }

    @Test("list and check say whether an identity is for the side of TLS that usage names")
    func theUsageIsSaid() throws {
        let script = """
            cd "$1"
            openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -keyout key -subj /CN=web -days 20 \
                -addext keyUsage=digitalSignature -addext extendedKeyUsage=serverAuth -out pem
            openssl pkcs12 -export -inkey key -in pem -passout env:P12_PASSWORD -out web.p12
            """
        try #require(try sandbox.shell(script, sandbox.path).status == 0)
        for (usage, isUsable) in [("client", false), ("server", true), ("both", false)] {
            let arguments = ["--json"] + adHoc(sandbox.path + "/web.p12", "--set", "usage=\(usage)")
            let list = try sandbox.certprov(["list"] + arguments)
            let item = try list.document("IdentityList")["items"][0]
            #expect(item["usage"].string == usage, "\(list)")
            #expect(item["status"].string == (isUsable ? "valid" : "unusable"), "\(list)")
            let reason =
                "it does not permit TLS client authentication, by its extended key usage, which usage=\(usage) needs"
            #expect(list.stdout.contains(reason) == !isUsable, "\(list)")
            let check = try sandbox.certprov(["check"] + arguments)
            #expect((check.status == 0) == isUsable, "\(check)")
            #expect(check.stdout.contains(isUsable ? "CN=web: valid for usage=server, until" : reason), "\(check)")
        }
    }

    @Test("check says what each file of trust anchors and revocation lists holds, and when it ends")
    func checkReadsTrustFiles() throws {
        let directory = try TemporaryDirectory()
        func openssl(_ arguments: String...) throws { try Subprocess.run(["openssl"] + arguments, in: directory.path) }
        try openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", "ca.key",
            "-out",
            "ca.pem", "-subj", "/CN=CA", "-days", "30")
        try directory.write([], to: "index")
        try directory.write("[ca]\ndefault_ca = x\n[x]\ndatabase = index\ndefault_md = sha256\n".utf8, to: "ca.cnf")
        func list(_ end: String, from start: String = "20260101000000Z") throws {
            try openssl(
                "ca", "-config", "ca.cnf", "-gencrl", "-keyfile", "ca.key", "-cert", "ca.pem", "-crl_lastupdate", start,
                "-crl_nextupdate", end, "-out", "crl.pem")
        }
        func day(_ days: Double) -> String {
            Date(timeIntervalSinceNow: days * 86400).formatted(.iso8601).filter { !"-:T".contains($0) }
        }
        let path = try sandbox.configure(
            "TrustAnchors=\(directory["ca.pem"])", "TrustAnchors.crl=\(directory["crl.pem"])",
            "Peers.allow=dns:*.example",
            to: "trust.properties")
        try list("20990101000000Z")
        let good = try sandbox.certprov("check", "--config", path).expect()
        #expect(good.stdout.contains("one certificate, 'CN=CA' until "), "\(good)")
        #expect(good.stdout.contains("0 certificates of 'CN=CA' are revoked, until 2099-01-01T00:00:00Z"), "\(good)")
        try list("20260201000000Z")
        // A list that is made each day, and holds for three, always ends within a week: it is late in its last third.
        for (start, status) in [(-0.1, 0), (-2.5, 66)] as [(Double, Int32)] {
            try list(day(start + 3), from: day(start))
            let output = try sandbox.certprov("check", "--expires-within", "7d", "--config", path).expect(status)
            #expect(output.stdout.contains("will soon be overdue") == (status == 66), "\(output)")
            #expect(try sandbox.certprov("check", "--config", path).status == 0)
        }
        try list("20260201000000Z")
        let overdue = try sandbox.certprov("check", "--config", path).expect(66, stdout: "The list is overdue")
        #expect(!overdue.stdout.contains("There is no revocation list"), "\(overdue)")
        // The list of another CA of this name.
        try list("20990101000000Z")
        try openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", "other.key",
            "-out",
            "ca.pem", "-subj", "/CN=CA", "-days", "30")
        try sandbox.certprov("check", "--config", path).expect(
            stdout: "There is no revocation list that 'CN=CA' has signed")
    }

    @Test func checkWarnsOfAFileThatEverybodyMayRead() throws {
        let source = try sandbox.copy("ec.p12", to: "it's mine.p12")
        chmod(source, 0o644)
        let output = try sandbox.certprov(["check", "--json"] + adHoc(source)).expect()
        #expect(output.stdout.contains("chmod o-r '\(sandbox.path)/it'\\\\''s mine.p12'"), "\(output)")
    }

    @Test(arguments: [("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1"), ("[::1]", "[::1]:1")])
    func checkTriesTheServersPort(host: String, address: String) throws {
        let path = try sandbox.configure(
            "Host=\(host)", "Port=1", "SecurityConfiguration=SSO", to: "clienthub.properties")
        let output = try sandbox.certprov("check", "--json", "--config", path).expect(69)
        let item = try output.document("CheckReport")["items"].array.last
        #expect(item?["code"].string == "unavailable" && item?["what"].string == "server \(address)", "\(output)")
    }

    @Test func checkReadsWhatAuthenticatesServers() throws {
        let settings =
            ConfigurationTests.good(Fixtures.path("ec.p12")) + [
                ("TrustAnchors", "/nonexistent.pem"), ("ApplicationId", "app"), ("Registration.pin", "/no-pin.pem"),
            ]
        let path = try sandbox.write(FileForm.properties.text(settings), to: "clienthub.properties")
        let items = try sandbox.certprov("check", "--json", "--config", path).document("CheckReport")["items"].array
        for what in ["TrustAnchors", "registration pin"] {
            #expect(items.first { $0["what"].string == what }?["code"].string == "fileNotFound", "\(items)")
        }
    }

    @Test(arguments: [
        ["username=u"], ["username=u", "password-source=prompt"], ["bearer-source=prompt"],
        ["token-url=https://localhost:1/token", "client-id=c"],
        ["proxy=http://localhost:1", "proxy-username=u"],
    ])
    func checkSaysThatAFirstEnrolmentAsksAPerson(parameters: [String]) throws {
        let arguments =
            ["protocol=est", "url=https://localhost:1", "subject=CN=x", "trust-anchors=\(Fixtures.path("ca.pem"))"]
            + parameters
        let output = try sandbox.certprov(
            ["check", "--json", "--provider", "mdm"] + arguments.flatMap { ["--set", $0] })
        let items = try output.document("CheckReport")["items"].array
        #expect(items.contains { $0["code"].string == "interactionRequired" }, "\(output)")
    }

    @Test func checkLooksAtWhatAnEnrolmentNeeds() throws {
        let authority = try sandbox.write("no certificate", to: "authority.pem")
        let arguments = [
            "check", "--json", "--provider", "mdm", "--set", "protocol=est", "--set", "url=https://127.0.0.1:1",
            "--set", "trust-anchors=\(authority)", "--set", "subject=CN=host", "--set", "proxy=none",
        ]
        let output = try sandbox.certprov(arguments)
        let items = try output.document("CheckReport")["items"].array
        func item(_ what: String) -> JSON? { items.first { $0["what"].string == what } }
        #expect(item("mdm url 127.0.0.1:1")?["code"].string == "unavailable", "\(output)")
        #expect(item("mdm trust-anchors")?["code"].string == "configurationInvalid", "\(output)")
        #expect(items.last?["severity"].string == "warning" && output.status != 0, "\(output)")
        for (pins, code) in [
            ("sha256/x", "configurationInvalid"), ("/nonexistent.pem", "fileNotFound"),
            ("sha256/\(String(repeating: "A", count: 43))=", nil),
        ] {
            let report = try sandbox.certprov(arguments + ["--set", "pin=\(pins)"]).document("CheckReport")
            let item = try #require(report["items"].array.first { $0["what"].string == "mdm pin" }, "\(report)")
            #expect(item["code"].string == code)
        }
        // Only the client's own certificate may be in a token.
        let uri = "pkcs11:token=device"
        let inToken = try sandbox.certprov(arguments + ["--set", "client-certificate=\(uri)"])
        #expect(!inToken.stdout.contains("mdm client-certificate"), "\(inToken)")
        let misplaced = try sandbox.certprov(
            arguments.map { $0.hasPrefix("trust-anchors=") ? "trust-anchors=\(uri)" : $0 })
        #expect(try misplaced.document("CheckReport")["items"].array.contains { $0["code"].string == "fileNotFound" })
        // A server behind a proxy is tried by it.
        let proxied = try sandbox.certprov(arguments.dropLast() + ["proxy=http://127.0.0.1:2"])
        #expect(
            proxied.stdout.contains("The connection to the proxy 127.0.0.1:2 ('proxy') cannot be made"), "\(proxied)")
    }

    @Test func checkRefusesAFileThatOthersMayChange() throws {
        let path = try sandbox.configure(to: "clienthub.properties")
        chmod(path, 0o644)
        #expect(try sandbox.certprov("check", "--config", path).status == 0)
        chmod(path, 0o666)
        try sandbox.certprov("check", "--config", path).expect(78, stdout: "chmod go-w")
    }

    /// `make test-release` runs this with the release build.
    @Test("Only a debug build leaves tokens and enrolment to plugins") func aReleaseHasNoSwitchForTests() throws {
        let list = try sandbox.certprov("providers", "--json", with: ["CERTPROV_TEST_PLUGINS": sandbox.path])
        let ids = try list.document("ProviderList")["items"].array.compactMap { $0["id"].string }
        #expect(ids.contains("pkcs12"))
        let isRelease = ProcessInfo.processInfo.environment["CERTPROV_TEST_PROGRAMS"] != nil
        #expect(ids.contains("pkcs11") == isRelease, "\(ids)")
    }

    @Test func sayingMoreShowsEveryStep() throws {
        #expect(try sandbox.certprov(["fetch"] + client).stderr.isEmpty)
        try sandbox.certprov(["fetch", "--force", "-v"] + client).expect(stderr: "pkcs12: get: identity")
    }
}
