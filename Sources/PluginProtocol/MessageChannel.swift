import CLinux
package import CertificateProviding
import Glibc

/// Messages over two pipes, in both directions: requests with their answers in any order, and notices.
///
/// One thread reads, keeps the deadlines and writes what a pipe did not take at once; it ends when the other side closes its
/// pipe, violates the protocol, or ``end(_:)`` is called. Requests may be sent from any thread and never block for the pipe.
package final class MessageChannel: Sendable {
    /// How long a request may take.
    package enum Limit: Sendable {
        /// From its beginning to its end.
        case total(Duration)
        /// From one message about it to the next one. A prompt of the other side may take ``interactive``.
        case silence(Duration)
        /// For requests to the host, which bounds its own work.
        case unlimited
    }

    /// How long a person may take to answer.
    package static let interactive = Duration.seconds(300)
    /// How long the other side may take to answer a request that was cancelled.
    package static let grace = Duration.seconds(2)
    /// The greatest number of requests of the other side that wait for an answer.
    static let maximumIncoming = 256
    /// The greatest number of bytes that the other side may send within a minute without answering a request.
    static let maximumUnanswered = 64 << 20
    /// The greatest number of bytes that wait for the pipe.
    static let maximumOutgoing = 16 << 20

    private struct Pending {
        let name: String
        let limit: Limit
        var deadline: ContinuousClock.Instant?
        /// Questions to a person, and other work of this side, that the request waits for.
        var questions = 0
        var works = 0
        /// The caller does not want the answer any more, and waits for the end of the work.
        var isCancelled = false
        /// Whether it counts among those that the other side takes at a time.
        let counts: Bool
        var isSent = false
        let complete: @Sendable (Result<Message, CertificateProviderError>) -> Void

        mutating func restart(at now: ContinuousClock.Instant) {
            guard case .silence(let silence) = limit, !isCancelled else { return }
            deadline = questions > 0 ? now + MessageChannel.interactive : works > 0 ? nil : now + silence
        }
    }

    private struct State {
        var nextID: UInt64 = 1
        var pending: [UInt64: Pending] = [:]
        /// Requests whose time was over, until their answers come, and when the other side has ignored the cancellation.
        var abandoned: [UInt64: (name: String, counts: Bool, until: ContinuousClock.Instant?)] = [:]
        /// Requests that are not sent yet, since the other side takes fewer at a time.
        var queue: [(id: UInt64, line: [UInt8])] = []
        var incoming: Set<UInt64> = []
        var outgoing: [UInt8] = []
        var timers: [(at: ContinuousClock.Instant, job: @Sendable () -> Void)] = []
        /// When the thread looks at the clock again by itself.
        var wakes: ContinuousClock.Instant?
        /// How many requests the other side takes at a time.
        var concurrency = Int.max
        var inFlight = 0
        /// The bytes that have come since the last answer, in the last minute, and when that began.
        var unanswered = 0
        var minute = ContinuousClock.now
        var failure: CertificateProviderError?
    }

    private let state: BlockingMutex<State>
    private let input: Int32
    private let output: Int32
    private let others: [Int32]
    private let event: Int32
    /// The other side, for messages: `The plugin 'vault'`.
    package let peer: String
    private let clock = ContinuousClock()
    /// Gets each line, in the order in which this side sends and receives them.
    private let trace: Trace?

    package typealias Trace = @Sendable (_ isSent: Bool, _ line: ArraySlice<UInt8>) -> Void

    /// Takes over the descriptors, which must be pipes.
    /// - Parameters:
    ///   - others: Further descriptors to read, for ``MessageHandler/read(_:from:)``.
    ///   - peer: The other side, for messages: `The plugin 'vault'`.
    ///   - trace: Gets each line. Called with a lock held: it must not use the channel.
    /// - Throws: `unavailable` if the process has no descriptors left.
    package init(
        input: Int32, output: Int32, others: [Int32] = [], peer: String, trace: Trace? = nil
    ) throws(CertificateProviderError) {
        (self.input, self.output, self.others, self.peer, self.trace) = (input, output, others, peer, trace)
        state = BlockingMutex(State())
        event = certprov_event()
        guard event >= 0, ([input, output] + others).allSatisfy({ certprov_set_nonblocking($0) == 0 }) else {
            let reason = String(cString: strerror(errno))
            for descriptor in [input, output, event] + others where descriptor >= 0 { close(descriptor) }
            throw CertificateProviderError(.unavailable, "\(peer) cannot be reached: \(reason).")
        }
    }

    deinit { close(event) }

    /// Reads on a thread of its own, until the end. Call it once.
    package func start(_ handler: any MessageHandler) {
        BlockingExecutor.threads(maximum: 1).submit { self.run(handler) }
    }

    /// Ends the channel: every request fails with `error`. Returns at once.
    package func end(_ error: CertificateProviderError) {
        state.withLock { if $0.failure == nil { $0.failure = error } }
        wake()
    }

    /// Runs a job on the channel's thread, if that has not ended by then.
    package func after(_ delay: Duration, _ job: @escaping @Sendable () -> Void) {
        let time = clock.now + delay
        state.withLock { $0.timers.append((time, job)) }
        wake()
    }

    /// Sends at most so many requests at a time; others wait. Requests that the other side waits for are not counted.
    package func limitConcurrency(to count: Int) { state.withLock { $0.concurrency = max(1, count) } }

    /// Whether no request waits for an answer, in either direction.
    package var isIdle: Bool { state.withLock { $0.pending.isEmpty && $0.incoming.isEmpty } }
}

