import Crypto
import Foundation
import Testing
import X509

@testable import ContractServer

@Suite("The start of the server")
struct StartTests {
    @Test("A CA that hosts trust is not replaced by another one")
    func authority() async throws {
        let directory = try TemporaryDirectory()
        func load(hasHosts: Bool) -> String {
            do {
                _ = try CertificateAuthority.load(directory: directory.path, hasHosts: hasHosts)
                return ""
            } catch {
                return "\(error)"
            }
        }
        #expect(load(hasHosts: true).contains("while hosts are paired. Restore them from a backup."))
        #expect(load(hasHosts: false).isEmpty)
        let certificate = try String(contentsOfFile: "\(directory.path)/ca.pem", encoding: .utf8)
        for name in ["ca.pem", "ca-key.pem"] {
            let (file, kept) = ("\(directory.path)/\(name)", "\(directory.path)/kept")
            try FileManager.default.moveItem(atPath: file, toPath: kept)
            #expect(load(hasHosts: false).contains("\(name) is missing"))
            try "no PEM".write(toFile: file, atomically: true, encoding: .utf8)
            #expect(load(hasHosts: true).contains("\(name) is not a"))
            try FileManager.default.removeItem(atPath: file)
            try FileManager.default.moveItem(atPath: kept, toPath: file)
        }
        #expect(load(hasHosts: true).isEmpty)
        #expect(try String(contentsOfFile: "\(directory.path)/ca.pem", encoding: .utf8) == certificate)

        let server = try TestServer()
        #expect(try await !server.registry.hasHosts)
        _ = try await server.host()
        #expect(try await server.registry.hasHosts)
    }

    @Test("Certificates are valid for clocks an hour behind; a host's are for signatures that bind, too")
    func certificates() throws {
        let now = Date(timeIntervalSince1970: 1_800_000_000)
        let authority = try CertificateAuthority(at: now)
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey()).publicKey
        let host = try authority.issue(
            DistinguishedName { CommonName("host") }, key, account: "alice@example.com", lifetime: 86_400, at: now)
        let server = try authority.issueServer(names: ["localhost"], key, lifetime: 86_400, at: now)
        for certificate in [authority.certificate, host, server] {
            #expect(certificate.notValidBefore == now - 3600 && certificate.notValidAfter >= now + 86_400)
        }
        #expect(try host.extensions.keyUsage == KeyUsage(digitalSignature: true, nonRepudiation: true))
        #expect(try server.extensions.keyUsage == KeyUsage(digitalSignature: true))
    }

    @Test("A host name or an IPv4 address is a server's name")
    func names() {
        for name in ["localhost", "a-1.example.com", "127.0.0.1", "1a"] {
            #expect(CertificateAuthority.isServerName(name), "\(name)")
        }
        for name in ["", ".", "a.", "a b", "a_b", "-a", "a-", "1.2.3", "256.1.1.1", "::1", "a/b", "*"] {
            #expect(!CertificateAuthority.isServerName(name), "\(name)")
        }
    }

    @Test(
        "What cannot work is refused at the start, in one line that names the file and the option",
        .enabled(if: RunningServer.isBuilt, "contract-server is not beside these tests"))
    func refused() async throws {
        let server = try await RunningServer()
        let program = try #require(RunningServer.program("contract-server"))
        func write(_ content: String, to name: String) throws -> String {
            try Data(content.utf8).write(to: URL(filePath: "\(server.directory.path)/\(name)"))
            return name
        }
        func refused(_ arguments: [String], logLevel: String = "", _ expected: String) throws {
            let (status, output) = try server.run(
                "timeout",
                [
                    "60", program, "serve", "--state", "other", "--seeds", "seeds", "--accounts", "accounts", "--port",
                    "0",
                ]
                    + arguments, environment: ["LOG_LEVEL": logLevel])
            #expect((status == 1 || status == 64) && output.contains(expected), "\(status) \(output)")
            let lines = output.split(separator: "\n").filter { !$0.contains("contract-server serve ") }
            #expect(lines.count == 1, "\(output)")
        }
        #expect(try server.run(program, ["--version"]).output == "0.1.0\n")

        let empty = try write("# none\n\n", to: "empty")
        try refused(["--seeds", empty], "--seeds empty has no entry. Write there a secret of 16")
        try refused(["--seeds", try write("#\nshort\n", to: "short")], "--seeds short, line 2, is too short")
        try refused(["--seeds", "none"], "--seeds none cannot be read: No such file")
        try refused(["--seeds", "."], "--seeds . cannot be read: Is a directory")
        try refused(["--accounts", empty], "--accounts empty has no entry. Write there an email address.")
        try refused(
            ["--accounts", try write("a@b.example\nalice\n", to: "a")], "--accounts a, line 2, is no email address")
        try Data([0x61, 0x0A, 0xFF]).write(to: URL(filePath: "\(server.directory.path)/bytes"))
        try refused(["--seeds", "bytes"], "--seeds bytes, line 1, is too short")
        try Data([0x0A, 0xFF]).write(to: URL(filePath: "\(server.directory.path)/bytes"))
        try refused(["--seeds", "bytes"], "--seeds bytes, line 2, is not UTF-8")
        try refused(["--notifier", "./seeds"], "--notifier './seeds' is no program.")
        try refused(["--name", ""], "--name '' is neither")
        try refused(["--ports-file", "none/ports"], "--ports-file none/ports cannot be written: No such file")
        try refused([], logLevel: "loud", "LOG_LEVEL 'loud' is unknown. Set one of trace,")

        try refused(["--state", "state"], "--state state is in use by another contract-server.")
        try refused(
            ["--port", "\(server.port)"], "--port \(server.port), --address 127.0.0.1: the server cannot listen")
        try refused(["--page-port", "\(server.port)"], "--page-port \(server.port): the server cannot listen")
        try refused(["--address", "none.invalid"], "--address none.invalid: the address is unknown")

        for name in ["1", "2"] {
            let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "\(name).key"]
            try server.run("openssl", ["req", "-x509", "-out", "\(name).pem", "-subj", "/CN=\(name)"] + key)
        }
        try refused(["--certificate", "1.key", "--key", "1.key"], "--certificate 1.key has no certificate in PEM.")
        try refused(["--certificate", "1.pem", "--key", "1.pem"], "--key 1.pem has no private key in PEM")
        try refused(
            ["--certificate", "1.pem", "--key", "2.key"],
            "--key 2.key is not the key of the first certificate in --certificate 1.pem.")
        try FileManager.default.createDirectory(
            atPath: "\(server.directory.path)/spoiled", withIntermediateDirectories: true)
        _ = try write(String(repeating: "no database", count: 100), to: "spoiled/contracts.sqlite")
        try refused(
            ["--state", "spoiled"], "spoiled/contracts.sqlite cannot be used: file is not a database. Restore it")
    }
}
