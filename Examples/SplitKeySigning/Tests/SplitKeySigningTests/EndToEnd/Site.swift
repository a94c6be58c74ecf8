import Foundation
import Glibc
import Testing

/// A running authority, a relying party if a test wants one, and a host with the program `dvs`.
final class Site {
    static let user = "alice@example.com"
    static let loginPIN = "73918264"
    static let signingPIN = "0012"

    let host: DVSProgram
    private var authority: Process?
    private var relyingParty: Process?
    private(set) var url = ""

    init(hasRelyingParty: Bool = false) async throws {
        host = try DVSProgram()
        try FileManager.default.createDirectory(atPath: host["authority"], withIntermediateDirectories: true)
        try await startAuthority()
        try host.write(Self.loginPIN + "\n", to: "login-pin")
        try host.write(Self.signingPIN + "\n", to: "signing-pin")
        var settings = """
            SplitKey.authority = \(url)
            SplitKey.trust-anchors = \(host["authority"])/ca.pem
            SplitKey.pairing-helper = \(Python.package)/pairing-helper
            SplitKey.company-id = COMPANY
            SplitKey.pin-source = file:\(host["signing-pin"])
            SplitKey.login-pin-source = file:\(host["login-pin"])

            """
        if hasRelyingParty { settings += "SplitKey.relying-party = \(try await startRelyingParty())\n" }
        try host.write(settings, to: "host.properties")
    }

    /// Starts the authority; after ``stopAuthority()`` at the same URL.
    func startAuthority() async throws {
        let port = URL(string: url)?.port ?? 0
        try? FileManager.default.removeItem(atPath: host["ports"])
        authority = try start(
            try #require(Python.program),
            [
                "-m", "authority", "serve", "--state", host["authority"], "--port", "\(port)", "--ports-file",
                host["ports"],
            ],
            in: Python.package)
        url = try #require(try await ports("ports", of: authority)["url"] as? String)
    }

    /// Ends the authority, and its issuers with it.
    func stopAuthority() async throws {
        let process = try #require(authority)
        kill(process.processIdentifier, SIGTERM)
        try await until("the authority has ended") { !process.isRunning }
    }

    deinit {
        for process in [relyingParty, authority].compactMap({ $0 }) where process.isRunning {
            // It ends its issuers, too.
            kill(process.processIdentifier, SIGTERM)
            process.waitUntilExit()
        }
    }

    private func start(_ program: String, _ arguments: [String], in directory: String) throws -> Process {
        let process = Process()
        process.executableURL = URL(filePath: program)
        process.arguments = arguments
        process.currentDirectoryURL = URL(filePath: directory)
        let log = host["\(URL(filePath: program).lastPathComponent).log"]
        FileManager.default.createFile(atPath: log, contents: nil)
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle(forWritingAtPath: log)
        // None of this process's, such as a proxy.
        process.environment = [
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": host["home"],
            "XDG_STATE_HOME": host["server-state"], "PYTHONDONTWRITEBYTECODE": "1",
        ]
        try process.run()
        return process
    }

    private func ports(_ name: String, of process: Process?) async throws -> [String: Any] {
        try await until("the server listens") { [host] in
            FileManager.default.fileExists(atPath: host[name]) || process?.isRunning != true
        }
        let json = try JSONSerialization.jsonObject(with: Data(contentsOf: URL(filePath: host[name])))
        return try #require(json as? [String: Any])
    }

