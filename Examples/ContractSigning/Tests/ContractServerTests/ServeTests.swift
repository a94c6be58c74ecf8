import CertificateProviding
import Contracts
import Foundation
import Testing

@testable import ContractServer

@Suite("The running server", .enabled(if: RunningServer.isBuilt, "contract-server is not beside these tests"))
struct ServeTests {
    @Test("curl and openssl pair a host, which speaks mutual TLS then; others are refused at each request")
    func hosts() async throws {
        let server = try await RunningServer()
        let token = try server.token()
        #expect(try server.curl("/pairing", ["--user", "pairing:\(token)"]).status == 200)
        #expect(try server.enrol("first", token: token) == 200)
        #expect(try server.enrol("second", token: token) == 401)
        let text = try server.run("openssl", ["x509", "-in", "first.pem", "-noout", "-text"]).output
        #expect(text.contains("TLS Web Client Authentication") && text.contains("CN = first"))
        #expect(try server.run("openssl", ["verify", "-CAfile", "state/ca.pem", "first.pem"]).status == 0)

        let (status, body) = try server.curl("/contracts", as: "first")
        #expect(status == 200)
        #expect(try JSONValue(parsing: Array(body.utf8))["account"]?.string == TestServer.alice)
        #expect(try server.curl("/contracts").status == 403)
        try server.run(
            "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                "other.key",
                "-out", "other.pem", "-subj", "/CN=first",
            ])
        #expect(try server.curl("/contracts", as: "other").status == 403)
        #expect(try server.curl("/.well-known/est/cacerts", as: "other").status == 200)

        #expect(try server.enrol("renewed", as: "first") == 200)
        #expect(try server.enrol("not", as: "other") == 403)
        #expect(try server.curl("/contracts", as: "renewed").status == 200)
        // On one connection: the second request finds the host unpaired.
        let (last, _) = try server.curl(
            "/contracts", as: "renewed",
            [
                "--request", "DELETE", "\(server.url)/pairing", "--next", "--silent", "--cacert", "state/ca.pem",
                "--cert",
                "renewed.pem", "--key", "renewed.key", "--write-out", "\n%{http_code}",
            ])
        #expect(last == 403)
        #expect(try server.curl("/contracts", as: "first").status == 403)
        #expect(try server.curl("/contracts", as: "renewed").status == 403)
        for secret in [token, TestServer.seed] { #expect(!server.log.contains(secret)) }
        #expect(server.log.contains("/.well-known/est/simpleenroll"))
    }

