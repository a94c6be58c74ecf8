import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import Logon

/// Variables of property files that say something of the host.
@Suite struct HostVariablesTests {
    private let folder: TemporaryDirectory

    init() throws { folder = try TemporaryDirectory() }

    private func host(
        _ name: String = "web", _ environment: [String: String] = [:], hosts: String = "127.0.1.1 web.example web\n"
    ) throws -> HostFacts {
        var facts = HostFacts()
        facts.nodeName = { name }
        facts.environment = { environment[$0] }
        facts.etc = folder.path
        try folder.write(hosts.utf8, to: "hosts")
        try folder.write("0123456789abcdef0123456789abcdef\n".utf8, to: "machine-id")
        return facts
    }

    private func expand(
        _ text: String, _ kind: ParameterDescriptor.Kind, _ facts: HostFacts
    ) throws -> String { try HostVariables(host: facts).expand(text, as: kind) }

    private func refusal(
        _ text: String, _ kind: ParameterDescriptor.Kind, _ facts: HostFacts
    ) -> String? {
        do { return "no error: \(try expand(text, kind, facts))" } catch {
            return (error as? HostVariables.Problem)?.reason
        }
    }

    @Test(arguments: [
        ("CN=%{host},O=Example", ParameterDescriptor.Kind.distinguishedName, "CN=web,O=Example"),
        ("dns:%{fqdn}, dns:%{host}.internal", .names, "dns:web.example, dns:web.internal"),
        ("https://ca.example/%{host}", .serverURL, "https://ca.example/web"),
        ("CN=%%{host},O=100%", .distinguishedName, "CN=%{host},O=100%"),
        ("pkcs11:token=a%20b", .string, "pkcs11:token=a%20b"),
        ("100%% %", .path, "100% %"),
    ]) func aVariableIsReplaced(text: String, kind: ParameterDescriptor.Kind, result: String) throws {
        #expect(try expand(text, kind, host()) == result)
    }

    @Test(
        "The name with a domain is the kernel's, or that of /etc/hosts",
        arguments: [
            ("web.example.com", "127.0.0.1 localhost\n", "web.example.com"),
            (
                "web", "::1 localhost\n10.0.0.1\tother.example other # web.evil web\n127.0.1.1 web.example web\n",
                "web.example"
            ),
        ]) func theFullName(name: String, hosts: String, result: String) throws
    {
        #expect(try expand("%{fqdn}", .names, host(name, hosts: hosts)) == result)
        #expect(try expand("%{host}", .names, host(name, hosts: hosts)) == "web")
    }

    @Test(
        "Without a domain there is no full name",
        arguments: [
            "127.0.0.1 localhost web\n", "127.0.0.1 example.web web\n", "127.0.0.1 web.1 web\n",
            "127.0.0.1 web.a,b web\n", "127.0.0.1 web.a+b web\n", "127.0.0.1 web.a\"b web\n",
            "127.0.0.1 web.a\0b web\n",
            "127.0.0.1 web.\(String(repeating: "a", count: 300)) web\n", "",
        ]) func noFullName(hosts: String) throws
    {
        #expect(try refusal("%{fqdn}", .names, host(hosts: hosts))?.contains("no name with a domain") == true)
    }

    @Test(
        "A host's name that is none, or not its own, is an error",
        arguments: [
            "a,CN=b", "a+b", "a\"b", "a\\b", "a b", "a\0b", "*", "*.example.com", "(none)", "localhost",
            "LOCALHOST.localdomain", "",
            ".", "-a", "a_b", "ä", String(repeating: "a", count: 64), String(repeating: "a", count: 300), "a\nb",
            Array(repeating: "aaaaaaaaa", count: 26).joined(separator: "."),
        ]) func aBadHostName(name: String) throws
    {
        for (text, kind) in [
            ("CN=%{host}", ParameterDescriptor.Kind.distinguishedName), ("dns:%{fqdn}", .names),
            ("https://x/%{host}", .serverURL),
        ] {
            let reason = try #require(try refusal(text, kind, host(name)))
            #expect(!reason.hasPrefix("no error"), "\(reason)")
        }
    }

