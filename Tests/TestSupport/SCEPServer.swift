public import CertificateProviding
import Foundation

/// Debian's `scepserver` with a CA of its own. Ends with its last user.
public final class SCEPServer: Sendable {
    public static let challenge = "correct horse"

    public let depot: TemporaryDirectory
    public let port: Int
    public let authority: X509Certificate
    private let process: Subprocess

    public init(_ options: [String] = ["-challenge", challenge, "-allowrenew", "0"]) throws {
        depot = try TemporaryDirectory()
        let program = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "SCEPServer/scep-server").path
        process = try Subprocess([program, "--depot", depot.path] + options)
        guard let line = process.readLine(),
            let ready = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Int],
            let port = ready["port"]
        else {
            throw Subprocess.Failure(description: "scepserver did not start; is the package scep installed?")
        }
        self.port = port
        let file = try PEMFile(path: depot["ca.pem"])
        authority = try X509Certificate(derRepresentation: file.blocks[0].bytes)
    }

    /// Ends the server, and waits for that.
    public func stop() { process.stop() }

    public var url: String { "http://127.0.0.1:\(port)/scep" }
    public var log: String { (try? depot.read("log")).map { String(decoding: $0, as: UTF8.self) } ?? "" }
}
