import CertificateProviding
import Foundation
import Testing

@testable import RelyingParty

/// The built program.
@Suite(.timeLimit(.minutes(30)), .enabled(if: Peers.relyingParty != nil, "relying-party is not beside the tests"))
struct ServeTests {
    private func properties(_ directory: TemporaryDirectory, _ more: String = "") throws {
        let path = directory.path
        try Data("s3cret\n".utf8).write(to: URL(filePath: path + "/secret"))
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path + "/secret")
        try """
        RelyingParty.base-url = https://localhost:8444
        RelyingParty.issuer = https://localhost:1
        RelyingParty.authority = https://localhost:1
        RelyingParty.client-id = client
        RelyingParty.client-secret-source = file:\(path)/secret
        RelyingParty.state = \(path)/state
        \(more)
        """.write(toFile: path + "/rp.properties", atomically: true, encoding: .utf8)
    }

    private func program(_ words: [String], _ directory: TemporaryDirectory) throws -> Program {
        try Program(
            [try #require(Peers.relyingParty)] + words, in: directory.path,
            environment: ["XDG_STATE_HOME": directory.path + "/xdg", "LOG_LEVEL": "trace"])
    }

    private func curl(_ arguments: [String], _ directory: TemporaryDirectory) async throws -> String {
        try await Program.run(
            ["curl", "--silent", "--show-error", "--noproxy", "*", "--data-binary", "abc"] + arguments,
            in: directory.path)
    }

    @Test func withoutAnIdentityItServesTheLoopbackAddress() async throws {
        let directory = try TemporaryDirectory()
        try properties(directory)
        let serve = [
            "serve", "--config", directory.path + "/rp.properties", "--port", "0", "--ports-file",
            directory.path + "/ports",
        ]
        let server = try program(serve, directory)
        let port = try #require(try await server.start(until: directory.path + "/ports")["port"] as? Int)
        let answer = try await curl(["http://127.0.0.1:\(port)/document"], directory)
        #expect(answer.contains("access token"))
        #expect(try await curl(["http://127.0.0.1:\(port)/authzurl"], directory).contains("message"))
        // The longest document that a query may have.
        let longest = "/login/CreateDocumentHash?document=" + String(repeating: "%41", count: 8192)
        #expect(try await curl(["http://127.0.0.1:\(port)\(longest)"], directory).contains("access token"))
        // A body that is no HTTP is the client's fault, and no error in the log.
        let request = #"POST /authtoken HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"#
        let script = "exec 3<>/dev/tcp/127.0.0.1/\(port); printf '\(request)' >&3; cat <&3"
        #expect(try await Program.run(["bash", "-c", script], in: directory.path).contains("ends too early"))
        // After a body that is too long the connection ends, with the answer.
        let tooLong = #"POST /authtoken HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"#
        let sending = """
            exec 3<>/dev/tcp/127.0.0.1/\(port); printf '\(tooLong)' >&3; read -r line <&3; echo "$line"
            head -c 100000 /dev/zero >&3; cat <&3
            """
        let refusal = try await Program.run(["bash", "-c", sending], in: directory.path)
        #expect(refusal.hasPrefix("HTTP/1.1 413") && refusal.lowercased().contains("connection: close"), "\(refusal)")
        #expect(try await server.end() == 0)
        #expect(!server.output.contains("request failed"))
        #expect(server.output.contains("plain HTTP is served, and 'RelyingParty.base-url' is https:"))
        #expect(server.output.contains("/document") && !server.output.contains("s3cret"))
        let other = try await program(serve + ["--address", "0.0.0.0"], directory).run()
        #expect(other.status == 78 && other.output.contains("CertificateProvider"))
    }

    @Test func withAnIdentityItServesTLS() async throws {
        let (directory, fixtures) = (try TemporaryDirectory(), try await Fixtures.shared.directory.path)
        try properties(
            directory,
            """
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(fixtures)/server.pem
            CertificateProvider.pem.key = \(fixtures)/server.key
            CertificateProvider.pem.usage = server
            """)
        let server = try program(
            [
                "serve", "--config", directory.path + "/rp.properties", "--port", "0", "--ports-file",
                directory.path + "/ports",
            ],
            directory)
        let port = try #require(try await server.start(until: directory.path + "/ports")["port"] as? Int)
        let answer = try await curl(
            ["--cacert", fixtures + "/ca.pem", "https://localhost:\(port)/document"], directory)
        #expect(answer.contains("access token"))
        // A port that is in use, and a file that cannot be written, end the start.
        let serve = ["serve", "--config", directory.path + "/rp.properties"]
        let other = try await program(serve + ["--port", "\(port)"], directory).run()
        #expect(other.status == 78 && other.output.contains("--port \(port), --address 127.0.0.1"), "\(other.output)")
        #expect(other.output.contains("in use. Set another one") && !other.output.contains("NIO"), "\(other.output)")
        for file in ["missing/ports", "state"] {
            let words = ["--port", "0", "--ports-file", "\(directory.path)/\(file)"]
            let (status, output) = try await program(serve + words, directory).run()
            #expect(status == 78 && output.contains("--ports-file") && output.contains(file), "\(output)")
        }
        let unknown = try await program(serve + ["--port", "0", "--address", "a.invalid"], directory).run()
        #expect(unknown.status == 78 && unknown.output.contains("--address a.invalid"), "\(unknown.output)")
        #expect(try await server.end() == 0)
        #expect(!server.output.contains("plain HTTP"))
    }

    @Test func aUsersKeyIsForgotten() async throws {
        let directory = try TemporaryDirectory()
        try properties(directory)
        let keys = try BoundKeys(directory: directory.path + "/state")
        #expect(try keys.bind("aa", to: Site.alice))
        let forget = ["forget-user", "--config", directory.path + "/rp.properties", Site.alice]
        #expect(try await program(forget, directory).run().status == 0)
        #expect(try keys.key(of: Site.alice) == nil)
        #expect(try await program(forget, directory).run().status == 66)
    }

    @Test(
        "A setting that is missing or wrong is named",
        arguments: [
            ("RelyingParty.issuer = http://localhost", "RelyingParty.issuer"),
            ("RelyingParty.state = here", "RelyingParty.state"), ("RelyingParty.other = x", "RelyingParty.other"),
            ("RelyingParty.client-id =", "RelyingParty.client-id"),
        ])
    func aWrongSettingIsNamed(line: String, name: String) async throws {
        let directory = try TemporaryDirectory()
        try properties(directory)
        let path = directory.path + "/rp.properties"
        let text = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        let rest = text.filter { !$0.hasPrefix(name) }.joined(separator: "\n")
        try (rest + "\n" + line + "\n").write(toFile: path, atomically: true, encoding: .utf8)
        let (status, output) = try await program(["serve", "--config", path, "--port", "0"], directory).run()
        #expect(status == 78 && output.contains(name), "\(output)")
    }
}
