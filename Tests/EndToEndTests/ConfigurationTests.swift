import Foundation
import Glibc
import TestSupport
import Testing

/// Mistakes in property files, as a person meets them through the command.
@Suite struct ConfigurationTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// A working configuration, with one line changed or added.
    struct Mistake: Sendable, CustomTestStringConvertible {
        var testDescription: String { "\(key)=\(value)" }
        var key: String
        var value: String
        /// Counted from the first setting.
        var line: Int
        var text: String
    }

    static func good(_ path: String) -> [(String, String)] {
        [
            ("Host", "smp.example"), ("Port", "8082"), ("SecurityConfiguration", "SSO"),
            ("CertificateProvider", "pkcs12"), ("CertificateProvider.pkcs12.path", path),
            ("CertificateProvider.pkcs12.password-source", "env:P12_PASSWORD"),
        ]
    }

    /// Further ones are in `LogonConfigurationTests`.
    static let mistakes = [
        Mistake(key: "Host", value: "again.example", line: 7, text: "'Host'"),
        Mistake(key: "Port", value: "0", line: 2, text: "'Port'"),
        Mistake(key: "CertificateProvider.pkcs12.pasword-source", value: "prompt", line: 7, text: "password-source"),
        Mistake(key: "CertificateProvider.pkcs12.password-source", value: "s3cret", line: 6, text: "file:PATH"),
    ]

    @Test(arguments: FileForm.allCases, mistakes)
    func namesFileLineAndKey(form: FileForm, mistake: Mistake) throws {
        var settings = Self.good(Fixtures.path("ec.p12"))
        if mistake.line > settings.count {
            settings.append((mistake.key, mistake.value))
        } else {
            settings[mistake.line - 1].1 = mistake.value
        }
        let path = try sandbox.write(form.text(settings), to: "clienthub.\(form.rawValue)")
        let place = "\(path):\(form.firstLine + mistake.line - 1): "
        for command in [["list"], ["fetch"], ["delete", "--yes"], ["explain"]] {
            let output = try sandbox.certprov(command + ["--json", "--config", path])
            let message = try output.expectFailure("configurationInvalid", status: 78)
            #expect(message.hasPrefix(place) && message.contains(mistake.text), "\(message)")
            let name = mistake.key.split(separator: ".").last.map(String.init) ?? mistake.key
            #expect(message.contains(mistake.key) || message.contains("'\(name)'"), "\(message)")
            #expect(!output.stderr.contains("s3cret"))
        }
        let check = try sandbox.certprov("check", "--json", "--config", path).expect(78)
        #expect(try check.document("CheckReport")["items"].array.map { $0["severity"].string }.contains("error"))
        #expect(status(sandbox.store) == nil)
    }

    struct BadFile: Sendable, CustomTestStringConvertible {
        let testDescription, name, code, text: String
        /// Makes it at `$FILE`.
        let script: String

        init(_ about: String, _ name: String, code: String = "configurationInvalid", _ text: String, _ script: String) {
            (testDescription, self.name, self.code, self.text, self.script) = (about, name, code, text, script)
        }
    }

    @Test(arguments: [
        BadFile("bad escape", "c.properties", "FILE:2: ", #"printf 'Host=a\nDomain=\\u12g4\n' >$FILE"#),
        BadFile("escape that means nothing", "c.properties", "FILE:1: ", #"printf 'Host=\\q\n' >$FILE"#),
        BadFile("no key", "c.properties", "FILE:3: ", #"printf '\n\n=x\n' >$FILE"#),
        BadFile(
            "invalid UTF-8", "c.properties", "FILE:2: The text is not UTF-8", #"printf 'Host=a\nDomain=\351\n' >$FILE"#),
        BadFile(
            "invalid UTF-8 in a property list", "c.plist", "FILE:3: The text is not UTF-8",
            #"printf '<plist><dict>\n<key>Host</key>\n<string>\351</string>\n</dict></plist>' >$FILE"#),
        BadFile("binary file", "c.properties", "FILE:", "cp /bin/true $FILE"),
        BadFile("binary property list", "c.plist", "FILE:", #"printf 'bplist00\000' >$FILE"#),
        BadFile("element left open", "c.plist", "FILE:", #"printf '<plist><dict>\n<key>Host</key>\n<string>a' >$FILE"#),
        BadFile(
            "entity bomb", "c.plist", "FILE:",
            #"printf '<!DOCTYPE plist [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<plist><dict><key>Host</key><string>&b;</string></dict></plist>' >$FILE"#
        ),
        BadFile("empty property list", "c.plist", "FILE", ": >$FILE"),
        BadFile("sparse gigabyte", "c.properties", "the limit is 1048576 bytes", "truncate -s 1G $FILE"),
        BadFile("sparse gigabyte of property list", "c.plist", "the limit is 1048576 bytes", "truncate -s 1G $FILE"),
        BadFile("directory", "c.properties", "a directory", "mkdir $FILE"),
        BadFile("pipe", "c.plist", "a named pipe", "mkfifo $FILE"),
        BadFile("link to itself", "c.properties", "symbolic links", "ln -s $FILE $FILE"),
        BadFile(
            "missing", "c.properties", code: "configurationMissing", "FILE: The configuration file does not exist", ":"),
        BadFile(
            "missing property list", "c.plist", code: "configurationMissing",
            "FILE: The configuration file does not exist", ":"),
    ])
    func refusesWhatIsNoConfiguration(bad: BadFile) throws {
        let path = sandbox.path + "/" + bad.name
        try sandbox.shell(bad.script, with: ["FILE": path]).require()
        for (arguments, variables) in [(["--config", path], [:]), ([], ["CERTPROV_CONFIG": path])] {
            let output = try sandbox.certprov(["list", "--json"] + arguments, with: variables)
            let message = try output.expectFailure(bad.code, status: 78)
            #expect(message.contains(bad.text.replacingOccurrences(of: "FILE", with: path)), "\(message)")
            #expect(message.hasPrefix(path), "\(message)")
        }
    }

    @Test func saysThatAFileMayNotBeRead() throws {
        let path = try sandbox.write("Host=a\n", to: "c.properties", mode: 0)
        chmod(sandbox.path, 0o755)
        let user = geteuid() == 0 ? ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] : []
        guard try sandbox.run(user + [BuiltCommand.path, "--version"]).status == 0 else {
            return print("ConfigurationTests: no other user can be had, so an unreadable file is NOT TESTED.")
        }
        let output = try sandbox.run(user + [BuiltCommand.path, "list", "--json", "--config", path])
        let message = try output.expectFailure("configurationInvalid", status: 78)
        #expect(message.hasPrefix(path) && message.contains("Permission denied"), "\(message)")
    }
}
