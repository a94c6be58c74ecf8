import CertificateProviding
import Foundation
import TestSupport

@testable import Signing

/// The time-stamp server `tsa.py`, for as long as this object lives.
final class TimeStampAuthority: Sendable {
    let directory: TemporaryDirectory
    private let process: Subprocess
    private let port: String
    let anchors: [X509Certificate]

    /// One for all tests: its authority and its signers are RSA keys.
    static let shared = Result { try TimeStampAuthority() }

    private init() throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "tsa.py").path
        process = try Subprocess(["python3", script, directory.path], .held)
        var port = ""
        while port.isEmpty {
            guard !process.hasEnded else { throw Subprocess.Failure(description: "tsa.py: \(process.wait())") }
            usleep(5000)
            port = (try? String(contentsOfFile: directory["port"], encoding: .utf8)) ?? ""
        }
        self.port = port
        anchors = try CertificateFile.read(directory["ca.pem"])
    }

    /// The server, with a fault of the script.
    func server(_ fault: String = "ok") throws -> TimeStampServer {
        var server = try TimeStampServer("http://127.0.0.1:\(port)/\(fault)", anchors: anchors)
        server.policy = "1.2.3.4.1"
        // A host that is busy needs longer than ten seconds.
        server.timeout = .seconds(600)
        return server
    }

    /// How often a wrong password of a user has come.
    func wrongLogins(of user: String) throws -> Int? {
        let count = try Subprocess.run(
            [
                "curl", "--silent", "--header", "Content-Type: application/timestamp-query", "--data", user,
                "http://127.0.0.1:\(port)/logins",
            ])
        return Int(String(decoding: count, as: UTF8.self))
    }

    /// Throws unless OpenSSL's command accepts a token for these bytes.
    func opensslVerify(_ token: [UInt8], of data: [UInt8]) throws {
        let folder = try TemporaryDirectory()
        try folder.write(token, to: "token")
        try folder.write(data, to: "data")
        try Subprocess.openssl(
            "ts", "-verify", "-token_in", "-in", "token", "-data", "data", "-CAfile", directory["ca.pem"],
            in: folder.path)
    }
}
