import CertificateProviding
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct MutualTLSTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var kind: TestAuthority.KeyKind
        var version: Version
        var home: KeyHome
        var testDescription: String { "\(kind.rawValue), \(version.rawValue), \(home.rawValue)" }
    }
    static let cases = TestAuthority.KeyKind.allCases.flatMap { kind in
        Version.allCases.flatMap { version in
            KeyHome.allCases.map { home in Case(kind: kind, version: version, home: home) }
        }
    }

    @Test("A certprov client and a certprov server authenticate each other", arguments: cases)
    func meetsOurselves(_ test: Case) async throws {
        let authority = try authority.get()
        let server = try Pair.of(test.kind).server.kept(test.home)
        let client = try Pair.of(test.kind).client.kept(test.home)
        let accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(server), demandingClientCertificatesFrom: authority.anchors)
        let connecting = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(client), trusting: authority.anchors)
        try await withEventLoops { group in
            try await withServer(accepting, on: group) { port in
                let context = try NIOSSLContext(configuration: connecting.only(test.version))
                let encounter = try await connect(context, port: port, on: group)
                #expect(encounter.version == test.version.nio)
                #expect(encounter.server == server.fingerprint)
                #expect(encounter.message == client.fingerprint)
            }
        }
    }

    @Test("A certprov client and an OpenSSL server authenticate each other", arguments: cases)
    func meetsAnOpenSSLServer(_ test: Case) async throws {
        let authority = try authority.get()
        let server = try Pair.of(test.kind).server
        let client = try Pair.of(test.kind).client.kept(test.home)
        let configuration = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(client), trusting: authority.anchors)
        try await OpenSSL.withFiles(of: server, authority: authority) { options in
            try await OpenSSL.server(options, version: test.version) { port in
                try await withEventLoops(1) { group in
                    let encounter = try await connect(
                        try NIOSSLContext(configuration: configuration), port: port, on: group, greeting: "drawer\n")
                    #expect(encounter.version == test.version.nio)
                    #expect(encounter.server == server.fingerprint)
                    #expect(encounter.message == "reward")
                }
            }
        }
    }

    @Test("A certprov server accepts the certificate of an OpenSSL client", arguments: cases)
    func meetsAnOpenSSLClient(_ test: Case) async throws {
        let authority = try authority.get()
        let server = try Pair.of(test.kind).server.kept(test.home)
        let client = try Pair.of(test.kind).client
        let configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(server), demandingClientCertificatesFrom: authority.anchors)
        try await withEventLoops(1) { group in
            try await withServer(configuration, on: group) { port in
                let output = try await OpenSSL.withFiles(of: client, authority: authority) { options in
                    try await OpenSSL.client(options, version: test.version, port: port)
                }
                #expect(output.contains(client.fingerprint), "\(output)")
            }
        }
    }

    /// The documentation of the server's configuration says it about sessions: the server remembers the client.
    @Test(arguments: Version.allCases) func aResumedSessionKeepsTheClient(version: Version) async throws {
        let authority = try authority.get()
        let pair = try Pair.of(.p256)
        let configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(pair.server), demandingClientCertificatesFrom: authority.anchors)
        try await withEventLoops(1) { group in
            try await withServer(configuration, on: group) { port in
                try await OpenSSL.withFiles(of: pair.client, authority: authority) { options in
                    let session = options[1] + ".session"
                    let first = try await OpenSSL.client(
                        options + ["-sess_out", session], version: version, port: port)
                    #expect(first.contains(pair.client.fingerprint), "\(first)")
                    // No certificate this time.
                    let second = try await OpenSSL.client(
                        options.suffix(3) + ["-sess_in", session], version: version, port: port)
                    #expect(second.contains(pair.client.fingerprint), "\(second)")
                }
            }
        }
    }
}
