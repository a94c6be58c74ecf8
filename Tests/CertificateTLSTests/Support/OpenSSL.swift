import CertificateProviding
import Foundation
import TestSupport

/// The `openssl` command as an independent peer. Every process is bounded in time and ends with the test.
enum OpenSSL {
    struct Failure: Error { var output: String }

    /// Writes an identity's files into a directory that goes away after `body`.
    static func withFiles<T>(
        of identity: Identity, authority: TestAuthority, _ body: ([String]) async throws -> T
    ) async throws -> T {
        let directory = FileManager.default.temporaryDirectory.appending(path: "certprov-tls-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(at: directory) }
        func write(_ name: String, _ text: String) throws -> String {
            let path = directory.appending(path: name).path
            guard
                FileManager.default.createFile(
                    atPath: path, contents: Data(text.utf8), attributes: [.posixPermissions: 0o600])
            else { throw Failure(output: "cannot write \(path)") }
            return path
        }
        let pkcs8 = try exportable(identity.key).pkcs8Representation()
        let base64 = pkcs8.withUnsafeBytes { Data($0).base64EncodedString(options: .lineLength64Characters) }
        let options = [
            "-cert", try write("leaf.pem", identity.certificate.pemRepresentation),
            "-cert_chain",
            try write("chain.pem", identity.certificateChain.dropFirst().map(\.pemRepresentation).joined()),
            "-key", try write("key.pem", "-----BEGIN PRIVATE KEY-----\n\(base64)\n-----END PRIVATE KEY-----\n"),
            "-CAfile", try write("root.pem", authority.root.pemRepresentation),
            "-verify_return_error",
        ]
        return try await body(options)
    }
}

extension OpenSSL {
    private static func exportable(_ key: any IdentityKey) throws -> any KeyExporting {
        guard let key = key.exporter else { throw Failure(output: "the key is not exportable") }
        return key
    }

    /// Runs `s_server`, which sends every line back reversed, on a port of its own. Without a version, `options` name
    /// one.
    static func server<T>(
        _ options: [String], version: Version?, _ body: (Int) async throws -> T
    ) async throws -> T {
        try await ChildProcess.run(
            ["openssl", "s_server", "-accept", "127.0.0.1:0", "-rev", "-Verify", "2"]
                + (version.map { [$0.opensslOption] } ?? []) + options
        ) { process in
            var seen: [String] = []
            for await line in process.lines {
                seen.append(line)
                guard line.hasPrefix("ACCEPT "), let port = line.split(separator: ":").last.flatMap({ Int($0) }) else {
                    continue
                }
                return try await body(port)
            }
            throw Failure(output: seen.joined(separator: "\n"))
        }
    }

    /// Makes a key and returns a self-signed certificate for it. The key is thrown away.
    static func certificate(keyOptions: [String]) async throws -> X509Certificate {
        let lines = try await ChildProcess.run(
            ["openssl", "req", "-x509", "-noenc", "-keyout", "/dev/null", "-subj", "/CN=other", "-newkey"] + keyOptions
        ) { process in
            var seen: [String] = []
            for await line in process.lines { seen.append(line) }
            return seen
        }
        let body = lines.drop { $0 != "-----BEGIN CERTIFICATE-----" }.dropFirst().prefix { !$0.hasPrefix("-----") }
        guard let der = Data(base64Encoded: body.joined()), !der.isEmpty else {
            throw Failure(output: lines.joined(separator: "\n"))
        }
        return try X509Certificate(derRepresentation: der)
    }

    /// Runs `s_client` against `port` and returns all of its output. Without a version, `options` name one.
    static func client(_ options: [String], version: Version?, port: Int) async throws -> [String] {
        try await ChildProcess.run(
            [
                "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-servername", "localhost", "-verify_hostname",
                "localhost",
                "-quiet",
            ] + (version.map { [$0.opensslOption] } ?? []) + options
        ) { process in
            var seen: [String] = []
            for await line in process.lines { seen.append(line) }
            return seen
        }
    }
}
