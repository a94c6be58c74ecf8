import Foundation
import Glibc
import TestSupport
import Testing

/// Which configuration a command finds, and what it makes of one without mistakes.
@Suite struct ConfigurationUseTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    @Test("A .properties and a .plist file give the same list")
    func bothFormsGiveTheSame() throws {
        let settings = ConfigurationTests.good(Fixtures.path("ec.p12"))
        let outputs = try FileForm.allCases.map { form in
            let path = try sandbox.write(form.text(settings), to: "clienthub.\(form.rawValue)")
            return try sandbox.certprov("list", "--json", "--config", path)
        }
        #expect(outputs[0].status == 0 && outputs[0].stdout == outputs[1].stdout, "\(outputs)")
        #expect(try outputs[0].document("IdentityList")["items"].array.count == 1)
        // As without a file.
        #expect(try sandbox.certprov(["list", "--json"] + adHoc(Fixtures.path("ec.p12"))).stdout == outputs[0].stdout)
    }

    @Test("The property file is found by option, user and host, in this order")
    func isFoundWhereTheSpecificationSays() throws {
        mkdir(sandbox.path + "/config/certprov", 0o700)
        let names = ["a", "b", "ec"]
        let files = try zip(
            names, ["config/certprov/clienthub.plist", "config/certprov/clienthub.properties", "named"]
        ).map {
            let form: FileForm = $1.hasSuffix("plist") ? .plist : .properties
            return try sandbox.write(form.text(ConfigurationTests.good(Fixtures.path("\($0).p12"))), to: $1)
        }
        func alias(_ arguments: [String], _ variables: [String: String]) throws -> String? {
            let output = try sandbox.certprov(["list", "--json"] + arguments, with: variables)
            return try output.document("IdentityList")["items"][0]["alias"].string
        }
        #expect(try alias(["--config", files[2]], ["CERTPROV_CONFIG": "/nonexistent"]) == "ec")
        #expect(try alias([], ["CERTPROV_CONFIG": files[2]]) == "ec")
        #expect(try alias([], [:]) == "b")
        unlink(files[1])
        #expect(try alias([], [:]) == "a")
        #expect(try alias([], ["CERTPROV_CONFIG": ""]) == "a")
        // --provider and --set override a file that is named.
        let over = ["--provider", "pkcs12", "--set", "path=\(Fixtures.path("b.p12"))"]
        #expect(try alias(["--config", files[2]] + over, [:]) == "b")
        // Without such a file they stand alone: neither the file of the environment nor its parameters matter.
        let alone = over + ["--set", "password-source=env:P12_PASSWORD"]
        #expect(try alias(alone, ["CERTPROV_CONFIG": "/nonexistent"]) == "b")
        try sandbox.certprov(["list", "--json"] + over, with: ["CERTPROV_CONFIG": files[2]]).expect(
            77, about: "the password of the file was used")
        // One provider of a file, as the file has it.
        #expect(try alias(["--provider", "pkcs12"], ["CERTPROV_CONFIG": files[2]]) == "ec")
    }

    @Test(arguments: ["automatic", "manual", "none"]) func withoutAProviderThereIsNothingToFetch(policy: String) throws
    {
        var settings = ConfigurationTests.good(Fixtures.path("ec.p12"))
        if policy == "none" {
            settings = Array(settings[..<3])
        } else {
            settings.append(("UserCreationPolicy", policy))
        }
        let path = try sandbox.write(FileForm.properties.text(settings), to: "c.properties")
        for more in policy == "none" ? [[]] : [[], ["--provider", "pkcs12"]] {
            var messages: Set<String> = []
            for command in [["list"], ["fetch"], ["explain"], ["delete", "--yes"]] {
                let output = try sandbox.certprov(command + ["--json", "--config", path] + more)
                messages.insert(try output.expectFailure("noCertificateProvider", status: 78))
            }
            let check = try sandbox.certprov(["check", "--json", "--config", path] + more).expect(78)
            let errors = try check.document("CheckReport")["items"].array.filter { $0["severity"].string == "error" }
            messages.insert(errors.first?["detail"].string ?? "")
            // All name the same remedy.
            let remedy =
                policy == "none"
                ? "set CertificateProvider to"
                : "UserCreationPolicy is \(policy): the application registers by a password"
            #expect(messages.count == 1 && messages.first?.contains(remedy) == true, "\(messages)")
        }
    }

    @Test func unknownKeysAreOnlyAWarning() throws {
        let settings = ConfigurationTests.good(Fixtures.path("ec.p12")) + [("PushURL", "x"), ("PushKey", "y")]
        let path = try sandbox.write(FileForm.properties.text(settings), to: "c.properties")
        let output = try sandbox.certprov("list", "--config", path).expect()
        let lines = output.stderr.split(separator: "\n")
        #expect(lines.count == 2 && lines[0].contains("\(path):7: ") && lines[1].contains("\(path):8: "), "\(output)")
        let json = try sandbox.certprov("list", "--json", "--config", path).expect(stderr: "")
        let warnings = try json.document("IdentityList")["warnings"].array.compactMap(\.string)
        #expect(lines.map { $0.dropFirst("certprov: ".count) } == warnings.map { $0[...] }, "\(warnings)")
        // Its table says them, so that nothing is left to say beside it.
        let check = try sandbox.certprov("check", "--config", path)
        #expect(check.stderr.isEmpty && check.stdout.components(separatedBy: "PushURL").count == 2, "\(check)")
    }

    @Test("Control characters in a property file do not reach the terminal")
    func nothingInAConfigurationSteersTheTerminal() throws {
        let settings =
            ConfigurationTests.good(Fixtures.path("ec.p12")).dropFirst(2)
            + [("Host", #"a\u001b[31mb"#), ("Port", "1")]
        let path = try sandbox.write(FileForm.properties.text(Array(settings)), to: "c\u{1b}[31m.properties")
        for arguments in [["check"], ["list"], ["list", "--provider", "pkcs12"]] {
            let output = try sandbox.certprov(arguments + ["--config", path])
            #expect(!output.description.contains("\u{1b}"), "\(output)")
        }
        let none = try sandbox.write("Host=a\n", to: "n\u{1b}[31m.properties")
        let output = try sandbox.certprov("list", "--provider", "pkcs12", "--config", none)
        #expect(output.status == 78 && !output.stderr.contains("\u{1b}"), "\(output)")
    }
}