/// What becomes of the messages of a ``MessageChannel``. Called on its thread, which must not be blocked.
package protocol MessageHandler: AnyObject, Sendable {
    func receive(_ request: IncomingRequest)
    func receive(notice name: String, _ message: Message)
    /// The bytes of one of the further descriptors; none at its end.
    func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32)
    /// A request was cancelled, and the other side has not answered within ``MessageChannel/grace``.
    func cancellationWasIgnored(_ request: String)
    /// The channel has failed. Returns the error for the requests that wait, and may look for the reason for a short time.
    func explain(_ error: CertificateProviderError) -> CertificateProviderError
    /// The last call. The descriptors are closed, but for the further ones.
    func ended(_ error: CertificateProviderError)
}

extension MessageHandler {
    package func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32) {}
    package func cancellationWasIgnored(_ request: String) {}
    package func explain(_ error: CertificateProviderError) -> CertificateProviderError { error }
}

/// A request of the other side. It is answered once.
package struct IncomingRequest: Sendable {
    package let id: UInt64
    package let name: String
    package let message: Message
    private let channel: MessageChannel

    fileprivate init(id: UInt64, name: String, message: Message, channel: MessageChannel) {
        (self.id, self.name, self.message, self.channel) = (id, name, message, channel)
    }

    package func answer(_ result: some Encodable) {
        channel.respond(
            id,
            Message.result(id, result)
                ?? Message.failure(
                    id,
                    WireError(code: CertificateProviderError.Code.internal.rawValue, message: "The answer is too long.")
                ))
    }

    package func fail(_ error: CertificateProviderError) { fail(WireError(error)) }

    /// Says that this side does not know the request.
    package func refuse() {
        fail(WireError(code: WireError.unsupported, message: "The request '\(name)' is not supported."))
    }

    private func fail(_ error: WireError) {
        var error = error
        // A code is short; a message may quote what came from elsewhere.
        error.message = String(error.message.prefix(8192))
        channel.respond(id, Message.failure(id, error))
    }
}

// MARK: - Requests of this side

