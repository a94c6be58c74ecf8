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
        let check = try sandbox.certprov("check", "--json", "--config", path)
        #expect(check.status == 78, "\(check)")
        #expect(try check.document("CheckReport")["items"].array.map { $0["severity"].string }.contains("error"))
        #expect(status(sandbox.store) == nil)
    }

    struct BadFile: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var name: String
        var code = "configurationInvalid"
        var text: String
        /// Makes it at `$FILE`.
        var script: String
    }

    @Test(arguments: [
        BadFile(
            testDescription: "bad escape", name: "c.properties", text: "FILE:2: ",
            script: #"printf 'Host=a\nDomain=\\u12g4\n' >$FILE"#),
        BadFile(
            testDescription: "escape that means nothing", name: "c.properties", text: "FILE:1: ",
            script: #"printf 'Host=\\q\n' >$FILE"#),
        BadFile(
            testDescription: "no key", name: "c.properties", text: "FILE:3: ", script: #"printf '\n\n=x\n' >$FILE"#),
        BadFile(
            testDescription: "invalid UTF-8", name: "c.properties", text: "FILE:2: The text is not UTF-8",
            script: #"printf 'Host=a\nDomain=\351\n' >$FILE"#),
        BadFile(
            testDescription: "invalid UTF-8 in a property list", name: "c.plist", text: "FILE:3: The text is not UTF-8",
            script: #"printf '<plist><dict>\n<key>Host</key>\n<string>\351</string>\n</dict></plist>' >$FILE"#),
        BadFile(
            testDescription: "binary file", name: "c.properties", text: "FILE:", script: "cp /bin/true $FILE"),
        BadFile(
            testDescription: "binary property list", name: "c.plist", text: "FILE:",
            script: #"printf 'bplist00\000' >$FILE"#),
        BadFile(
            testDescription: "element left open", name: "c.plist", text: "FILE:",
            script: #"printf '<plist><dict>\n<key>Host</key>\n<string>a' >$FILE"#),
        BadFile(
            testDescription: "entity bomb", name: "c.plist", text: "FILE:",
            script:
                #"printf '<!DOCTYPE plist [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<plist><dict><key>Host</key><string>&b;</string></dict></plist>' >$FILE"#
        ),
        BadFile(testDescription: "empty property list", name: "c.plist", text: "FILE", script: ": >$FILE"),
        BadFile(
            testDescription: "sparse gigabyte", name: "c.properties", text: "the limit is 1048576 bytes",
            script: "truncate -s 1G $FILE"),
        BadFile(
            testDescription: "sparse gigabyte of property list", name: "c.plist",
            text: "the limit is 1048576 bytes",
            script: "truncate -s 1G $FILE"),
        BadFile(testDescription: "directory", name: "c.properties", text: "a directory", script: "mkdir $FILE"),
        BadFile(testDescription: "pipe", name: "c.plist", text: "a named pipe", script: "mkfifo $FILE"),
        BadFile(
            testDescription: "link to itself", name: "c.properties", text: "symbolic links", script: "ln -s $FILE $FILE"
        ),
        BadFile(
            testDescription: "missing", name: "c.properties", code: "configurationMissing",
            text: "FILE: The configuration file does not exist",
            script: ":"),
        BadFile(
            testDescription: "missing property list", name: "c.plist", code: "configurationMissing",
            text: "FILE: The configuration file does not exist", script: ":"),
    ])
    func refusesWhatIsNoConfiguration(bad: BadFile) throws {
        let path = sandbox.path + "/" + bad.name
        let made = try sandbox.shell(bad.script, with: ["FILE": path])
        try #require(made.status == 0, "\(made)")
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
