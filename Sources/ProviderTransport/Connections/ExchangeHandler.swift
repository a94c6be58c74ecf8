import NIOCore
import NIOHTTP1
import NIOSSL

/// A request that is being sent, and the promise of its response.
struct Exchange: Sendable {
    let request: HTTPRequest
    let authority: String
    let limit: Int
    let deadline: NIODeadline
    let answer: EventLoopPromise<Answer>

    struct Answer: Sendable {
        let response: HTTPResponse
        /// Whether the connection ends after this response.
        let isLast: Bool
    }
}

enum ExchangeFailure: Error {
    /// The connection ended before the response was complete.
    case cutOff
    /// The connection ended before the response began.
    case unanswered
    case tooLarge(limit: Int)
    case timedOut
}

/// Sends one request at a time, and collects each response completely. A refusal of credentials (401, 407) is a response
/// as soon as its head is there, whatever becomes of its body.
final class ExchangeHandler: ChannelDuplexHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias InboundOut = Never
    typealias OutboundIn = Exchange
    typealias OutboundOut = HTTPClientRequestPart

    private var exchange: Exchange?
    private var timer: Scheduled<Void>?
    private var head: HTTPResponseHead?
    private var body: [UInt8] = []

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let exchange = unwrapOutboundIn(data)
        guard self.exchange == nil else { return exchange.answer.fail(ExchangeFailure.unanswered) }
        self.exchange = exchange
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(deadline: exchange.deadline) {
            channel.pipeline.fireErrorCaught(ExchangeFailure.timedOut)
        }
        let request = exchange.request
        var headers = request.headers
        headers.replaceOrAdd(name: "Host", value: exchange.authority)
        if ![.get, .delete].contains(request.method) || !request.body.isEmpty {
            headers.replaceOrAdd(name: "Content-Length", value: String(request.body.count))
        }
        let method = HTTPMethod(rawValue: request.method.rawValue)
        context.write(
            wrapOutboundOut(.head(.init(version: .http1_1, method: method, uri: request.target, headers: headers))),
            promise: nil)
        if !request.body.isEmpty {
            context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: request.body)))), promise: nil)
        }
        context.write(wrapOutboundOut(.end(nil)), promise: promise)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Data without a request is not a response.
        guard let exchange else { return context.close(promise: nil) }
        switch unwrapInboundIn(data) {
        case .head(let received):
            // Interim responses (RFC 9110, section 15.2) are skipped. 101 is final: nothing of HTTP comes after it.
            if received.status.code == 101 || !(100..<200).contains(received.status.code) { head = received }
        case .body(let part):
            guard head != nil else { return }
            guard body.count + part.readableBytes <= exchange.limit else {
                return fail(ExchangeFailure.tooLarge(limit: exchange.limit), context)
            }
            body += part.readableBytesView
        case .end:
            guard let head else { return }
            let response = HTTPResponse(status: Int(head.status.code), headers: head.headers, body: body)
            let isLast = !head.isKeepAlive
            reset()
            exchange.answer.succeed(Exchange.Answer(response: response, isLast: isLast))
            // TLS waits for the peer's close_notify; the caller need not.
            if isLast { context.close(promise: nil) }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // Whichever way it ends, there will be no answer.
        let isEnd = error is IOError || error as? NIOSSLError == .uncleanShutdown
        fail(isEnd && head == nil ? ExchangeFailure.unanswered : error, context)
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(head == nil ? ExchangeFailure.unanswered : ExchangeFailure.cutOff, context)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext) {
        let exchange = self.exchange
        var refusal: HTTPResponse?
        // The status alone refuses the credentials, which must not be sent again as if nothing had been said.
        if let head, [401, 407].contains(head.status.code) {
            refusal = HTTPResponse(status: Int(head.status.code), headers: head.headers, body: body)
            refusal?.isWhole = false
        }
        reset()
        if let refusal {
            exchange?.answer.succeed(Exchange.Answer(response: refusal, isLast: true))
        } else {
            exchange?.answer.fail(error)
        }
        context.close(promise: nil)
    }

    private func reset() {
        timer?.cancel()
        (exchange, timer, head, body) = (nil, nil, nil, [])
    }
}