extension MessageChannel {
    /// Sends a request. Returns at once.
    ///
    /// - Parameters:
    ///   - isAwaited: Whether the other side waits for the request, so that it must not wait for others.
    ///   - starting: Gets the request's id before it is sent.
    ///   - completion: Called once, on the channel's thread or this one, which it must not block. It gets a
    ///     ``Message/Form/result(id:)``, the other side's error, `timedOut`, or the reason why the channel has ended.
    /// - Returns: The request's id; nil for one that was not sent.
    @discardableResult
    package func send(
        _ name: String, _ params: some Encodable, _ limit: Limit, isAwaited: Bool = false,
        starting: (UInt64) -> Void = { _ in },
        completion: @escaping @Sendable (Result<Message, CertificateProviderError>) -> Void
    ) -> UInt64? {
        let now = clock.now
        let id = state.withLock { state in
            defer { state.nextID += 1 }
            return state.nextID
        }
        starting(id)
        guard let line = Message.request(id, name, params) else {
            completion(
                .failure(
                    CertificateProviderError(
                        .malformedData,
                        "The request '\(name)' to a plugin is larger than \(Message.maximumSize) bytes; use less data.")
                ))
            return nil
        }
        var pending = Pending(name: name, limit: limit, counts: !isAwaited, complete: completion)
        if case .total(let total) = limit { pending.deadline = now + total }
        pending.restart(at: now)
        let (failure, wakes) = state.withLock { state -> (CertificateProviderError?, Bool) in
            if let failure = state.failure { return (failure, false) }
            state.pending[id] = pending
            state.queue.append((id, line))
            if isAwaited { state.queue.insert(state.queue.removeLast(), at: 0) }
            let wakes = pending.deadline.map { deadline in state.wakes.map { deadline < $0 } ?? true } ?? false
            return (nil, sendQueued(&state) || wakes)
        }
        if wakes { wake() }
        if let failure {
            completion(.failure(failure))
            return nil
        }
        return id
    }

