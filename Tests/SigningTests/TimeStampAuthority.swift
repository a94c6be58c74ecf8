import CertificateProviding
import Foundation
import TestSupport

@testable import Signing

/// The time-stamp server `tsa.py`, for as long as this object lives.
final class TimeStampAuthority: Sendable {
    private let script: ServerScript
    let anchors: [X509Certificate]

    /// One for all tests: its authority and its signers are RSA keys.
    static let shared = Result { try TimeStampAuthority() }

    private init() throws {
        script = try ServerScript("tsa.py")
        anchors = try CertificateFile.read(script.directory["ca.pem"])
    }

    var directory: TemporaryDirectory { script.directory }

    /// The server, with a fault of the script.
    func server(_ fault: String = "ok") throws -> TimeStampServer {
        var server = try TimeStampServer("\(script.origin)/\(fault)", anchors: anchors)
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
                "\(script.origin)/logins",
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
