import CertificateProviding
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

/// Our configurations offer neither old versions nor key exchange without forward secrecy.
@Suite(.timeLimit(.minutes(20))) struct HardeningTests {
    /// An RSA key, since only such could do without forward secrecy. AES128-GCM-SHA256 is RSA key exchange.
    private static let ecdhe = ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]
    private static let refused = [
        ["-tls1_2", "-cipher", "AES128-GCM-SHA256"], ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256"],
        ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"],
    ]

    @Test("TLS configurations require at least TLS 1.2 and certificate verification")
    func theConfigurationsSaySo() throws {
        let authority = try authority.get()
        let credentials = try TLSCredentials(authority.issue("any"))
        let rotating = RotatingCredentials(credentials)
        for configuration in [
            try TLSConfiguration.makeClientConfiguration(presenting: credentials, trusting: authority.anchors),
            try TLSConfiguration.makeClientConfiguration(presenting: rotating, trusting: authority.anchors),
        ] {
            #expect(configuration.minimumTLSVersion == .tlsv12 && configuration.maximumTLSVersion == nil)
            #expect(configuration.certificateVerification == .fullVerification)
        }
        let server = try authority.serverConfiguration()
        #expect(server.minimumTLSVersion == .tlsv12 && server.maximumTLSVersion == nil)
        #expect(server.certificateVerification == .noHostnameVerification)
    }

    @Test("A server refuses TLS 1.1, RSA key exchange and CBC cipher suites", arguments: KeyHome.allCases)
    func aServerRefusesWhatIsWeaker(home: KeyHome) async throws {
        let pair = try Pair.of(.rsa2048)
        let configuration = try authority.get().serverConfiguration(pair.server.kept(home))
        try await withEventLoops(1) { group in
            try await withServer(configuration, on: group) { port in
                try await OpenSSL.withFiles(of: pair.client, authority: authority.get()) { options in
                    let good = try await OpenSSL.client(options + Self.ecdhe, version: nil, port: port)
                    #expect(good.contains(pair.client.fingerprint), "\(good)")
                    for weaker in Self.refused {
                        let output = try await OpenSSL.client(options + weaker, version: nil, port: port)
                        #expect(!output.contains(pair.client.fingerprint), "\(weaker): \(output)")
                        let alert = weaker[0] == "-tls1_1" ? "alert protocol version" : "alert handshake failure"
                        #expect(output.contains { $0.contains(alert) }, "\(weaker): \(output)")
                    }
                }
            }
        }
    }

    @Test("A client refuses TLS 1.1, RSA key exchange and CBC cipher suites", arguments: refused)
    func aClientRefusesWhatIsWeaker(weaker: [String]) async throws {
        let pair = try Pair.of(.rsa2048)
        try await OpenSSL.withFiles(of: pair.server, authority: authority.get()) { options in
            try await OpenSSL.server(options + weaker, version: nil) { port in
                await expect(
                    .protocolError, weaker[0] == "-tls1_1" ? "protocol_version" : "handshake_failure",
                    nativeCode: weaker[0] == "-tls1_1" ? 70 : 40
                ) {
                    try await makeProbe(port: port, presenting: pair.client).run()
                }
            }
        }
    }
}
