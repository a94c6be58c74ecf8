import CertificateProviding
import Enrolment
import CertificateTLS
import Foundation
import Glibc
import NIOCore
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Apache before an EST server, which asks for a client certificate for one path only: by renegotiation in TLS 1.2, after the
/// handshake in TLS 1.3.
@Suite(.timeLimit(.minutes(20))) struct LateCertificateTests {
    private static let apache = "/usr/sbin/apache2"
    private static let isInstalled = FileManager.default.fileExists(atPath: apache)

    @Test(
        "In TLS 1.2 the client certificate is shown in a renegotiation", .enabled(if: isInstalled, "needs apache2-bin"))
    func enrolsByRenegotiation() async throws {
        let server = try await Front("TLSv1.2")
        let identity = try await server.provider().getCertificate(NoUserInteraction())
        #expect(server.backend.issued == 1 && identity.certificate.subject.contains("CN=client"))
    }

    @Test(
        "If a renegotiation refuses the current certificate, the device certificate renews",
        .enabled(if: isInstalled, "needs apache2-bin"))
    func renewsByTheDeviceCertificate() async throws {
        let server = try await Front("TLSv1.2")
        let provider = try server.provider()
        let first = try await provider.getCertificate(NoUserInteraction())
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(server.backend.issued == 2 && first.certificate != second.certificate)
    }

    @Test(
        "In TLS 1.3 the error names the cause and the server's setting", .enabled(if: isInstalled, "needs apache2-bin"),
        arguments: ["est", "scep"])
    func namesTheSettingForTLS13(enrolmentProtocol: String) async throws {
        let server = try await Front("TLSv1.3")
        let path = enrolmentProtocol == "scep" ? Front.path : ""
        let provider = try server.provider([
            "protocol": enrolmentProtocol, "url": "https://localhost:\(server.port)\(path)",
        ])
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 403, "\(String(describing: error))")
        #expect(error?.message.contains("SSLVerifyClient for the whole host") == true, "\(String(describing: error))")
    }

    /// NIOSSL cannot wait for a key in a renegotiation.
    @Test(
        "A key in a token gives an error that names the renegotiation", .enabled(if: isInstalled, "needs apache2-bin"))
    func aKeyThatIsElsewhereIsNamed() async throws {
        let server = try await Front("TLSv1.2")
        let own = try TestAuthority().issue("client", kind: .rsa2048)
        let identity = try own.with(TestKey(own.key))
        let trust = ServerTrust(trustAnchors: .pemFile(server.directory["anchors.pem"]))
        let url = try #require(ServerURL("https://localhost:\(server.port)"))
        let session = AuthenticatingSession(url, .init(trust: trust, credentials: try TLSCredentials(identity)), .none)
        let error = await #expect(throws: ProviderError.self) {
            let request = HTTPRequest(method: .post, target: Front.path, body: [1])
            _ = try await session.response(to: request, before: .now() + .seconds(600))
        }
        #expect(error?.code == .protocolError, "\(String(describing: error))")
        #expect(error?.message.contains("(renegotiation)") == true, "\(String(describing: error))")
    }

    /// Apache and the EST server behind it.
    private final class Front {
        static let path = "/.well-known/est/simpleenroll"
        let backend: ESTServer
        let directory: TemporaryDirectory
        let port: Int
        private let process: Subprocess

        init(_ version: String) async throws {
            backend = try await ESTServer.start("--auth", "none")
            directory = try TemporaryDirectory()
            for name in ["server", "device"] {
                try Subprocess.openssl(
                    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout",
                    "\(name).key", "-out", "\(name).pem", "-days", "2", "-subj", "/CN=\(name)", "-addext",
                    "subjectAltName=DNS:localhost", in: directory.path)
            }
            let certificates = try [directory["server.pem"], backend.directory["ca.pem"]]
                .map { try String(contentsOfFile: $0, encoding: .utf8) }
            try directory.write(certificates.joined().utf8, to: "anchors.pem")
            var attempt = 0
            while true {
                let port = Int.random(in: 20_000..<30_000)
                try directory.write(
                    Self.configuration(directory.path, port, backend, version).utf8, to: "apache.conf")
                let process = try Subprocess([
                    LateCertificateTests.apache, "-DFOREGROUND", "-f", directory["apache.conf"],
                ])
                // It removes the file of its id when the port is taken, and never writes it.
                let isUp = try await Self.hasStarted(directory["pid"], directory["error"])
                attempt += 1
                guard isUp || attempt > 20 else { continue }
                try #require(isUp)
                (self.port, self.process) = (port, process)
                return
            }
        }

        private static func hasStarted(_ pid: String, _ log: String) async throws -> Bool {
            while true {
                if FileManager.default.fileExists(atPath: pid) { return true }
                let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
                if text.contains("could not bind") || text.contains("Unable to open logs") {
                    try? FileManager.default.removeItem(atPath: log)
                    return false
                }
                try await Task.sleep(for: .milliseconds(10))
            }
        }

        private static func configuration(
            _ directory: String, _ port: Int, _ backend: ESTServer, _ version: String
        ) -> String {
            let modules = ["mpm_event", "ssl", "proxy", "proxy_http", "authz_core"]
                .map { "LoadModule \($0)_module /usr/lib/apache2/modules/mod_\($0).so\n" }
            return """
                ServerRoot \(directory)
                PidFile pid
                Listen 127.0.0.1:\(port)
                ServerName localhost
                \(modules.joined())ErrorLog error
                DefaultRuntimeDir \(directory)
                SSLEngine on
                SSLProtocol -all +\(version)
                SSLCertificateFile server.pem
                SSLCertificateKeyFile server.key
                SSLCACertificateFile device.pem
                SSLProxyEngine on
                ProxyPass / https://localhost:\(backend.port)/
                <LocationMatch "/simple(re)?enroll$">
                SSLVerifyClient require
                </LocationMatch>

                """
        }

        func provider(_ settings: [String: String] = [:]) throws -> EnrollingProvider {
            let key = directory["device.key"]
            chmod(key, 0o600)
            let all = [
                "url": "https://localhost:\(port)", "trust-anchors": directory["anchors.pem"], "username": "",
                "password-source": "", "client-certificate": directory["device.pem"],
                "client-key-source": "file:\(key)",
            ]
            return try backend.provider(all.merging(settings) { $1 })
        }
    }
}