    @Test(
        "In a distinguished name, a value is one value, as OpenSSL judges too",
        arguments: [
            "a,CN=b", "a+CN=b", "a\"b", "a\\", "a;b", "<a>", "#04026869", "a=b", "ä,b", "a, O=x",
        ]) func aValueIsQuoted(value: String) async throws
    {
        let text = try expand("CN=%{env:NAME},O=Example", .distinguishedName, host("web", ["NAME": value]))
        let request = try await CertificateRequest(
            CertificateRequest.Names(subject: text), key: SoftwareKey.generate(.p256, location: .file))
        try folder.write(request.derRepresentation, to: "request.der")
        let shown = try Subprocess.run([
            "openssl", "req", "-inform", "DER", "-in", folder.path + "/request.der", "-noout", "-subject", "-nameopt",
            "multiline,utf8,-esc_msb,-esc_ctrl",
        ])
        let lines = String(decoding: shown, as: UTF8.self).split(separator: "\n").dropFirst()
        #expect(lines.count == 2 && lines.contains { $0.hasSuffix("= \(value)") }, "\(lines)")
    }

    @Test(
        "In a list of names, a value with a special character is refused",
        arguments: [
            "a,dns:b", "a b", "a\"b", "*.example", "a/b", "a%b", "ä", "a\\b", "a#b", "a?b", "a+b",
        ]) func aListGetsNoName(value: String) throws
    {
        let reason = try refusal("dns:%{env:NAME}", .names, host("web", ["NAME": value]))
        #expect(
            reason
                == "has a variable with a character that a value of the kind names cannot have, in column 5 of its value"
        )
    }

    @Test(arguments: [
        ("a/b?c", "a%2Fb%3Fc"), ("ä ", "%C3%A4%20"), ("a@b:1", "a%40b%3A1"), ("%2e", "%252e"), ("a~b.-_", "a~b.-_"),
    ])
    func inAURLItIsPercentEncoded(value: String, result: String) throws {
        #expect(try expand("https://x/%{env:N}", .serverURL, host("web", ["N": value])) == "https://x/" + result)
    }

    @Test(
        "A variable that is unknown, empty or has several lines is an error",
        arguments: [
            ("%{hostname}", "unknown variable"), ("%{}", "unknown variable"), ("%{host", "without its }"),
            ("a%{env:EMPTY}", "is empty, in column 2 of its value"), ("%{env:NONE}", "not set"),
            ("%{env:LINES}", "several lines"),
            ("%{env:LONG}", "more than 256 bytes"), ("%{env:A B}", "no variable has"),
            ("%{env:BIDI}", "control character"),
            ("%{file:relative}", "not absolute"), ("%{file:/nonexistent}", "does not exist"),
            ("%{file:/dev/null}", "not a regular file"),
        ]) func aVariableIsRefused(text: String, reason: String) throws
    {
        let facts = try host(
            "web", ["EMPTY": "", "LINES": "a\nb", "LONG": String(repeating: "a", count: 257), "BIDI": "a\u{202e}b"])
        for kind in [ParameterDescriptor.Kind.distinguishedName, .names, .serverURL] {
            #expect(try #require(refusal(text, kind, facts)).contains(reason))
        }
    }

    @Test("Paths, programs, trust and sources of secrets take no variable", arguments: ParameterDescriptor.Kind.known)
    func otherKindsTakeNone(kind: ParameterDescriptor.Kind) throws {
        let takes = [.distinguishedName, .names, .serverURL].contains(kind)
        let reason = try refusal("file:/run/%{host}", kind, host())
        #expect(
            reason
                == (takes
                    ? "no error: file:/run/web" : "takes no host variable; write %%{ for %{, in column 11 of its value")
        )
    }

    @Test func aFileOfTheHostHasAValue() throws {
        var facts = try host()
        let path = try folder.write("SN 42\n".utf8, to: "serial", mode: 0o644)
        facts.privateDirectories = [folder.path + "/state"]
        #expect(try expand("CN=%{file:\(path)}", .distinguishedName, facts) == "CN=SN\\2042")
        try folder.write("a\nb\n".utf8, to: "serial", mode: 0o644)
        #expect(refusal("%{file:\(path)}", .names, facts)?.contains("several lines") == true)
        try folder.write([0xff], to: "serial", mode: 0o644)
        #expect(refusal("%{file:\(path)}", .names, facts)?.contains("not UTF-8") == true)
        try folder.write("a".utf8, to: "serial", mode: 0o644)
        #expect(chmod(path, 0o640) == 0)
        #expect(refusal("%{file:\(path)}", .names, facts)?.contains("not every user") == true)
        // By another name, too.
        #expect(chmod(path, 0o644) == 0 && symlink(folder.path, folder.path + "/link") == 0)
        facts.privateDirectories = [folder.path + "/link"]
        #expect(refusal("%{file:\(path)}", .names, facts)?.contains("keys or secrets") == true)
    }

    @Test("The machine's identifier is that of systemd-id128 for certprov")
    func theIdentifierOfTheMachine() throws {
        #expect(try expand("%{machine-id}", .names, host()) == "7f12ff6f795f4c238fa997a52cebff0c")
        let application = HostFacts.applicationID.map { String(format: "%02x", $0) }.joined()
        if FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-id128"),
            let theirs = try? Subprocess.run(["systemd-id128", "machine-id", "--app-specific=\(application)"])
        {
            let ours = try expand("%{machine-id}", .names, HostFacts())
            #expect(String(decoding: theirs, as: UTF8.self) == ours + "\n")
        }
        try folder.write("uninitialized\n".utf8, to: "machine-id")
        var facts = HostFacts()
        facts.etc = folder.path
        #expect(refusal("%{machine-id}", .names, facts)?.contains("systemd-machine-id-setup") == true)
    }

    @Test("The configuration has the values, and errors name file, line and key", arguments: FileForm.allCases)
    func theConfiguration(form: FileForm) throws {
        let url = Parameter<String>.required("url", .serverURL, summary: "Its URL.")
        let subject = Parameter<String>.required("subject", .distinguishedName, summary: "Its subject.")
        let registry = try ProviderRegistry([
            ProviderDescriptor(
                id: ProviderID("invented"), displayName: "Invented", summary: "Has names.",
                parameters: [url.descriptor, subject.descriptor]
            ) { _, _ throws(ProviderError) in throw ProviderError(.internal, "It is not made.") }
        ])
        func load(_ subject: String, _ host: HostFacts) throws -> LogonConfiguration {
            let path = try folder.write(
                form.text([
                    ("CertificateProvider", "invented"),
                    ("CertificateProvider.invented.url", "https://ca.example/%{host}"),
                    ("CertificateProvider.invented.subject", subject),
                ]).utf8, to: form.fileName)
            return try LogonConfiguration.load(path: path, registry: registry, host: host)
        }
        let one = try load("CN=%{host}", host("one"))
        #expect(one.providers.first?.parameters["url"]?.text == "https://ca.example/one")
        #expect(one.hostValues.map(\.text) == ["https://ca.example/one", "CN=one"])
        #expect(try one != load("CN=%{host}", host("two")))
        let error = failure { try load("CN=%{hots}", host("one")) }
        #expect(error?.code == .configurationInvalid)
        #expect(
            error?.message.hasPrefix(
                "\(folder.path)/\(form.fileName):\(form.firstLine + 2): The key 'CertificateProvider.invented.subject' has an unknown"
            )
                == true, "\(error?.message ?? "")")
    }
}
