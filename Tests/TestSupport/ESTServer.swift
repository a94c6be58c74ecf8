public import CertificateProviding
import Foundation
import Glibc

/// The EST server of `Tests/EnrolmentServer`, a process of its own for as long as this object lives. The checks there compare
/// it with the standard, by strongSwan's client, curl and OpenSSL.
public final class ESTServer: Sendable {
    public let directory: TemporaryDirectory
    public let port: Int
    private let process: Subprocess

    public static let user = "estuser"
    public static let password = "estpwd"

    private static let threads = BlockingExecutor.threads(maximum: 8)

    /// Returns when the server listens.
    public static func start(_ options: String...) async throws -> ESTServer { try await start(options) }

    public static func start(_ options: [String]) async throws -> ESTServer {
        try await threads.run { () throws(ProviderError) in
            do { return try ESTServer(options) } catch { throw ProviderError(.internal, "\(error)") }
        }
    }

    private init(_ options: [String]) throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "EnrolmentServer/est-server").path
        process = try Subprocess(["/usr/bin/python3", script, "--directory", directory.path] + options)
        guard let line = process.readLine(),
            let ready = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any],
            let port = ready["port"] as? Int
        else { throw Subprocess.Failure(description: "the EST server did not start") }
        self.port = port
    }

    public var issued: Int {
        (try? FileManager.default.contentsOfDirectory(atPath: directory["issued"]).count) ?? 0
    }

    /// The requests so far.
    public func requests() throws -> [[String: Any]] {
        try String(contentsOfFile: directory["log.jsonl"], encoding: .utf8).split(separator: "\n").compactMap {
            try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
        }
    }

    /// Has the server go over to its new root, and waits for that.
    public func rollOver() throws {
        process.send(SIGUSR1)
        let end = ContinuousClock.now + .seconds(600)
        while try !requests().contains(where: { $0["event"] as? String == "rolled-over" }) {
            guard ContinuousClock.now < end else { throw Subprocess.Failure(description: "no rollover") }
            usleep(1000)
        }
    }

    /// - Parameter authority: The file with the root that must have issued.
    public func verify(_ identity: Identity, by authority: String = "ca.pem") throws {
        try Self.verify(identity, by: authority, in: directory)
    }

    /// Has `openssl verify` look at the chain of an identity.
    ///
    /// - Parameter authority: The file with the root, in the directory.
    public static func verify(
        _ identity: Identity, by authority: String, in directory: TemporaryDirectory
    ) throws {
        let chain = identity.certificateChain
        // Of each its own: several tasks may look at a time.
        let (leaf, others) = ("leaf-\(chain[0].serialNumberText).pem", "others-\(chain[0].serialNumberText).pem")
        try directory.write(Array(chain[0].pemRepresentation.utf8), to: leaf)
        try directory.write(Array(chain.dropFirst().map(\.pemRepresentation).joined().utf8), to: others)
        var arguments = ["openssl", "verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", authority]
        if chain.count > 1 { arguments += ["-untrusted", others] }
        try Subprocess.run(arguments + [leaf], in: directory.path)
    }
}
