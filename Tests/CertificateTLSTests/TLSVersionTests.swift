import CertificateProviding
import NIOCore
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

/// RSA keys that sign by PKCS#1 v1.5 only, as of a token that knows no PSS: TLS 1.3 has nothing for them.
@Suite(.timeLimit(.minutes(20))) struct TLSVersionTests {
    private enum Source: CaseIterable { case fixed, rotating }

    private func withoutPSS(_ identity: Identity) throws -> TLSCredentials {
        try TLSCredentials(
            identity.with(TestKey(identity.key, signatureSchemes: [.rsaPKCS1SHA256, .rsaPKCS1SHA384])))
    }

    /// Both sides offer both versions, but for the one with such a key.
    @Test("A handshake with an RSA key without PSS uses TLS 1.2", arguments: Source.allCases)
    private
        func aHandshakeIsOfTLS12(source: Source) async throws
    {
        let pair = try Pair.of(.rsa2048)
        let anchors = try authority.get().anchors
        let weak = try (client: withoutPSS(pair.client), server: withoutPSS(pair.server))
        let rotating = (client: RotatingCredentials(weak.client), server: RotatingCredentials(weak.server))
        let serverWithPSS = try authority.get().serverConfiguration(pair.server)
        let clientWithPSS = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(pair.client), trusting: anchors)
        let server: TLSConfiguration =
            source == .fixed
            ? try .makeServerConfiguration(presenting: weak.server, demandingClientCertificatesFrom: anchors)
            : try .makeServerConfiguration(presenting: rotating.server, demandingClientCertificatesFrom: anchors)
        let client: TLSConfiguration =
            source == .fixed
            ? try .makeClientConfiguration(presenting: weak.client, trusting: anchors)
            : try .makeClientConfiguration(presenting: rotating.client, trusting: anchors)
        for (accepting, connecting) in [(serverWithPSS, client), (server, clientWithPSS), (server, client)] {
            let context = try NIOSSLContext(configuration: connecting)
            try await withEventLoops(1) { group in
                try await withServer(accepting, on: group) { port in
                    let encounter = try await connect(context, port: port, on: group)
                    #expect(encounter.version == .tlsv12)
                    #expect(encounter.message == pair.client.fingerprint && encounter.server == pair.server.fingerprint)
                }
            }
        }
    }

    @Test("The TLS version is limited only for a key without PSS, and a lower limit stays")
    func othersStayAsTheyAre() throws {
        var configuration = TLSConfiguration.makeClientConfiguration()
        try TLSCredentials(Pair.of(.rsa2048).client.keptAtHome()).present(in: &configuration)
        #expect(configuration.maximumTLSVersion == nil)
        let weak = try withoutPSS(Pair.of(.rsa2048).client)
        configuration.maximumTLSVersion = .tlsv11
        weak.present(in: &configuration)
        #expect(configuration.maximumTLSVersion == .tlsv11)
    }

    /// The caller demands TLS 1.3, before or after.
    @Test(
        "A client that demands TLS 1.3 for a key without PSS gets an error with the reason", arguments: [true, false])
    func whoDemandsTLS13HearsWhyNot(isDemandedBefore: Bool) async throws {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.trustRoots = try authority.get().anchors.load()
        if isDemandedBefore { configuration.minimumTLSVersion = .tlsv13 }
        try withoutPSS(Pair.of(.rsa2048).client).present(in: &configuration)
        configuration.minimumTLSVersion = .tlsv13
        try await refused(configuration, by: authority.get().serverConfiguration(), as: .unsupportedAlgorithm)
    }

    @Test("With a key without PSS, a server that demands TLS 1.3 gives an error with the reason")
    func aServerThatDemandsTLS13IsNamed() async throws {
        let client = try TLSConfiguration.makeClientConfiguration(
            presenting: withoutPSS(Pair.of(.rsa2048).client), trusting: authority.get().anchors)
        try await refused(client, by: authority.get().serverConfiguration().only(.tls13), as: .protocolError)
    }

    private func refused(
        _ configuration: TLSConfiguration, by server: TLSConfiguration, as code: ProviderError.Code
    ) async throws {
        let context = try NIOSSLContext(configuration: configuration)
        try await withEventLoops(1) { group in
            try await withServer(server, on: group) { port in
                await #expect {
                    _ = try await connect(context, port: port, on: group)
                } throws: { error in
                    let key = try Pair.of(.rsa2048).client.certificate.publicKey
                    let reported = ProviderError(tlsError: error, from: "the server", with: key)
                    return reported?.code == code && reported?.message.contains("with TLS 1.2") == true
                }
            }
        }
    }
}
