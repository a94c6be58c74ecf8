import CertificateProviding
import Foundation
import TestSupport

/// An identity and a root in files, for an independent peer. They go away with this object.
struct PeerFiles {
    private let directory: TemporaryDirectory

    init(of identity: Identity, trusting authority: TestAuthority) throws {
        directory = try TemporaryDirectory()
        guard let pkcs8 = try identity.key.exporter?.pkcs8Representation() else {
            throw Subprocess.Failure(description: "the key is not exportable")
        }
        let base64 = pkcs8.withUnsafeBytes { Data($0).base64EncodedString(options: .lineLength64Characters) }
        let chain = identity.certificateChain.map(\.pemRepresentation)
        for (name, text) in [
            ("leaf.pem", chain[0]), ("issuers.pem", chain.dropFirst().joined()), ("chain.pem", chain.joined()),
            ("key.pem", "-----BEGIN PRIVATE KEY-----\n\(base64)\n-----END PRIVATE KEY-----\n"),
            ("root.pem", authority.root.pemRepresentation),
        ] { try directory.write(text.utf8, to: name) }
    }

    subscript(name: String) -> String { directory[name] }
}

/// Clients that know nothing of this project.
enum ClientProgram: String, CaseIterable, Sendable {
    case openssl, curl

    /// Whether the program speaks HTTP.
    var isHTTP: Bool { self == .curl }

    private static let threads = BlockingExecutor.threads()

    /// Connects to localhost, and returns the lines that the server sends, or errors.
    func connect(
        as identity: Identity, trusting authority: TestAuthority, version: Version, port: Int
    ) async throws -> [String] {
        switch self {
        case .openssl:
            return try await OpenSSL.withFiles(of: identity, authority: authority) {
                try await OpenSSL.client($0, version: version, port: port)
            }
        case .curl:
            let files = try PeerFiles(of: identity, trusting: authority)
            let number = version == .tls12 ? "1.2" : "1.3"
            let curl = try Subprocess(
                [
                    "curl", "--disable", "--noproxy", "*", "--silent", "--show-error", "--max-time", "600",
                    "--write-out", "\\n",
                    "--tlsv\(number)", "--tls-max", number, "--cacert", files["root.pem"], "--cert", files["chain.pem"],
                    "--key", files["key.pem"], "--connect-to", "localhost:\(port):127.0.0.1:\(port)",
                    "https://localhost:\(port)/",
                ], .merged)
            // The server may need the threads that run tasks.
            return try await Self.threads.run {
                defer { withExtendedLifetime(files) {} }
                var seen: [String] = []
                while let line = curl.readLine() { seen.append(line) }
                return seen
            }
        }
    }
}