    /// Sends a request, and blocks until its end.
    /// - Throws: What the completion of ``send(_:_:_:completion:)`` gets.
    package func call<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: Limit, as type: Answer.Type = Answer.self,
        starting: (UInt64) -> Void = { _ in }
    ) throws(CertificateProviderError) -> Answer {
        let done = BlockingResult<Message>()
        send(name, params, limit, starting: starting) { done.set($0) }
        return try done.wait().get().result()
    }

    /// Sends a request, and suspends until its end. Where the task is cancelled, the other side is told so.
    /// - Throws: Also `userCancelled`.
    package func request<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: Limit, isAwaited: Bool = false,
        as type: Answer.Type = Answer.self, starting: (UInt64) -> Void = { _ in }
    ) async throws(CertificateProviderError) -> Answer {
        let cancellation = Cancellation(self)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let id = send(name, params, limit, isAwaited: isAwaited, starting: starting) {
                    continuation.resume(returning: $0)
                }
                if let id { cancellation.isSent(id) }
            }
        } onCancel: {
            cancellation.cancel()
        }
        return try result.get().result()
    }

    /// Sends a notice. Returns at once.
    package func notify(_ name: String, _ params: some Encodable) {
        guard let line = Message.notice(name, params) else { return }
        if state.withLock({ write(line, &$0) }) { wake() }
    }

    /// Tells the other side that the answer is no longer wanted. The request fails when it answers or ``grace`` is over.
    package func cancel(_ id: UInt64) {
        let deadline = clock.now + Self.grace
        let isPending = state.withLock { state in
            guard let request = state.pending[id], !request.isCancelled else { return false }
            state.pending[id]?.isCancelled = true
            // One that is not sent ends at once.
            state.pending[id]?.deadline = request.isSent ? deadline : clock.now
            return request.isSent
        }
        guard isPending else { return wake() }
        notify("cancel", Cancel(request: id))
        wake()
    }

    /// Takes note that a request of this side has caused a question to a person, or other work of this side, or that this
    /// has ended. Each is a sign of life.
    package func note(_ id: UInt64, questions: Int = 0, works: Int = 0) {
        let now = clock.now
        state.withLock { state in
            state.pending[id]?.questions += questions
            state.pending[id]?.works += works
            state.pending[id]?.restart(at: now)
        }
        wake()
    }

    package struct Cancel: Codable, Sendable {
        package let request: UInt64
    }

    fileprivate func respond(_ id: UInt64, _ line: [UInt8]?) {
        let wakes = state.withLock { state in
            guard state.incoming.remove(id) != nil, let line else { return false }
            return write(line, &state)
        }
        if wakes { wake() }
    }

    /// Answers a request of the other side that was cancelled, unless that is done.
    package func endCancelled(_ id: UInt64) {
        respond(
            id,
            Message.failure(
                id,
                WireError(
                    code: CertificateProviderError.Code.userCancelled.rawValue, message: "The request was cancelled.")))
    }

    /// Sends the requests that the other side takes now.
    /// - Returns: Whether the thread must help.
    private func sendQueued(_ state: inout State) -> Bool {
        var needsHelp = false
        while let (id, line) = state.queue.first {
            guard let request = state.pending[id] else {
                state.queue.removeFirst()
                continue
            }
            guard !request.counts || state.inFlight < state.concurrency else { break }
            state.queue.removeFirst()
            state.pending[id]?.isSent = true
            if request.counts { state.inFlight += 1 }
            needsHelp = write(line, &state) || needsHelp
        }
        return needsHelp
    }

    /// Takes a request out that the other side does not work at any more.
    private func remove(_ id: UInt64, _ state: inout State) -> Pending? {
        guard let request = state.pending.removeValue(forKey: id) else { return nil }
        if request.isSent && request.counts { state.inFlight -= 1 }
        return request
    }

    /// - Returns: Whether the thread must help.
    private func write(_ line: [UInt8], _ state: inout State) -> Bool {
        guard state.failure == nil else { return false }
        trace?(true, line[...])
        var written = 0
        if state.outgoing.isEmpty {
            let count = line.withUnsafeBytes { certprov_write(output, $0.baseAddress, $0.count) }
            // A pipe without a reader: the end is read from the other pipe.
            if count < 0 && errno != EAGAIN && errno != EINTR { return false }
            written = max(0, count)
        }
        guard written < line.count else { return false }
        guard state.outgoing.count + line.count <= Self.maximumOutgoing else {
            state.failure = CertificateProviderError(
                .unavailable, "\(peer) does not read its requests; \(Self.maximumOutgoing >> 20) MiB wait.")
            return true
        }
        state.outgoing += line[written...]
        return true
    }
}

/// The cancellation of a request that may not have been sent yet.
private final class Cancellation: Sendable {
    private struct State {
        var id: UInt64?
        var isCancelled = false
    }
    private let state = BlockingMutex(State())
    private let channel: MessageChannel

    init(_ channel: MessageChannel) { self.channel = channel }

    func isSent(_ id: UInt64) {
        let isCancelled = state.withLock { state in
            state.id = id
            return state.isCancelled
        }
        if isCancelled { channel.cancel(id) }
    }

    func cancel() {
        let id = state.withLock { state in
            state.isCancelled = true
            return state.id
        }
        if let id { channel.cancel(id) }
    }
}

// MARK: - The thread

extension MessageChannel {
    private func wake() {
        var one: UInt64 = 1
        _ = Glibc.write(event, &one, MemoryLayout<UInt64>.size)
    }

