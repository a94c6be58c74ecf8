import CertificateProviding
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

/// A probe of a server on this machine that calls itself localhost. Long enough for a busy machine: no test waits for
/// the times it sets, unless it says so.
func makeProbe(
    port: Int, presenting identity: Identity? = nil, trusting anchors: TrustAnchors? = nil
) throws -> ConnectionProbe {
    var probe = ConnectionProbe(
        host: "127.0.0.1", port: port,
        presenting: try identity.map { identity throws in try TLSCredentials(identity) },
        trusting: try anchors ?? authority.get().anchors)
    probe.serverName = "localhost"
    probe.deadline = .seconds(600)
    probe.settlingTime = .seconds(60)
    return probe
}

/// Expects `body` to fail with `code`, and with a message that holds `fragment`.
func expect(
    _ code: ProviderError.Code, _ fragment: String, nativeCode: Int? = nil,
    sourceLocation: SourceLocation = #_sourceLocation, _ body: () async throws -> ConnectionReport
) async {
    do {
        let report = try await body()
        Issue.record("succeeded: \(report)", sourceLocation: sourceLocation)
    } catch let error as ProviderError {
        #expect(error.code == code, "\(error)", sourceLocation: sourceLocation)
        #expect(error.message.contains(fragment), "\(error)", sourceLocation: sourceLocation)
        #expect(error.nativeCode == nativeCode, "\(error)", sourceLocation: sourceLocation)
    } catch {
        Issue.record(error, sourceLocation: sourceLocation)
    }
}

extension TestAuthority {
    /// A server of this authority that demands a certificate from another one, or from itself.
    func serverConfiguration(
        _ server: Identity? = nil, trusting anchors: TrustAnchors? = nil
    ) throws -> TLSConfiguration {
        try .makeServerConfiguration(
            presenting: TLSCredentials(server ?? issue("server")),
            demandingClientCertificatesFrom: anchors ?? self.anchors)
    }
}

/// Lets everything that arrives wait, in its order: a network that is slow in one direction.
final class Delay: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    private let time: TimeAmount

    init(_ time: TimeAmount) { self.time = time }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = unwrapInboundIn(data)
        let context = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.value.eventLoop.scheduleTask(in: time) {
            context.value.fireChannelRead(Self.wrapInboundOut(buffer))
        }
    }
}
