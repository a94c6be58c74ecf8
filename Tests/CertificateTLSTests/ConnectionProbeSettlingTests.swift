import CertificateProviding
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import TestSupport
import Testing

@testable import CertificateTLS

/// The probe's verdict on a TLS 1.3 server after the handshake.
@Suite(.timeLimit(.minutes(20))) struct ConnectionProbeSettlingTests {
    /// Runs a probe against a server whose connections have `handlers` and then its TLS handler.
    private func run(
        _ configuration: TLSConfiguration? = nil, before: @escaping @Sendable () -> [any ChannelHandler] = { [] },
        after: @escaping @Sendable () -> [any ChannelHandler] = { [] }, settlingTime: Duration = .milliseconds(50),
        deadline: Duration = .seconds(600), presentsIdentity: Bool = true
    ) async throws -> ConnectionReport {
        let authority = try authority.get()
        let context = try NIOSSLContext(configuration: configuration ?? authority.serverConfiguration())
        return try await withEventLoops { group in
            try await withServer(on: group) { channel in
                let sync = channel.pipeline.syncOperations
                try sync.addHandlers(before() + [NIOSSLServerHandler(context: context)] + after())
            } body: { port in
                var probe = try makeProbe(port: port, presenting: presentsIdentity ? authority.issue("client") : nil)
                probe.settlingTime = settlingTime
                probe.deadline = deadline
                return try await probe.run(on: group)
            }
        }
    }

    @Test func aSilentServerIsUnopposed() async throws {
        #expect(try await run().clientAuthentication == .unopposed)
    }

    /// The refusal takes longer than the settling time, but as long as everything else takes.
    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func aRefusalOverASlowNetworkIsRejected() async throws {
        let strangers = try authority.get().serverConfiguration(trusting: TestAuthority("Stranger").anchors)
        await expect(.rejected, "refused the client certificate", nativeCode: 48) {
            try await run(strangers, before: { [Delay(.seconds(2))] })
        }
    }

    /// The handshake was in time, and a refusal would have been.
    @Test(
        "The probe stops listening for a refusal at its deadline",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func theDeadlineEndsTheListening() async throws {
        // A host that is busy needs a longer one.
        for deadline in [2, 30] {
            do {
                let report = try await run(settlingTime: .seconds(600), deadline: .seconds(deadline))
                #expect(report.clientAuthentication == .unopposed)
                return
            } catch let error as ProviderError where error.code == .timedOut {}
        }
        Issue.record("no deadline was long enough")
    }

    /// The handshake was in time, but a refusal would not have been.
    @Test(
        "A deadline before the server's verdict gives a timeout, not a success",
        arguments: [
            (4, 3, 3, false), (4, 4, 4, true), (4, 20, 12, true), (0, 20, 1, true), (4, 0, 0, false),
            (4, -1, -1, false),
        ])
    func aDeadlineBeforeTheVerdictIsNoConsent(
        roundTrip: Int64, left: Int64, time: Int64, isLongEnough: Bool
    ) async throws {
        let listening = HandshakeObserver.Listening(
            settlingTime: .seconds(1), roundTrip: .seconds(roundTrip), left: .seconds(left))
        #expect(listening.time == .seconds(time) && listening.isLongEnough == isLongEnough)
        let error = try makeProbe(port: 1, presenting: nil).failure(VerdictOutstanding(), certificateRequested: true)
        #expect(error.code == .timedOut && error.message.contains("completed the TLS handshake"))
    }

    /// The server takes clients without a certificate as well.
    @Test(arguments: [true, false]) func aCloseNotifyIsNoRefusal(presentsIdentity: Bool) async throws {
        var configuration = try authority.get().serverConfiguration()
        configuration.certificateVerification = .optionalVerification
        let report = try await run(
            configuration, after: { [Closer(isOrderly: true)] }, settlingTime: .seconds(60),
            presentsIdentity: presentsIdentity)
        // BoringSSL sends its tickets with the close_notify.
        #expect(report.clientAuthentication == .completed)
    }

    @Test func anEndWithoutCloseNotifyIsNoConsent() async throws {
        await expect(.rejected, "closed the connection without giving a reason") {
            try await run(
                before: { [Cutter()] }, after: { [Closer(isOrderly: false)] }, settlingTime: .seconds(60))
        }
    }
}

/// Closes the connection when the handshake is complete, by itself or by a ``Cutter``.
private final class Closer: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let isOrderly: Bool

    init(isOrderly: Bool) { self.isOrderly = isOrderly }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .some(.handshakeCompleted) = event as? TLSUserEvent else { return }
        if isOrderly {
            context.close(promise: nil)
        } else {
            context.triggerUserOutboundEvent(Cutter.CutOff(), promise: nil)
        }
    }
}

/// Closes the connection below TLS, which sends nothing then.
private final class Cutter: ChannelOutboundHandler {
    struct CutOff: Sendable {}
    typealias OutboundIn = ByteBuffer

    func triggerUserOutboundEvent(context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?) {
        if event is CutOff { context.close(promise: nil) }
        promise?.succeed()
    }
}