    private func run(_ handler: any MessageHandler) {
        var line: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        var open = others
        while true {
            let (failure, wantsToWrite, timeout) = turn(handler)
            if let failure { return finish(failure, handler) }
            var waiting = [pollfd(fd: event, events: Int16(POLLIN), revents: 0)]
            waiting.append(pollfd(fd: input, events: Int16(POLLIN), revents: 0))
            waiting.append(pollfd(fd: wantsToWrite ? output : -1, events: Int16(POLLOUT), revents: 0))
            for descriptor in open { waiting.append(pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)) }
            guard poll(&waiting, nfds_t(waiting.count), timeout) > 0 else { continue }
            if waiting[0].revents != 0 {
                var count: UInt64 = 0
                _ = Glibc.read(event, &count, MemoryLayout<UInt64>.size)
            }
            // First, so that the end of the process is known when its streams end.
            for place in waiting[3...] where place.revents != 0 {
                let count = Glibc.read(place.fd, &buffer, buffer.count)
                if count < 0 && (errno == EAGAIN || errno == EINTR) { continue }
                handler.read(buffer[..<max(0, count)], from: place.fd)
                if count <= 0 { open.removeAll { $0 == place.fd } }
            }
            if waiting[2].revents != 0 { flush() }
            guard waiting[1].revents != 0 else { continue }
            let count = Glibc.read(input, &buffer, buffer.count)
            if count < 0 && (errno == EAGAIN || errno == EINTR) { continue }
            guard count > 0 else {
                end(CertificateProviderError(.unavailable, "\(peer) has ended its side of the connection."))
                continue
            }
            receive(buffer[..<count], &line, handler)
        }
    }

    /// Ends requests whose time is over, and runs timers.
    private func turn(
        _ handler: any MessageHandler
    ) -> (failure: CertificateProviderError?, wantsToWrite: Bool, timeout: Int32) {
        let now = clock.now
        var late: [(id: UInt64, request: Pending)] = []
        var ignored: [String] = []
        var jobs: [@Sendable () -> Void] = []
        let (failure, wantsToWrite, timeout) = state.withLock { state -> (CertificateProviderError?, Bool, Int32) in
            for (id, request) in state.pending where request.deadline.map({ $0 <= now }) ?? false {
                late.append((id, request))
                // One that is sent counts until it is answered.
                state.pending[id] = nil
                guard request.isSent else { continue }
                state.abandoned[id] = (request.name, request.counts, request.isCancelled ? nil : now + Self.grace)
                if request.isCancelled { ignored.append(request.name) }
            }
            for (id, request) in state.abandoned where request.until.map({ $0 <= now }) ?? false {
                state.abandoned[id]?.until = nil
                ignored.append(request.name)
            }
            jobs = state.timers.filter { $0.at <= now }.map(\.job)
            state.timers.removeAll { $0.at <= now }
            let next =
                (state.pending.values.compactMap(\.deadline) + state.abandoned.values.compactMap(\.until)
                + state.timers.map(\.at)).min()
            // Requests come one after the other mostly: a look at the clock in a second costs less than being woken by the next
            // one.
            let isRecent = state.wakes.map { $0 > now } ?? false
            state.wakes = next ?? (isRecent ? now + .seconds(1) : nil)
            let timeout = state.wakes.map { Int32(clamping: Int64(($0 - now) / .milliseconds(1)) + 1) } ?? -1
            return (state.failure, !state.outgoing.isEmpty, timeout)
        }
        for (id, request) in late {
            if request.isSent && !request.isCancelled { notify("cancel", Cancel(request: id)) }
            request.complete(.failure(request.isCancelled ? Self.cancelled(request.name) : timedOut(request)))
        }
        for name in ignored { handler.cancellationWasIgnored(name) }
        for job in jobs { job() }
        return (failure, wantsToWrite, jobs.isEmpty && late.isEmpty && ignored.isEmpty ? timeout : 0)
    }

    private static func cancelled(_ name: String) -> CertificateProviderError {
        CertificateProviderError(.userCancelled, "The request '\(name)' to a plugin was cancelled.")
    }

    private func timedOut(_ pending: Pending) -> CertificateProviderError {
        let limit: Duration =
            switch pending.limit {
            case .total(let limit), .silence(let limit): pending.questions > 0 ? Self.interactive : limit
            case .unlimited: .zero
            }
        return CertificateProviderError(
            .timedOut,
            "\(peer) did not answer the request '\(pending.name)' within \(limit.components.seconds) seconds.")
    }

    private func flush() {
        state.withLock { state in
            let count = state.outgoing.withUnsafeBytes { certprov_write(output, $0.baseAddress, $0.count) }
            if count > 0 { state.outgoing.removeFirst(count) }
            if count < 0 && errno != EAGAIN && errno != EINTR { state.outgoing = [] }
        }
    }

    private func receive(_ bytes: ArraySlice<UInt8>, _ line: inout [UInt8], _ handler: any MessageHandler) {
        let isTooMuch = state.withLock { state in
            if clock.now - state.minute > .seconds(60) { (state.minute, state.unanswered) = (clock.now, 0) }
            state.unanswered += bytes.count
            return state.unanswered > Self.maximumUnanswered
        }
        guard !isTooMuch else {
            return end(
                violation("It sends more than \(Self.maximumUnanswered >> 20) MiB within a minute without an answer."))
        }
        var rest = bytes
        while let newline = rest.firstIndex(of: 0x0a) {
            line += rest[..<newline]
            rest = rest[(newline + 1)...]
            defer {
                wipe(&line)
                line.removeAll(keepingCapacity: line.capacity <= 64 << 10)
            }
            guard line.count <= Message.maximumSize else { break }
            if let trace { state.withLock { _ in trace(false, line[...]) } }
            do throws(CertificateProviderError) {
                try deliver(try Message(line: line), handler)
            } catch {
                return end(violation(error.message))
            }
        }
        line += rest
        if line.count > Message.maximumSize {
            end(violation("A line is longer than \(Message.maximumSize) bytes."))
        }
    }

    private func wipe(_ line: inout [UInt8]) {
        line.withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, $0.count) } }
    }

    /// Returns the error for a violation of the protocol.
    package func violation(_ what: String) -> CertificateProviderError {
        CertificateProviderError(.protocolError, "\(peer) violates the plugin protocol. \(what)")
    }

    private func deliver(_ message: Message, _ handler: any MessageHandler) throws(CertificateProviderError) {
        switch message.form {
        case .notice(let name): handler.receive(notice: name, message)
        case .request(let id, let name):
            let isNew = state.withLock { state in
                state.incoming.count < Self.maximumIncoming && state.incoming.insert(id).inserted
            }
            guard isNew else {
                throw CertificateProviderError(
                    .protocolError,
                    "A request has the id of one that is not answered yet, or more than \(Self.maximumIncoming) wait.")
            }
            handler.receive(IncomingRequest(id: id, name: name, message: message, channel: self))
        case .result(let id): try complete(id, .success(message))
        case .failure(let id, let error): try complete(id, .failure(CertificateProviderError(error, of: peer)))
        }
    }

    private func complete(
        _ id: UInt64, _ result: Result<Message, CertificateProviderError>
    ) throws(CertificateProviderError) {
        let (request, wasAbandoned) = state.withLock { state -> (Pending?, Bool) in
            state.unanswered = 0
            let isSent = state.pending[id]?.isSent ?? true
            let request = isSent ? remove(id, &state) : nil
            let abandoned = state.abandoned.removeValue(forKey: id)
            if abandoned?.counts == true { state.inFlight -= 1 }
            // This is the thread: it looks at what is left to write before it waits.
            _ = sendQueued(&state)
            return (request, abandoned != nil)
        }
        guard let request else {
            if wasAbandoned { return }
            throw CertificateProviderError(.protocolError, "An answer has the id of no request that waits for one.")
        }
        switch result {
        // What was obtained all the same is not lost.
        case .failure where request.isCancelled: request.complete(.failure(Self.cancelled(request.name)))
        default: request.complete(result)
        }
    }

    private func finish(_ failure: CertificateProviderError, _ handler: any MessageHandler) {
        let failure = handler.explain(failure)
        let pending = state.withLock { state in
            defer {
                state.pending = [:]
                state.queue = []
                state.timers = []
            }
            state.failure = failure
            return state.pending.values
        }
        // With a failure nothing more is written.
        for descriptor in [input, output] { close(descriptor) }
        for one in pending { one.complete(.failure(failure)) }
        handler.ended(failure)
        // What the other side says at its end is not an error of its.
        for descriptor in others { close(descriptor) }
    }
}
