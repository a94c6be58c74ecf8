import CertificateProviding
import NIOCore
import NIOSSL
import NIOTLS
import Synchronization

/// Creates the report from the events of the TLS handler before it in the pipeline.
final class HandshakeObserver: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let result: EventLoopPromise<ConnectionReport>
    private let request: RequestTime
    private let expectation: Expectation
    private var connectedAt: NIODeadline?
    private var session: Session?

    struct Expectation {
        /// The name that the server's certificate must contain; `nil` for an IP address, which NIOSSL has compared
        /// itself.
        var serverName: String?
        var settlingTime: TimeAmount
        /// Fails the result when it passes. Cancelled at the end of the handshake.
        var deadline: HandshakeDeadline
    }

    private struct Session {
        var version: TLSVersion
        var applicationProtocol: String?
        var certificate: X509Certificate
    }

    /// Creates an observer.
    ///
    /// - Parameter result: Completed with the first result; later ones are ignored.
    init(_ result: EventLoopPromise<ConnectionReport>, request: RequestTime, expecting expectation: Expectation) {
        self.result = result
        self.request = request
        self.expectation = expectation
    }

    func channelActive(context: ChannelHandlerContext) {
        connectedAt = .now()
        context.fireChannelActive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event as? SignatureEvent {
        case .begun: expectation.deadline.signatureBegins()
        case .ended: expectation.deadline.signatureEnds()
        case nil: break
        }
        if case .some(.handshakeCompleted(let applicationProtocol)) = event as? TLSUserEvent {
            do {
                try handshakeCompleted(context: context, applicationProtocol)
            } catch {
                result.fail(error)
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func handshakeCompleted(context: ChannelHandlerContext, _ applicationProtocol: String?) throws {
        expectation.deadline.cancel()
        let sync = context.pipeline.syncOperations
        guard let version = try sync.nioSSL_tlsVersion(), let leaf = try sync.tlsPeerCertificate() else {
            throw NIOSSLError.noCertificateToValidate
        }
        if let serverName = expectation.serverName, !leaf.isValid(forServerName: serverName) {
            throw NIOSSLExtraError.failedToValidateHostname
        }
        session = Session(version: version, applicationProtocol: applicationProtocol, certificate: leaf)

        guard let requestedAt = request.time, let connectedAt else { return succeed(.notRequested) }
        // Up to TLS 1.2 the server's Finished comes after its verdict.
        guard version == .tlsv13 else { return succeed(.accepted) }
        settle(context: context, roundTrip: requestedAt - connectedAt)
    }

    /// Listens for three round trips, but not beyond the deadline: a refusal arrives one round trip after the
    /// handshake, and round trips vary.
    private func settle(context: ChannelHandlerContext, roundTrip: TimeAmount) {
        let begin = NIODeadline.now()
        let end = min(begin + max(expectation.settlingTime, roundTrip * 3), expectation.deadline.limit)
        context.eventLoop.assumeIsolated().scheduleTask(deadline: end) { [self] in
            // A refusal may still be on its way, and must not be taken for consent.
            if end - begin < roundTrip { result.fail(VerdictOutstanding()) }
            succeed(.unopposed)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { succeed(.accepted) }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard connectedAt != nil else { return }  // the attempt to connect reports it
        if session != nil && TLSAlert(receivedIn: error) == nil {
            result.fail(ClosedWithoutReason())  // reset, or the end without close_notify
        } else if let closed = closedWhileSigning, error is IOError || error.isEndOfConnection {
            result.fail(closed)
        } else {
            result.fail(error)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if session != nil {
            // An end without close_notify has come to errorCaught before.
            succeed(.unopposed)
        } else if connectedAt != nil {
            result.fail(closedWhileSigning ?? ChannelError.eof)
        }
        context.fireChannelInactive()
    }

    /// The error for a server that may not have waited for the key; `nil` if the key was fast.
    private var closedWhileSigning: (any Error)? {
        let time = expectation.deadline.timeOfSignatures
        return expectation.deadline.isSigning || time >= .seconds(1) ? ClosedWhileSigning(time: time) : nil
    }

    private func succeed(_ clientAuthentication: ConnectionReport.ClientAuthentication) {
        guard let session else { return }
        result.succeed(
            ConnectionReport(
                tlsVersion: session.version, applicationProtocol: session.applicationProtocol,
                serverCertificate: session.certificate, clientAuthentication: clientAuthentication))
    }
}

/// The time at which the server asked for a certificate; `nil` if it did not. Written on the event loop, read from any
/// thread.
final class RequestTime: Sendable {
    private let noted = Mutex<NIODeadline?>(nil)
    func note() { noted.withLock { $0 = .now() } }
    var time: NIODeadline? { noted.withLock { $0 } }
}

/// The deadline left too little time after the handshake for a refusal to arrive.
struct VerdictOutstanding: Error {}

/// The server asked for a certificate, and closed the connection after the handshake without data and without an alert,
/// not even close_notify.
struct ClosedWithoutReason: Error {}

extension Error {
    /// Whether the peer closed the connection during the handshake without a TLS alert.
    fileprivate var isEndOfConnection: Bool {
        switch self as any Error {
        case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])), NIOSSLError.uncleanShutdown: true
        default: false
        }
    }
}
