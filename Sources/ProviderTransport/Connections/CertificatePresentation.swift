import CertificateProviding
import CertificateTLS
import NIOCore
import NIOSSL
import Synchronization

/// Whether our certificate was sent over a connection, and the alert that ended it.
///
/// It is seen in what TLS writes, since a callback of NIOSSL about the server's request for a certificate would exclude
/// renegotiation.
final class CertificatePresentation: Sendable {
    private struct State {
        var isSent = false
        var isComplete = false
        var hasChangedCipher = false
        /// TLS 1.2: the messages after our first ChangeCipherSpec. The first is our Finished, the second the ClientHello
        /// of a renegotiation.
        var encryptedMessages = 0
        /// TLS 1.3: the size of our last messages in the handshake, in bytes.
        var lastFlight = 0
        var end: (any Error)?
    }
    private let state = Mutex(State())
    private let binding: ChannelBinding

    /// In bytes. Without a certificate, our last messages in TLS 1.3 are an empty Certificate and Finished: 94 bytes at most.
    private static let smallestCertificate = 128

    private let hasCertificate: Bool

    /// - Parameter hasCertificate: Whether there is a certificate to be sent.
    init(_ binding: ChannelBinding, hasCertificate: Bool) {
        (self.binding, self.hasCertificate) = (binding, hasCertificate)
    }

    /// Whether the verified server has requested a certificate, and got ours. A token may take long to sign before.
    var isSent: Bool {
        guard hasCertificate else { return false }
        let state = state.withLock(\.self)
        // TLS 1.2 requests it in plaintext, and our answer ends with the ChangeCipherSpec.
        return state.isSent || state.hasChangedCipher && binding.hasCertificateRequest
    }

    /// The error with the server's alert. In TLS 1.3 a refusal may arrive after the handshake and before the request, which
    /// then fails because the channel is closed.
    var alert: (any Error)? { state.withLock(\.end) }

    /// Records an error of the connection, if it is an alert of the server.
    func note(_ error: any Error) {
        guard TLSAlert(receivedIn: error) != nil else { return }
        state.withLock { $0.end = $0.end ?? error }
    }

    /// Records that the handshake is complete on our side.
    func complete() { state.withLock { $0.isComplete = true } }

    /// Returns a handler that observes what TLS writes.
    func makeRecorder() -> some ChannelHandler { Recorder(self) }

    private func noteRecord(_ kind: TLSRecords.Kind, _ length: Int) {
        state.withLock { state in
            switch kind {
            case .changeCipherSpec: state.hasChangedCipher = true
            case .handshake where state.hasChangedCipher:
                state.encryptedMessages += 1
                if state.encryptedMessages > 2 { state.isSent = true }
            case .applicationData where !state.isComplete:
                state.lastFlight += length
                if state.lastFlight >= Self.smallestCertificate { state.isSent = true }
            default: break
            }
        }
    }

    private final class Recorder: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        private let presentation: CertificatePresentation
        private var records = TLSRecords()

        init(_ presentation: CertificatePresentation) { self.presentation = presentation }

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            records.read(unwrapOutboundIn(data)) { presentation.noteRecord($0, $1) }
            context.write(data, promise: promise)
        }
    }
}

extension ProviderError {
    /// Returns the error with the reason ``Reason/rejectedCertificate`` if the server ended the connection after our certificate was
    /// sent. Not every server says that it refuses one, and in TLS 1.3 it can do so only after the handshake.
    func marked(asEndBy cause: any Error, after presentation: CertificatePresentation?) -> Self {
        guard presentation?.isSent == true, cause.isEndByServer else { return self }
        var copy = self
        copy.reason = .rejectedCertificate
        return copy
    }
}

extension Error {
    /// Whether the server has ended the connection: by an alert, or before any answer and any request that it may have acted upon.
    /// False for a failure that the server did not cause, such as a deadline.
    fileprivate var isEndByServer: Bool {
        switch self as any Error {
        case ExchangeFailure.unanswered, ChannelError.eof, ChannelError.ioOnClosedChannel, ChannelError.alreadyClosed,
            NIOSSLError.uncleanShutdown, NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
            true
        default: self is IOError || TLSAlert(receivedIn: self) != nil
        }
    }
}
