import CertificateProviding
import Foundation
import TestSupport

/// The `openssl` command as an independent peer. Every process is bounded in time and ends with the test.
enum OpenSSL {
    private static let threads = BlockingExecutor.threads()

    /// Writes an identity's files into a directory that goes away after `body`.
    static func withFiles<T>(
        of identity: Identity, authority: TestAuthority, _ body: ([String]) async throws -> T
    ) async throws -> T {
        let files = try PeerFiles(of: identity, trusting: authority)
        defer { withExtendedLifetime(files) {} }
        return try await body([
            "-cert", files["leaf.pem"], "-cert_chain", files["issuers.pem"], "-key", files["key.pem"],
            "-CAfile", files["root.pem"], "-verify_return_error",
        ])
    }

    /// Runs `s_server` on a port of its own. Without a version, `options` name one.
    ///
    /// - Parameter mode: `-rev` sends every line back reversed, and `-www` answers HTTP with what it knows of the client.
    static func server<T>(
        _ options: [String], version: Version?, mode: String = "-rev", _ body: (Int) async throws -> T
    ) async throws -> T {
        let server = try Subprocess(
            ["openssl", "s_server", "-accept", "127.0.0.1:0", mode, "-Verify", "2"]
                + (version.map { [$0.opensslOption] } ?? []) + options, .merged)
        var (seen, port) = ([String](), Int?.none)
        while port == nil, let line = server.readLine() {
            seen.append(line)
            if line.hasPrefix("ACCEPT ") { port = line.split(separator: ":").last.flatMap { Int($0) } }
        }
        guard let port else { throw Subprocess.Failure(description: seen.joined(separator: "\n")) }
        let result = try await body(port)
        server.stop()
        return result
    }

    /// Makes a key and returns a self-signed certificate for it. The key is thrown away.
    static func certificate(keyOptions: [String]) throws -> X509Certificate {
        let pem = try Subprocess.run(
            ["openssl", "req", "-x509", "-noenc", "-keyout", "/dev/null", "-subj", "/CN=other", "-newkey"] + keyOptions)
        return try X509Certificate.certificates(pem: String(decoding: pem, as: UTF8.self))[0]
    }

    /// Runs `s_client` against `port` and returns all of its output. Without a version, `options` name one.
    static func client(_ options: [String], version: Version?, port: Int) async throws -> [String] {
        let client = try Subprocess(
            [
                "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-servername", "localhost", "-verify_hostname",
                "localhost", "-quiet",
            ] + (version.map { [$0.opensslOption] } ?? []) + options, .merged)
        // The server may need the threads that run tasks.
        return try await threads.run {
            var seen: [String] = []
            while let line = client.readLine() { seen.append(line) }
            return seen
        }
    }
}
