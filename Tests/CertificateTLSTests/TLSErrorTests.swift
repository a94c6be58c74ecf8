import CertificateProviding
import NIOCore
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

/// The errors of a service's own handshakes.
@Suite(.timeLimit(.minutes(20))) struct TLSErrorTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// From the common name of the client's authority; nil for a client without a certificate.
        var client: String?
        var isServerTrusted = true
        var code: ProviderError.Code
        var fragment: String
    }

    static let serverSees = [
        Case(testDescription: "no certificate", code: .protocolError, fragment: "presented no certificate"),
        Case(
            testDescription: "a stranger", client: "Stranger", code: .serverNotTrusted,
            fragment: "presented a certificate that is not trusted"),
        Case(
            testDescription: "a client that refuses the server", client: "Test", isServerTrusted: false,
            code: .rejected,
            fragment: "refused the certificate with the alert unknown_ca"),
    ]

    @Test(arguments: serverSees) func aServerKnowsWhyAHandshakeFailed(_ test: Case) async throws {
        let authority = try authority.get()
        let accepting = try NIOSSLContext(configuration: authority.serverConfiguration())
        var connecting = TLSConfiguration.makeClientConfiguration()
        connecting.trustRoots = try (test.isServerTrusted ? authority : TestAuthority("Stranger")).anchors.load()
        if let name = test.client {
            try TLSCredentials((name == "Test" ? authority : TestAuthority(name)).issue("client"))
                .present(in: &connecting)
        }
        let context = try NIOSSLContext(configuration: connecting)
        let error = try await withEventLoops { group in
            let caught = group.any().makePromise(of: (any Error).self)
            return try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandlers([
                    NIOSSLServerHandler(context: accepting), ErrorCatcher(caught),
                ])
            } body: { port in
                _ = try? await connect(context, port: port, on: group)
                return try await caught.futureResult.get()
            }
        }
        let reported = try #require(ProviderError(tlsError: error, from: "192.0.2.1", with: nil), "\(error)")
        #expect(reported.code == test.code, "\(reported)")
        #expect(reported.message.hasPrefix("192.0.2.1 " + test.fragment), "\(reported)")
    }

    @Test("Each alert about a certificate has an advice of its own")
    func alertsHaveAdvice() throws {
        let certificate = try authority.get().issue("client").certificate
        let alerts: [TLSAlert] = [
            .badCertificate, .unsupportedCertificate, .certificateRevoked, .certificateExpired, .certificateUnknown,
            .unknownCA, .accessDenied, .decryptError, .handshakeFailure,
        ]
        let advices = alerts.map { $0.advice(for: certificate) }
        #expect(Set(advices).count == alerts.count)
        #expect(advices.filter { $0.contains(certificate.issuer) }.count == 1)
        #expect(TLSAlert.unrecognizedName.advice != TLSAlert.noApplicationProtocol.advice)
    }

    @Test("Only TLS errors are translated, and a key's own error is kept")
    func otherErrorsAreNotOfTLS() {
        #expect(ProviderError(tlsError: ChannelError.ioOnClosedChannel, from: "peer", with: nil) == nil)
        let own = ProviderError(.tokenNotPresent, "The token was pulled out; put it back.")
        #expect(ProviderError(tlsError: own, from: "peer", with: nil)?.code == .tokenNotPresent)
        let misnamed = ProviderError(tlsError: NIOSSLExtraError.failedToValidateHostname, from: "peer", with: nil)
        #expect(misnamed?.message.contains("not valid for the requested name") == true)
    }
}

/// Keeps the first error.
private final class ErrorCatcher: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let caught: EventLoopPromise<any Error>

    init(_ caught: EventLoopPromise<any Error>) { self.caught = caught }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        caught.succeed(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) { caught.succeed(ChannelError.eof) }
}
