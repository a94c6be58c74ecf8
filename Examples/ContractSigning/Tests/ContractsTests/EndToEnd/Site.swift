import Foundation
import Glibc
import Testing

/// A running `contract-server`, and a host with the program `contracts`.
final class Site {
    let host: ContractsProgram
    private var server = Process()
    private let options: [String]
    private(set) var url = ""

    /// - Parameters:
    ///   - options: Of the server.
    ///   - settings: Of the host's property file.
    init(_ options: [String] = [], settings: String = "") async throws {
        host = try await ContractsProgram()
        self.options = options
        let folder = host.folder
        try folder.write("a-seed-of-the-back-office\n", to: "seeds")
        try folder.write("alice@example.com\nbob@example.com\n", to: "accounts")
        try folder.write("", to: "log")
        try await start()
        let file = try String(contentsOfFile: folder["host.properties"], encoding: .utf8)
        try folder.write(
            "\(file)Contracts.url = \(url)\nContracts.trust-anchors = \(folder["server/ca.pem"])\n\(settings)\n",
            to: "host.properties")
    }

    deinit { stop() }

    /// Starts the server, again at the port that it has had.
    func start() async throws {
        let folder = host.folder
        server = Process()
        server.executableURL = URL(filePath: ContractsProgram.path("contract-server"))
        server.arguments =
            [
                "serve", "--state", folder["server"], "--seeds", folder["seeds"], "--accounts", folder["accounts"],
                "--port", url.split(separator: ":").last.map(String.init) ?? "0", "--ports-file", folder["ports"],
            ] + options
        server.environment = ["PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": folder["home"]]
        server.standardOutput = FileHandle.nullDevice
        server.standardError = FileHandle(forWritingAtPath: folder["log"])
        try? FileManager.default.removeItem(atPath: folder["ports"])
        try server.run()
        try await until("the server listens") { [server] in folder.exists("ports") || !server.isRunning }
        let ports = try JSONSerialization.jsonObject(with: Data(contentsOf: URL(filePath: folder["ports"])))
        let port = try #require((ports as? [String: Any])?["port"] as? Int)
        url = "https://localhost:\(port)"
    }

    /// Kills the server.
    func stop() {
        guard server.isRunning else { return }
        kill(server.processIdentifier, SIGKILL)
        server.waitUntilExit()
    }

    var log: String { (try? String(contentsOfFile: host.folder["log"], encoding: .utf8)) ?? "" }

    /// A request of the back office.
    func office(_ path: String, _ arguments: [String] = []) async throws -> String {
        let output = try await host.run(
            [
                "curl", "--silent", "--show-error", "--fail-with-body", "--noproxy", "*", "--cacert",
                host.folder["server/ca.pem"], "--header", "j_token: a-seed-of-the-back-office",
            ] + arguments + [url + "/calinda/hub/" + path])
        #expect(output.status == 0, "\(output)")
        return output.stdout
    }

    /// A new token for an account.
    func token(for account: String = "alice@example.com") async throws -> String {
        let time = Int(Date().timeIntervalSince1970 * 1000) + 600_000
        return try await office(
            "createTemporaryToken.action", ["--data", #"{"email": "\#(account)", "time": \#(time)}"#])
    }

    /// Pairs the host by a new token.
    func pair() async throws -> ContractsProgram.Output {
        try host.folder.write(try await token(), to: "token")
        return try await host("pair", "--token-source", "file:" + host.folder["token"])
    }

    /// Puts a contract in, and returns its id.
    func putIn(number: Int = 1, mode: Int = 2, contractors: [String] = []) async throws -> String {
        let file = SampleFile.bytes(number: number, mode: mode, contractors: contractors)
        try host.folder.write(file, to: "\(number).sellsign")
        let answer = try await office(
            "contracts?email=alice@example.com", ["--data-binary", "@" + host.folder["\(number).sellsign"]])
        let json = try JSONSerialization.jsonObject(with: Data(answer.utf8)) as? [String: Any]
        return try #require(json?["id"] as? String)
    }

    /// Signs a contract at a terminal.
    func sign(_ id: String) async throws {
        let output = try await host.atTerminal("\"$CONTRACTS\" sign \(id)", typing: "y\nn\n")
        #expect(output.status == 0, "\(output)")
    }

    /// The state of a contract here and at the server.
    func states(of id: String) async throws -> (host: String?, server: String?) {
        let shown = try await host("show", "--json", id)
        let here = try shown.json()["contract"] as? [String: Any]
        let answer = try await office("contracts/\(id)")
        let there = try JSONSerialization.jsonObject(with: Data(answer.utf8)) as? [String: Any]
        return (here?["state"] as? String, there?["state"] as? String)
    }
}
