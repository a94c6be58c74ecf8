import CertificateProviding
import NIOCore
import NIOSSL
import NIOTLS
import Synchronization

/// Creates the report from the events of the TLS handler before it in the pipeline.
final class HandshakeObserver: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let result: EventLoopPromise<ConnectionReport>
    private let request: RequestTime
    private let expectation: Expectation
    private var connectedAt: NIODeadline?
    private var session: Session?
    /// Whether the server has sent session tickets, which it does after it has taken the client's part of the handshake (RFC
    /// 8446, section 4.6.1).
    private var hasSentTickets = false
    private var answer = HTTPStatusLine()

    struct Expectation {
        var settlingTime: TimeAmount
        /// Fails the result when it passes. Cancelled at the end of the handshake.
        var deadline: HandshakeDeadline
        /// The HTTP request to send after the handshake; `nil` for none.
        var httpRequest: String?
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

    /// Returns a handler for the place before the TLS handler, where tickets can be seen.
    func makeRecordObserver() -> some ChannelHandler { RecordObserver(self) }

    private final class RecordObserver: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        private let observer: HandshakeObserver
        private var records = TLSRecords()

        init(_ observer: HandshakeObserver) { self.observer = observer }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            records.read(unwrapInboundIn(data)) { kind, length in
                // An encrypted alert has 19 bytes: two of its own, one for the type, 16 for the tag.
                if observer.session != nil, kind == .applicationData, length > 19 { observer.hasSentTickets = true }
            }
            context.fireChannelRead(data)
        }
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
        guard let version = try sync.nioSSL_tlsVersion(), let leaf = try sync.tlsPeer()?.certificate else {
            throw NIOSSLError.noCertificateToValidate
        }
        session = Session(version: version, applicationProtocol: applicationProtocol, certificate: leaf)
        if let httpRequest = expectation.httpRequest {
            context.eventLoop.assumeIsolated().scheduleTask(deadline: expectation.deadline.limit) { [self] in
                result.fail(AnswerOutstanding())
            }
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: httpRequest)), promise: nil)
            return
        }
        guard let requestedAt = request.time, let connectedAt else { return succeed(.notRequested) }
        // Up to TLS 1.2 the server's Finished comes after its verdict.
        guard version == .tlsv13 else { return succeed(.completed) }
        settle(context: context, roundTrip: requestedAt - connectedAt)
    }

    private func settle(context: ChannelHandlerContext, roundTrip: TimeAmount) {
        let listening = Listening(
            settlingTime: expectation.settlingTime, roundTrip: roundTrip, left: expectation.deadline.limit - .now())
        context.eventLoop.assumeIsolated().scheduleTask(in: listening.time) { [self] in
            if !hasSentTickets, !listening.isLongEnough { result.fail(VerdictOutstanding()) }
            succeed(hasSentTickets ? .completed : .unopposed)
        }
    }

    /// How long a client listens for a refusal: for three round trips, but not beyond the deadline. A refusal arrives one round
    /// trip after the handshake, and round trips vary.
    struct Listening: Equatable {
        let time: TimeAmount
        /// Whether a refusal would have arrived: one that may still be on its way must not be taken for consent.
        let isLongEnough: Bool

        /// - Parameter left: The time until the deadline.
        init(settlingTime: TimeAmount, roundTrip: TimeAmount, left: TimeAmount) {
            time = min(max(settlingTime, roundTrip * 3), left)
            isLongEnough = time >= roundTrip
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard expectation.httpRequest != nil else { return succeed(.completed) }
        switch answer.read(unwrapInboundIn(data)) {
        case .status(let status): succeed(request.time == nil ? .notRequested : .completed, httpStatus: status)
        case .incomplete: break
        case .notHTTP: result.fail(NotHTTP())
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard connectedAt != nil else { return }  // the attempt to connect reports it
        if session != nil, error is IOError || error as? NIOSSLError == .uncleanShutdown {
            ended(error: ClosedWithoutReason())  // reset, or the end without close_notify
        } else if let closed = closedWhileSigning, error is IOError || error.isEndOfConnection {
            result.fail(closed)
        } else {
            result.fail(error)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if session != nil {
            // An end without close_notify has come to errorCaught before.
            ended(error: nil)
        } else if connectedAt != nil {
            result.fail(closedWhileSigning ?? ChannelError.eof)
        }
        context.fireChannelInactive()
    }

    /// The connection has ended after the handshake.
    ///
    /// - Parameter error: What that means if the server has not shown that it has completed the handshake.
    private func ended(error: (any Error)?) {
        if expectation.httpRequest == nil {
            if hasSentTickets { return succeed(.completed) }
            if let error { return result.fail(error) }
            return succeed(.unopposed)
        }
        // A certificate that the server does not want may be the reason, as long as nothing else came.
        let isVerdict = request.time != nil && session?.version == .tlsv13 && !hasSentTickets
        result.fail(isVerdict ? error ?? ClosedWithoutAnswer() : ClosedWithoutAnswer())
    }

    /// The error for a server that may not have waited for the key; `nil` if the key was fast.
    private var closedWhileSigning: (any Error)? {
        let time = expectation.deadline.timeOfSignatures
        return expectation.deadline.isSigning || time >= .seconds(1) ? ClosedWhileSigning(time: time) : nil
    }

    private func succeed(
        _ clientAuthentication: ConnectionReport.ClientAuthentication, httpStatus: Int? = nil
    ) {
        guard let session else { return }
        result.succeed(
            ConnectionReport(
                tlsVersion: session.version, applicationProtocol: session.applicationProtocol,
                serverCertificate: session.certificate, clientAuthentication: clientAuthentication,
                httpStatus: httpStatus))
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

/// The server closed the connection without an answer to the HTTP request.
struct ClosedWithoutAnswer: Error {}

/// The server had not answered the HTTP request at the deadline.
struct AnswerOutstanding: Error {}

/// The server's answer to the HTTP request is something else.
struct NotHTTP: Error {}

/// The first line of an HTTP/1.1 response (RFC 9112, section 4). Interim responses (RFC 9110, section 15.2) are skipped.
struct HTTPStatusLine {
    enum Outcome { case incomplete, notHTTP, status(Int) }
    private var bytes: [UInt8] = []

    /// In bytes: of a line, and of the head of an interim response.
    private static let maximumLength = 8192

    mutating func read(_ part: ByteBuffer) -> Outcome {
        bytes += part.readableBytesView
        guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")) else {
            let isPossible = bytes.count <= Self.maximumLength && "HTTP/1.".utf8.starts(with: bytes.prefix(7))
            return isPossible ? .incomplete : .notHTTP
        }
        let words = String(decoding: bytes[..<end], as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), words[1].utf8.count == 3,
            let status = Int(words[1]), (100...599).contains(status)
        else { return .notHTTP }
        if status >= 200 { return .status(status) }
        guard let head = bytes.firstRange(of: "\r\n\r\n".utf8) else {
            return bytes.count <= Self.maximumLength ? .incomplete : .notHTTP
        }
        bytes.removeSubrange(..<head.upperBound)
        return bytes.isEmpty ? .incomplete : read(ByteBuffer())
    }
}

extension Error {
    /// Whether the peer closed the connection during the handshake without a TLS alert.
    fileprivate var isEndOfConnection: Bool {
        switch self as any Error {
        case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])), NIOSSLError.uncleanShutdown: true
        default: false
        }
    }
}
