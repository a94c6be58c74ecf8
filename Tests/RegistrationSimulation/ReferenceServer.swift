import CertificateProviding
import CertificateTLS
import Foundation
import Glibc
import ProviderTransport
import Synchronization
import TestSupport

/// The server of `Examples/PlatformServer` in a process of its own, which is killed and started again with the same database
/// and the same port.
final class ReferenceServer: Sendable {
    /// The resources that all its processes together have needed.
    struct Use {
        /// The greatest memory of any of them, in KiB.
        var peakMemory = 0
        var processorTime = 0.0
    }

    private struct Announcement: Decodable { var certificatePort: Int }
    private struct State {
        var process: SpawnedProcess?
        var port = 0
        var use = Use()
    }
    private let state = Mutex(State())
    private let program: String
    private let directory: TemporaryDirectory
    private let administrator: Identity

    static let application = "com.example.app"

    init(_ program: String, _ authority: TestAuthority, in directory: TemporaryDirectory) throws {
        self.program = URL(filePath: program).path
        self.directory = directory
        let server = try authority.issue("server", addresses: [[127, 0, 0, 1]])
        administrator = try authority.issue("administrator")
        try directory.write(Self.pem(server.certificateChain).utf8, to: "server.pem")
        guard let key = try server.key.exporter?.pkcs8Representation() else { throw Failure("the key has no form") }
        try directory.write(
            Self.pem("PRIVATE KEY", key.withUnsafeBytes { Data($0) }).utf8, to: "server.key")
        try directory.write(Self.pem([authority.root]).utf8, to: "ca.pem")
        try directory.write([], to: "users")
        try start()
    }

    /// The port that accepts client certificates.
    var port: Int { state.withLock(\.port) }

    /// Returns when it accepts connections.
    func start() throws {
        let process = try SpawnedProcess([
            program, "--application", Self.application, "--state", directory["database"], "--certificate",
            directory["server.pem"], "--key", directory["server.key"], "--client-ca", directory["ca.pem"],
            "--certificate-port", "\(port)", "--password-port", "0", "--administrator",
            "CN=administrator,O=certprov tests",
        ])
        guard let line = process.readLine(),
            let announced = try? JSONDecoder().decode(Announcement.self, from: Data(line.utf8))
        else { throw Failure("\(program) does not start") }
        state.withLock { ($0.process, $0.port) = (process, announced.certificatePort) }
    }

    /// Kills it (SIGKILL): requests in progress get no answer.
    func kill() {
        state.withLock { state in
            Self.note(state.process, &state.use)
            state.process?.send(SIGKILL)
            _ = state.process?.wait(seconds: 10)
            state.process = nil
        }
    }

    /// The resources that it has needed so far.
    var use: Use {
        state.withLock { state in
            var use = state.use
            Self.note(state.process, &use)
            return use
        }
    }

    private static func note(_ process: SpawnedProcess?, _ use: inout Use) {
        guard let process else { return }
        use.peakMemory = max(use.peakMemory, process.peakMemory ?? 0)
        use.processorTime += process.processorTime ?? 0
    }

    /// Returns the number of connections, as its page shows it.
    func connections() async throws -> Int {
        guard let url = ServerURL("https://127.0.0.1:\(port)") else { throw Failure("the URL is invalid") }
        let security = ServerSecurity(
            trust: ServerTrust(trustAnchors: .pemFile(directory["ca.pem"])),
            credentials: try TLSCredentials(administrator), executor: .threads())
        let session = ServerSession(url, security, timeBudget: TimeBudget(.seconds(60), RetryPolicy()))
        let page = try await session.response(to: HTTPRequest(target: "/connections"))
        let heading = String(decoding: page.body, as: UTF8.self).firstMatch(of: /<h1>Connections: ([0-9]+)<\/h1>/)
        guard let number = heading.flatMap({ Int($0.1) }) else {
            throw Failure("the page, of status \(page.status), has no number of connections")
        }
        return number
    }

    private static func pem(_ certificates: [X509Certificate]) -> String {
        certificates.map { pem("CERTIFICATE", Data($0.derRepresentation)) }.joined()
    }

    private static func pem(_ type: String, _ content: Data) -> String {
        "-----BEGIN \(type)-----\n\(content.base64EncodedString(options: .lineLength64Characters))\n-----END \(type)-----\n"
    }
}

struct Failure: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) { self.description = description }
}
