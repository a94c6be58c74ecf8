import CertificateProviding
import CertificateTLS
import Foundation
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// `openssl s_server` that demands a client certificate.
struct DemandingServer {
    let url: ServerURL
    let process: Subprocess
    private let certificate: X509Certificate
    /// Goes with the server.
    private let directory: TemporaryDirectory

    /// - Parameter version: `-tls1_2` or `-tls1_3`.
    init(_ identity: Identity, _ version: String) throws {
        directory = try TemporaryDirectory()
        certificate = identity.certificate
        let key = try #require(identity.key.exporter)
        try directory.write(Array(certificate.pemRepresentation.utf8), to: "server.pem")
        try directory.write(key.pkcs8Representation().withUnsafeBytes { Array($0) }, to: "server.key")
        process = try Subprocess([
            "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", directory["server.pem"], "-key",
            directory["server.key"], "-keyform", "DER", "-Verify", "1", version,
        ])
        var line = ""
        while !line.hasPrefix("ACCEPT ") { line = try #require(process.readLine()) }
        let port = try #require(line.split(separator: ":").last)
        url = try #require(ServerURL("https://localhost:\(port)"))
    }

    /// A session that trusts the server's certificate alone.
    func session(presenting credentials: TLSCredentials? = nil) -> AuthenticatingSession {
        let trust = ServerTrust(trustAnchors: .system, pins: [CertificatePin(certificate)], isPinOnly: true)
        return AuthenticatingSession(url, .init(trust: trust, credentials: credentials, now: { Date() }), .none)
    }
}