    /// A port that is free now.
    private func freePort() async throws -> String {
        let script = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"
        let output = try await host.run([try #require(Python.program), "-c", script])
        return output.stdout.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Its redirect URI is registered before it starts: another program may have taken the port by then.
    private func startRelyingParty() async throws -> String {
        while true {
            let base = try await startRelyingPartyOnce()
            if relyingParty?.isRunning == true { return base }
            let log = try String(contentsOfFile: host["relying-party.log"], encoding: .utf8)
            try #require(log.contains("in use"), "\(log)")
        }
    }

    private func startRelyingPartyOnce() async throws -> String {
        let port = try await freePort()
        let base = "http://127.0.0.1:\(port)"
        let text = try await tool("register", "--name", "shop", "--redirect-uri", "\(base)/login")
        let client = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        try host.write(try #require(client["client_secret"] as? String), to: "client-secret")
        let file = try host.write(
            """
            RelyingParty.base-url = \(base)
            RelyingParty.issuer = \(url)
            RelyingParty.authority = \(url)
            RelyingParty.client-id = \(try #require(client["client_id"] as? String))
            RelyingParty.client-secret-source = file:\(host["client-secret"])
            RelyingParty.state = \(host["relying-party"])
            RelyingParty.trust-anchors = \(host["authority"])/ca.pem

            """, to: "relying-party.properties")
        relyingParty = try start(
            DVSProgram.path("relying-party"),
            ["serve", "--config", file, "--port", port, "--ports-file", host["relying-party.ports"]], in: host.path)
        try await until("the relying party listens") { [host, relyingParty] in
            FileManager.default.fileExists(atPath: host["relying-party.ports"]) || relyingParty?.isRunning != true
        }
        return base
    }

    /// Runs a command of the authority, beside the one that serves.
    func tool(_ command: String, _ arguments: String...) async throws -> String {
        let output = try await host.run(
            [try #require(Python.program), "-m", "authority", command, "--state", host["authority"]] + arguments,
            in: Python.package)
        #expect(output.status == 0, "\(output)")
        return output.stdout.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Runs `dvs` at a terminal.
    ///
    /// - Parameter answers: Prompts, and what is typed after each.
    /// - Returns: What was on the terminal, in `stdout`.
    func atTerminal(_ arguments: [String], _ answers: [[String]]) async throws -> DVSProgram.Output {
        let json = String(decoding: try JSONEncoder().encode(answers), as: UTF8.self)
        let script = #filePath.replacing("Site.swift", with: "terminal.py")
        return try await host.run([try #require(Python.program), script, json, DVSProgram.path()] + arguments)
    }

    /// Enrols the user.
    func enrol() async throws {
        try host.write(try await tool("code", Self.user), to: "code")
        let output = try await host("enrol", "--code-source", "file:" + host["code"])
        #expect(output.status == 0, "\(output) \(log)")
    }

    /// Has the verifier judge the file of `dvs sign --offline --out`, as a backend does that the README describes.
    ///
    /// - Returns: The claims of its receipt.
    func verifyOffline(_ file: String) async throws -> [String: Any] {
        let text = try await tool("register", "--name", "backend", "--redirect-uri", "http://127.0.0.1/login")
        let client = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        let (id, secret) = (client["client_id"] as? String ?? "", client["client_secret"] as? String ?? "")
        try host.write("user = \"\(id):\(secret)\"\n", to: "credentials")
        let question = try await host.run(
            ["jq", "{signature, timestamp, type: \"verification\"}", file], in: host.path)
        try host.write(question.stdout, to: "question.json")
        let answer = try await host.run(
            [
                "curl", "--silent", "--show-error", "--fail", "--cacert", "\(host["authority"])/ca.pem", "--config",
                host["credentials"], "--json", "@\(host["question.json"])", "\(url)/dvs/verify",
            ], in: host.path)
        let receipt = try #require(
            try JSONSerialization.jsonObject(with: Data(answer.stdout.utf8)) as? [String: Any], "\(answer)")
        let parts = (receipt["certificate"] as? String ?? "").split(separator: ".")
        try #require(parts.count == 3, "\(answer)")
        let base64 = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let claims = Data(base64Encoded: base64 + String(repeating: "=", count: (4 - base64.count % 4) % 4))
        return try #require(try JSONSerialization.jsonObject(with: claims ?? Data()) as? [String: Any])
    }

    /// The wrong tries of a key in a row, as the authority counts them.
    func wrong(_ scope: String) async throws -> (count: Int, isBlocked: Bool) {
        let text = try await tool("tries", Self.user)
        let keys = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]])
        let key = try #require(keys.last { $0["scope"] as? String == scope })
        return (try #require(key["wrong"] as? Int), try #require(key["blocked"] as? Bool))
    }

    var log: String {
        ["python3.log", "relying-party.log"].map { (try? String(contentsOfFile: host[$0], encoding: .utf8)) ?? "" }
            .joined()
    }
}
