import CertificateProviding
import NIOCore
import NIOSSL
import NIOTLS

/// Stands behind the TLS handler, and makes a report of what comes out of it.
final class HandshakeObserver: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let result: EventLoopPromise<ConnectionReport>
    private let request: CertificateRequest
    private let settlingTime: TimeAmount
    private var isConnected = false
    private var session: Session?

    private struct Session {
        var version: TLSVersion
        var applicationProtocol: String?
        var certificate: X509Certificate
    }

    /// - Parameter result: Is completed when the first outcome shows; later ones are ignored.
    init(_ result: EventLoopPromise<ConnectionReport>, request: CertificateRequest, settlingTime: TimeAmount) {
        self.result = result
        self.request = request
        self.settlingTime = settlingTime
    }

    func channelActive(context: ChannelHandlerContext) {
        isConnected = true
        context.fireChannelActive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.handshakeCompleted(let applicationProtocol)) = event as? TLSUserEvent {
            handshakeCompleted(context: context, applicationProtocol)
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func handshakeCompleted(context: ChannelHandlerContext, _ applicationProtocol: String?) {
        do {
            let sync = context.pipeline.syncOperations
            guard let version = try sync.nioSSL_tlsVersion(), let certificate = try sync.nioSSL_peerCertificate() else {
                throw NIOSSLError.noCertificateToValidate
            }
            session = Session(
                version: version, applicationProtocol: applicationProtocol,
                certificate: try X509Certificate(derRepresentation: certificate.toDERBytes()))
        } catch {
            result.fail(error)
            return
        }
        guard request.wasMade else { return succeed(.notRequested) }
        // Up to TLS 1.2 the server's Finished comes after its verdict.
        guard session?.version == .tlsv13 else { return succeed(.accepted) }
        context.eventLoop.assumeIsolated().scheduleTask(in: settlingTime) { self.succeed(.unopposed) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { succeed(.accepted) }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard isConnected else { return }  // the attempt to connect reports it
        if session != nil && TLSAlert(receivedIn: error) == nil {
            succeed(.closed)  // reset, or the end without close_notify
        } else {
            result.fail(error)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if session != nil {
            succeed(.closed)
        } else if isConnected {
            result.fail(ChannelError.eof)
        }
        context.fireChannelInactive()
    }

    private func succeed(_ clientAuthentication: ConnectionReport.ClientAuthentication) {
        guard let session else { return }
        result.succeed(
            ConnectionReport(
                tlsVersion: session.version, applicationProtocol: session.applicationProtocol,
                serverCertificate: session.certificate, clientAuthentication: clientAuthentication))
    }
}
