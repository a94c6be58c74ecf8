import CertificateProviding
import NIOCore
import NIOSSL
import NIOTLS
import Synchronization

/// Stands behind the TLS handler, and makes a report of what comes out of it.
final class HandshakeObserver: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let result: EventLoopPromise<ConnectionReport>
    private let request: RequestTime
    private let expectation: Expectation
    private var connectedAt: NIODeadline?
    private var session: Session?

    struct Expectation {
        /// What the server's certificate must name; nil for an address, which NIOSSL has then compared itself.
        var serverName: String?
        var settlingTime: TimeAmount
        /// Fails the result. Ends with the handshake.
        var deadline: HandshakeDeadline
    }

    private struct Session {
        var version: TLSVersion
        var applicationProtocol: String?
        var certificate: X509Certificate
    }

    /// - Parameter result: Is completed when the first outcome shows; later ones are ignored.
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

    /// Listens for three round trips, but not beyond the deadline: the refusal comes one after the handshake, and
    /// networks are not even.
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

    /// Where the server may not have waited for the key.
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

/// When the server asked for a certificate, if it did. Written on the event loop, read from anywhere.
final class RequestTime: Sendable {
    private let noted = Mutex<NIODeadline?>(nil)
    func note() { noted.withLock { $0 = .now() } }
    var time: NIODeadline? { noted.withLock { $0 } }
}

/// After the handshake, the deadline was too near for the server's verdict to arrive.
struct VerdictOutstanding: Error {}

/// The server asked for a certificate, and ended the connection after the handshake, without data and without an alert,
/// not even close_notify.
struct ClosedWithoutReason: Error {}

extension Error {
    /// Whether the peer closed the connection in the middle of the handshake, without a word of TLS.
    fileprivate var isEndOfConnection: Bool {
        switch self as any Error {
        case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])), NIOSSLError.uncleanShutdown: true
        default: false
        }
    }
}
