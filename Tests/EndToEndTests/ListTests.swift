import Foundation
import Glibc
import TestSupport
import Testing

@Suite struct ListTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Returns the output of `openssl x509` about a leaf, in the command's words.
    private func openssl(_ name: String, _ options: String...) throws -> String {
        let output = try sandbox.run(["openssl", "x509", "-in", Fixtures.path("\(name).pem"), "-noout"] + options)
            .require()
        return output.stdout.trimmingCharacters(in: .newlines)
    }

    private func afterEquals(_ text: String) -> String {
        String(text[text.index(after: text.firstIndex(of: "=") ?? text.startIndex)...])
    }

    /// `Nov 21 07:41:00 2025 GMT` as RFC 3339.
    private func time(_ text: String) throws -> String {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = TimeZone(identifier: "UTC")
        format.dateFormat = "MMM d HH:mm:ss yyyy 'GMT'"
        let date = try #require(format.date(from: text.replacingOccurrences(of: "  ", with: " ")), "\(text)")
        return date.formatted(.iso8601)
    }

    /// The plainest form of the options is read without the parser.
    @Test func optionsMeanTheSameInEveryForm() throws {
        let path = Fixtures.path("ec.p12")
        let secret = "password-source=env:P12_PASSWORD"
        let plain = try sandbox.certprov(
            ["list", "--json", "--provider", "pkcs12", "--set", "path=\(path)", "--set", secret]).expect(
                stdout: "\"IdentityList\"")
        for form in [
            ["--provider=pkcs12", "--set=path=\(path)", "--set=\(secret)", "--json"],
            ["-v", "--provider", "pkcs12", "--set", "path=\(path)", "--set", secret, "--json"],
        ] {
            let output = try sandbox.certprov(["list"] + form)
            #expect(output.status == 0 && output.stdout == plain.stdout, "\(form): \(output)")
        }
    }

    @Test(arguments: [
        ["--set", "path=/x"], ["--provider", "pkcs12", "--set", "path"], ["--config"], ["--set", "--json"],
        ["file.p12"], ["--json", "yes"], ["--provider", "pkcs12", "--bogus", "x"], ["--out", "x"],
    ])
    func optionsThatMakeNoSenseAreRefused(options: [String]) throws {
        let output = try sandbox.certprov(["list"] + options).expect(64, stdout: "")
        #expect(output.stderr.contains(options.contains("--json") ? "\"usage\"" : "certprov list --help"), "\(output)")
    }

    @Test(
        "An option that takes one value is refused if it is given twice",
        arguments: [
            ["--config", "a", "--config", "b"], ["--config=a", "--config=a"],
            ["--provider", "pkcs12", "--provider=mdm"],
            ["--json", "--uri", "pkcs11:token=a", "--uri", "pkcs11:token=b"],
        ])
    func anOptionThatIsGivenTwiceIsRefused(options: [String]) throws {
        try sandbox.certprov(["list"] + options).expect(64, stdout: "", stderr: "is given twice")
    }

    @Test func aFlagMayBeRepeated() throws {
        try sandbox.certprov(["list", "--json", "--json"] + adHoc(Fixtures.path("ec.p12"))).expect()
    }

    struct Row: Sendable, CustomTestStringConvertible {
        var name, algorithm: String
        var curve: String?
        var bits: Int
        var testDescription: String { name }
    }

    @Test(arguments: [
        Row(name: "ec", algorithm: "EC", curve: "P-256", bits: 256),
        Row(name: "p384", algorithm: "EC", curve: "P-384", bits: 384),
        Row(name: "ed25519", algorithm: "Ed25519", curve: nil, bits: 256),
        Row(name: "rsa", algorithm: "RSA", curve: nil, bits: 2048),
        Row(name: "legacy", algorithm: "RSA", curve: nil, bits: 2048),
    ])
    func saysWhatOpenSSLSays(row: Row) throws {
        let output = try sandbox.certprov(["list", "--json"] + adHoc(Fixtures.path("\(row.name).p12"))).expect(
            stderr: "")
        let document = try output.document("IdentityList")
        #expect(document.keys == ["apiVersion", "errors", "items", "kind", "warnings"])
        #expect(document["items"].array.count == 1 && document["errors"].array.isEmpty)
        let item = document["items"][0]
        #expect(
            item.keys == [
                "alias", "chainLength", "expires", "issuer", "key", "notAfter", "notBefore", "provider", "serialNumber",
                "sha256Fingerprint", "status", "stored", "subject", "subjectAlternativeNames", "usage",
            ])
        #expect(item["provider"].string == "pkcs12")
        #expect(item["alias"].string == row.name)
        #expect(item["stored"].bool == false)
        #expect(item["status"].string == "valid")
        #expect(item["chainLength"].int == 2)
        #expect(item["key"]["algorithm"].string == row.algorithm)
        #expect(item["key"]["parameters"].string == row.curve)
        #expect(item["key"]["bits"].int == row.bits)
        #expect(item["key"]["location"].string == "file")
        #expect(item["key"]["exportable"].bool == true)
        #expect(item["key"]["uri"].isNull)

        // RFC 2253's output without escaping of non-ASCII characters is RFC 4514's.
        let form = "RFC2253,-esc_msb,utf8"
        #expect(item["subject"].string == afterEquals(try openssl(row.name, "-subject", "-nameopt", form)))
        #expect(item["issuer"].string == afterEquals(try openssl(row.name, "-issuer", "-nameopt", form)))
        let fingerprint = afterEquals(try openssl(row.name, "-fingerprint", "-sha256"))
        #expect(item["sha256Fingerprint"].string == fingerprint.replacingOccurrences(of: ":", with: "").lowercased())
        #expect(item["serialNumber"].string == afterEquals(try openssl(row.name, "-serial")).lowercased())
        #expect(item["notBefore"].string == (try time(afterEquals(openssl(row.name, "-startdate")))))
        #expect(item["notAfter"].string == (try time(afterEquals(openssl(row.name, "-enddate")))))
        #expect(item["expires"].string == item["notAfter"].string)
        #expect(
            item["subjectAlternativeNames"].array.map(\.string) == [
                "dns:\(row.name).example", "email:\(row.name)@example.org", "ip:192.0.2.7", "ip:2001:db8::7",
                "uri:urn:x:\(row.name)",
            ])
    }

    @Test func printsATable() throws {
        let output = try sandbox.certprov(["list"] + adHoc(Fixtures.path("rsa.p12"))).expect(stderr: "")
        let lines = output.stdout.split(separator: "\n")
        #expect(lines.count == 2)
        let columns = lines.map { $0.split(separator: " ").map(String.init) }
        #expect(columns[0] == ["PROVIDER", "ALIAS", "SUBJECT", "KEY", "IN", "EXPIRES", "STATUS"])
        #expect(columns[1][...2] == ["pkcs12", "rsa", "CN=rsa"] && columns[1].last == "valid", "\(columns)")
        #expect(!lines.contains { $0.hasSuffix(" ") })
    }

    @Test func takesAnEmptyPassword() throws {
        for password in [[], ["--set", "password-source=env:EMPTY"]] {
            let arguments = ["list", "--json", "--provider", "pkcs12", "--set", "path=\(Fixtures.path("empty.p12"))"]
            let output = try sandbox.certprov(arguments + password, with: ["EMPTY": ""]).expect()
            #expect(try output.document("IdentityList")["items"][0]["alias"].string == "plain")
        }
    }

    @Test(arguments: [true, false]) func goesOnPastFilesThatFail(json: Bool) throws {
        mkdir(sandbox.path + "/p12", 0o700)
        _ = try sandbox.copy("a.p12", to: "p12/3-good.p12")
        _ = try sandbox.copy("b.p12", to: "p12/5-good.PFX")
        _ = try sandbox.copy("empty.p12", to: "p12/4-other-password.p12")
        try sandbox.write("not a file of that kind", to: "p12/2-damaged.p12")
        try sandbox.write("passed over", to: "p12/1-notes.txt")
        let output = try sandbox.certprov(["list"] + (json ? ["--json"] : []) + adHoc(sandbox.path + "/p12"))
        // The first failure's: malformedData, and not wrongPassword.
        #expect(output.status == 65, "\(output)")
        if json {
            let document = try output.document("IdentityList")
            #expect(document["items"].array.map { $0["subject"].string } == ["CN=identity-a", "CN=identity-b"])
            #expect(document["errors"].array.map { $0["code"].string } == ["malformedData", "wrongPassword"])
            let told = try output.errorDocuments()
            for key in ["code", "provider", "message"] {
                #expect(told.map { $0[key].string } == document["errors"].array.map { $0[key].string })
            }
        } else {
            #expect(output.stdout.contains("identity-a") && output.stdout.contains("identity-b"))
            let lines = output.stderr.split(separator: "\n")
            #expect(lines.count == 2 && lines[0].contains("2-damaged") && lines[0].hasSuffix("[malformedData]"))
            #expect(
                lines.last?.contains("4-other-password") == true && lines.last?.hasSuffix("[wrongPassword]") == true)
        }
    }

    struct Failure: Sendable, CustomTestStringConvertible {
        let testDescription, code: String
        let status: Int32
        let arguments: [String]

        init(_ about: String, _ code: String, _ status: Int32, _ arguments: [String]) {
            (testDescription, self.code, self.status, self.arguments) = (about, code, status, arguments)
        }
    }

    @Test(arguments: [
        Failure("wrong password", "wrongPassword", 77, adHoc(Fixtures.path("a.p12"), password: "env:HOME")),
        Failure("no file", "fileNotFound", 66, adHoc("/nonexistent.p12")),
        Failure("not PKCS#12", "malformedData", 65, adHoc(Fixtures.path("a.pem"))),
        Failure("no such alias", "notFound", 66, adHoc(Fixtures.path("a.p12"), "--set", "alias=b")),
        Failure("a device", "configurationInvalid", 78, adHoc("/dev/zero")),
        Failure("no provider of that name", "configurationInvalid", 78, ["--provider", "nosuch", "--set", "a=b"]),
        Failure("no such parameter", "unsupportedParameter", 78, adHoc(Fixtures.path("a.p12"), "--set", "x=y")),
        Failure("no configuration", "configurationMissing", 78, []),
    ])
    func failsWithOneErrorObject(row: Failure) throws {
        try sandbox.certprov(["fetch", "--json"] + row.arguments).expectFailure(row.code, status: row.status)
        let text = try sandbox.certprov(["fetch"] + row.arguments).expect(row.status, stdout: "")
        #expect(text.stderr.hasPrefix("certprov: ") && text.stderr.hasSuffix("[\(row.code)]\n"), "\(text)")
    }

    @Test(arguments: [
        ["list", "--no-such-option"], ["list", "--set", "path=x"], ["fetch", "--export-key"], ["nosuch"],
        ["list", "--provider", "pkcs12", "--set", "path"], ["list", "extra"],
    ])
    func saysHowItIsUsed(arguments: [String]) throws {
        let output = try sandbox.certprov(arguments)
        #expect(output.status == 64 && output.stdoutBytes.isEmpty && !output.stderr.isEmpty, "\(output)")
        // Scripts read the reason in the form that they read everything in.
        try sandbox.certprov(arguments + ["--json"]).expectFailure("usage", status: 64)
    }

    @Test(arguments: ["list", "fetch", "connect"]) func everySubcommandHasTheVersion(command: String) throws {
        let (output, root) = (try sandbox.certprov(command, "--version"), try sandbox.certprov("--version"))
        #expect(output.status == 0 && output.stdout == root.stdout, "\(output)")
    }

    /// Read as text it would be the name of another file.
    @Test func anArgumentThatIsNotTextIsRefused() throws {
        for arguments in [
            #"list --config "$(printf '/tmp/\351')""#, #"connect a:1 --config "$(printf '\351')""#,
            #"fetch --provider mdm --out "$(printf '\351')""#,
        ] {
            let output = try sandbox.shell("\"$CERTPROV\" \(arguments)")
            #expect(output.status == 64 && output.stderr.hasPrefix("certprov: Argument "), "\(output)")
            let position =
                ["list": "Argument 3 ", "conn": "Argument 4 ", "fetc": "Argument 5 "][arguments.prefix(4)] ?? ""
            #expect(output.stderr.contains(position), "\(output)")
            try sandbox.shell("\"$CERTPROV\" \(arguments) --json").expectFailure("usage", status: 64)
        }
    }
}
