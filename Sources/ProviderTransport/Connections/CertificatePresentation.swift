public import CertificateProviding
import CertificateTLS
import NIOCore
import NIOSSL
import Synchronization

/// Whether our certificate was sent over a connection, and the alert that ended it.
final class CertificatePresentation: Sendable {
    private enum Stage { case none, requested, sent }
    private let stage = Mutex(Stage.none)
    private let end = Mutex<(any Error)?>(nil)

    var isSent: Bool { stage.withLock { $0 == .sent } }

    /// The error with the server's alert. In TLS 1.3 a refusal may arrive after the handshake and before the request, which
    /// then fails because the channel is closed.
    var alert: (any Error)? { end.withLock(\.self) }

    /// Records an error of the connection, if it is an alert of the server.
    func note(_ error: any Error) {
        guard TLSAlert(receivedIn: error) != nil else { return }
        end.withLock { $0 = $0 ?? error }
    }

    /// Records that the verified server has requested a certificate. The certificate may be sent much later, since a
    /// token may be slow to sign.
    func request() { stage.withLock { $0 = .requested } }

    /// Returns a handler that observes what TLS writes. The first write after the request contains the certificate.
    func makeRecorder() -> some ChannelHandler { Recorder(self) }

    private func noteWrite() { stage.withLock { if $0 == .requested { $0 = .sent } } }

    private final class Recorder: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        private let presentation: CertificatePresentation

        init(_ presentation: CertificatePresentation) { self.presentation = presentation }

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            presentation.noteWrite()
            context.write(data, promise: promise)
        }
    }
}

/// The server ended the connection, with or without an alert, after our certificate was sent and before any answer. It
/// probably refuses the certificate: not every server says so, and in TLS 1.3 it can do so only after the handshake.
struct EndAfterCertificate: Error {
    let cause: any Error

    /// `nil` for a failure that the server did not cause, such as a deadline.
    init?(_ cause: any Error) {
        switch cause {
        case ExchangeFailure.unanswered, ChannelError.eof, ChannelError.ioOnClosedChannel, ChannelError.alreadyClosed,
            NIOSSLError.uncleanShutdown, NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
            break
        default: guard cause is IOError || TLSAlert(receivedIn: cause) != nil else { return nil }
        }
        self.cause = cause
    }
}

extension CertificateProviderError {
    /// Whether a trusted server ended the connection after our certificate was sent and before it answered.
    public var isEndAfterCertificate: Bool { underlying is EndAfterCertificate }

    func marked(asEndBy cause: any Error, after presentation: CertificatePresentation?) -> Self {
        guard presentation?.isSent == true, let end = EndAfterCertificate(cause) else { return self }
        var copy = self
        copy.underlying = end
        return copy
    }
}
