import CertificateProviding
import NIOCore
import NIOHTTP1
import NIOSSL
import ProviderTransport

/// The first handler of a server's channel, beneath TLS: ends it as TLS would not.
final class RawEnd: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private var context: ChannelHandlerContext?

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func close(_ mode: CloseMode) { context?.close(mode: mode, promise: nil) }
}

/// One connection of a responder.
final class ESTConversation: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = ByteBuffer

    /// Returns the answer to a request.
    typealias Answerer = (HTTPRequest, _ client: X509Certificate?) -> ESTReply

    private let answer: Answerer
    private let raw: RawEnd
    private var request = HTTPRequest(target: "")
    private var endsAtNextRequest = false

    init(over raw: RawEnd, _ answer: @escaping Answerer) {
        self.raw = raw
        self.answer = answer
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            guard !endsAtNextRequest else { return context.close(promise: nil) }
            let method: HTTPRequest.Method = head.method == .POST ? .post : .get
            request = HTTPRequest(method: method, target: head.uri, headers: head.headers)
        case .body(let part): request.body += part.readableBytesView
        case .end:
            guard !endsAtNextRequest else { return }
            let shown = try? context.pipeline.syncOperations.nioSSL_peerCertificate()?.toDERBytes()
            let reply = answer(request, shown.flatMap { try? X509Certificate(derRepresentation: $0) })
            switch reply.outcome {
            case .answer(let answer): deliver(answer, reply.faults, context)
            case .interruption(.halfClose): raw.close(.output)
            case .interruption(.closeAfterRequest): context.close(promise: nil)
            case .interruption: break
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    // MARK: - Delivery

    private static let endlessLength = 1 << 40

    private func deliver(_ answer: ESTAnswer, _ faults: ESTFaults, _ context: ChannelHandlerContext) {
        if faults.has(.endlessHeaders) {
            write(answer.head(.none).dropLast(2), context)
            return pour(Array("X-Filler: \(String(repeating: "filler ", count: 500))\r\n".utf8), context)
        }
        if let framing = faults[.endless] { return deliverEndless(answer, isChunked: framing.isEmpty, context) }
        var (head, body) = (answer.head(.length(answer.body.count)), answer.body)
        var isLast = answer.isLast
        if faults.has(.chunked) {
            (head, body) = (answer.head(.chunked), ESTAnswer.chunked(body))
        } else if faults.has(.noLength) {
            var last = answer
            last.headers.removeAll { $0.name == "Connection" }
            last.headers.append(("Connection", "close"))
            (head, isLast) = (last.head(.none), true)
        }
        if let cut = faults[.cut] {
            let parts = cut.split(separator: "-")
            write((head + body).prefix(parts.first.flatMap { Int($0) } ?? 0), context)
            return parts.count == 1 ? context.close(promise: nil) : raw.close(.all)
        }
        if let pause = faults[.drip] {
            return drip((head + body)[...], every: .milliseconds(Int64(pause) ?? 1000), context)
        }
        if let pause = faults[.slowBody] {
            write(head, context)
            context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(pause) ?? 45)) {
                self.write(body, context)
                if isLast { context.close(promise: nil) }
            }
            return
        }
        write(faults.has(.hangBody) ? head : head + body, context)
        if faults.has(.hangBody) { return }
        if isLast { context.close(promise: nil) }
        endsAtNextRequest = faults.has(.closeAfterAnswer)
    }

    private func deliverEndless(_ answer: ESTAnswer, isChunked: Bool, _ context: ChannelHandlerContext) {
        let lines = Array(String(repeating: String(repeating: "QUJD", count: 16) + "\n", count: 100).utf8)
        guard isChunked else {
            write(answer.head(.length(Self.endlessLength)) + answer.body, context)
            return pour(lines, context)
        }
        write(answer.head(.chunked) + ESTAnswer.chunked(answer.body, isWhole: false), context)
        pour(ESTAnswer.chunk(lines), context)
    }

    private func write(_ bytes: some Collection<UInt8>, _ context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
    }

    /// Writes the same for ever, as fast as it is taken.
    private func pour(_ bytes: [UInt8], _ context: ChannelHandlerContext) {
        let written = context.eventLoop.makePromise(of: Void.self)
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: written)
        // Not at once: a write that is done before it returns would make a deep recursion.
        written.futureResult.assumeIsolated().whenSuccess {
            context.eventLoop.assumeIsolated().execute { self.pour(bytes, context) }
        }
    }

    private func drip(_ bytes: ArraySlice<UInt8>, every pause: TimeAmount, _ context: ChannelHandlerContext) {
        guard let octet = bytes.first, context.channel.isActive else { return }
        write([octet], context)
        context.eventLoop.assumeIsolated().scheduleTask(in: pause) {
            self.drip(bytes.dropFirst(), every: pause, context)
        }
    }
}