    @Test("The state directory is for this user only, and all that is in it is there after a kill")
    func state() async throws {
        var server: RunningServer? = try await RunningServer()
        let directory = try #require(server?.directory)
        #expect(try #require(server).enrol("host", token: try #require(server).token()) == 200)
        let content = "content"
        let path = "/documents/\(DocumentReference(of: Array(content.utf8)).sha256)"
        #expect(try server?.curl(path, as: "host", ["--request", "PUT", "--data", content]).status == 201)
        let kept = try #require(server).token()
        for name in try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/state") {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(directory.path)/state/\(name)")
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
            let data = try Data(contentsOf: URL(filePath: "\(directory.path)/state/\(name)"))
            #expect(data.range(of: Data(kept.utf8)) == nil, "\(name)")
        }
        let attributes = try FileManager.default.attributesOfItem(atPath: "\(directory.path)/state")
        #expect(attributes[.posixPermissions] as? Int == 0o700)
        server?.kill()
        server = try await RunningServer(in: directory)
        let (status, body) = try #require(server).curl(path, as: "host")
        #expect(status == 200 && body == content)
        #expect(try server?.enrol("next", token: kept) == 200)
    }

    @Test("50 MB go over TLS, and one byte more does not")
    func size() async throws {
        let server = try await RunningServer()
        #expect(try server.enrol("host", token: server.token()) == 200)
        for (size, statuses) in [(52_000_000, [201]), (52_000_001, [413])] {
            let content = [UInt8](repeating: 65, count: size)
            try Data(content).write(to: URL(filePath: "\(server.directory.path)/content"))
            let path = "/documents/\(DocumentReference(of: content).sha256)"
            for framing in [[], ["--header", "Transfer-Encoding: chunked"]] where size > 52_000_000 || framing.isEmpty {
                let (status, _) = try server.curl(path, as: "host", ["--upload-file", "content"] + framing)
                #expect(statuses.contains(status))
            }
        }
    }

    @Test("A body that is not wanted ends the connection, and the client gets the answer")
    func unwanted() async throws {
        let server = try await RunningServer()
        // The page takes no body. Its next request is not answered.
        let script = #"""
            exec 3<>/dev/tcp/127.0.0.1/PORT
            printf 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n' >&3
            read -r line <&3
            echo "$line"
            head -c 100000 /dev/zero >&3
            sleep 0.2
            printf 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
            sleep 0.2
            cat <&3
            """#
        let (_, answer) = try server.run("bash", ["-c", script.replacing("PORT", with: "\(server.pagePort)")])
        #expect(answer.hasPrefix("HTTP/1.1 405") && answer.lowercased().contains("connection: close"), "\(answer)")
        #expect(!answer.contains("HTTP/1.1 200"), "\(answer)")
    }

    @Test("A certificate of some seconds expires, and the host is refused")
    func expiry() async throws {
        let server = try await RunningServer(["--certificate-seconds", "2"])
        #expect(try server.enrol("host", token: server.token()) == 200)
        let end = Date() + 600
        var status = 200
        while status != 403, Date() < end { status = try server.curl("/contracts", as: "host").status }
        #expect(status == 403)
    }

    @Test("The page is on its own port, and not on the other")
    func page() async throws {
        let server = try await RunningServer()
        let (status, body) = try server.curl("http://127.0.0.1:\(server.pagePort)/")
        #expect(status == 200 && body.contains("<h1>Contracts: 0</h1>"))
        let evil = try server.curl("http://127.0.0.1:\(server.pagePort)/", ["--header", "Host: evil.example"])
        #expect(evil.status == 403)
        #expect(try server.curl("/").status == 404)
    }

    @Test("A file goes in with curl, to a host, and comes back; the code comes from the notifier")
    func contract() async throws {
        let directory = try TemporaryDirectory()
        let script = "\(directory.path)/notify"
        try "#!/bin/sh\ncat >'\(directory.path)/notice'\n".write(toFile: script, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: script)
        let server = try await RunningServer(["--notifier", script], in: directory)
        #expect(try server.enrol("host", token: server.token()) == 200)
        try Data(Files.sellsign(mode: 1)).write(to: URL(filePath: "\(directory.path)/file.sellsign"))
        let seed = ["--header", "j_token: \(TestServer.seed)"]
        let added = try server.curl(
            "\(OfficeTests.path)?email=alice%40example.com", seed + ["--data-binary", "@file.sellsign"])
        #expect(added.status == 201)
        let id = try #require(try JSONValue(parsing: Array(added.body.utf8))["id"]?.string)
        let changes = try JSONValue(
            parsing: Array(try server.curl("/contracts", as: "host").body.utf8), maximumDepth: 20)
        #expect(changes["contracts"]?.array?.first?["id"]?.string == id)
        let document = DocumentReference(of: Files.pdf()).sha256
        let members = #""signatory":0,"by":"text message","address":"+33 6 12 34 56 78","document":"\#(document)""#
        let request = "{\(members)}"
        #expect(try server.curl("/contracts/\(id)/code", as: "host", ["--data", request]).status == 204)
        let notice = try JSONValue(parsing: Array(Data(contentsOf: URL(filePath: "\(directory.path)/notice"))))
        let code = try #require(notice["code"]?.string)
        #expect(notice["contract"]?.string == id)
        let confirmation = #"{"code":"\#(code)",\#(members)}"#
        #expect(try server.curl("/contracts/\(id)/code/confirm", as: "host", ["--data", confirmation]).status == 200)
        let shown = try server.curl("\(OfficeTests.path)/\(id)", seed)
        #expect(try JSONValue(parsing: Array(shown.body.utf8))["file"] == JSONValue(parsing: Files.sellsign(mode: 1)))
        #expect(!server.log.contains(code))
    }

    @Test("certprov's own EST client pairs and renews", .enabled(if: RunningServer.program("certprov") != nil))
    func certprov() async throws {
        let server = try await RunningServer()
        let certprov = try #require(RunningServer.program("certprov"))
        let path = server.directory.path
        var environment = ["XDG_STATE_HOME": "\(path)/home", "no_proxy": "localhost"]
        func fetch(_ token: String, _ options: [String] = []) throws -> (status: Int32, output: String) {
            environment["PAIRING_TOKEN"] = token
            try """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = \(server.url)
            CertificateProvider.mdm.trust-anchors = \(path)/state/ca.pem
            CertificateProvider.mdm.username = pairing
            CertificateProvider.mdm.password-source = env:PAIRING_TOKEN
            CertificateProvider.mdm.subject = CN=linux-host

            """.write(toFile: "\(path)/certprov.properties", atomically: true, encoding: .utf8)
            return try server.run(
                certprov, ["fetch", "--config", "\(path)/certprov.properties"] + options, environment: environment)
        }
        let wrong = try fetch("wrong")
        #expect(wrong.status != 0, "\(wrong.output)")
        let first = try fetch(try server.token())
        #expect(first.status == 0 && first.output.contains("linux-host"), "\(first.output)")
        let renewed = try fetch("no longer needed", ["--force"])
        #expect(renewed.status == 0, "\(renewed.output)")
        #expect(
            server.log.contains("renewed") && server.log.contains("path=/.well-known/est/simplereenroll status=200"))
    }
}
