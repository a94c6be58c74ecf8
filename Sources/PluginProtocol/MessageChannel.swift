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
        /// From one message about it to the next one; and in all, however alive the other side is. A prompt of the other side
        /// may take ``interactive``. While one is open, or this side works for the other one, the second time stands still,
        /// for ``interactive`` in all.
        case silence(Duration, atMost: Duration)
        /// For requests to the host, which bounds its own work.
        case unlimited

        /// A request that lasts for ``margin`` more than `timeout` if the other side is alive; and if it may ask a person,
        /// for as long as a person may take.
        package static func silence(_ timeout: Duration, mayAsk: Bool) -> Self {
            let total = timeout + MessageChannel.margin
            return .silence(timeout, atMost: mayAsk ? max(total, MessageChannel.interactive) : total)
        }
    }

    /// How long a person may take to answer.
    package static let interactive = Duration.seconds(300)
    /// How much longer than its timeout a request may last whose other side is alive.
    package static let margin = Duration.seconds(10)
    /// How long the other side may take to answer a request that was cancelled.
    package static let grace = Duration.seconds(2)
    /// The greatest number of requests of the other side that wait for an answer.
    static let maximumIncoming = 256
    /// The greatest number of bytes that wait for the pipe.
    static let maximumOutgoing = 16 << 20

    private struct State {
        var requests = OutgoingRequests()
        /// Requests of the other side that are not answered, by their ids, which it may use again: the numbers tell them apart.
        var incoming: [UInt64: UInt64] = [:]
        var received: UInt64 = 0
        /// Those that were cancelled, and when this side answers them, whether or not the work has ended.
        var cancelled: [UInt64: (number: UInt64, at: ContinuousClock.Instant)] = [:]
        var outgoing: [UInt8] = []
        var timers: [(at: ContinuousClock.Instant, job: @Sendable () -> Void)] = []
        /// When the thread looks at the clock again by itself.
        var wakes: ContinuousClock.Instant?
        /// Why it ends, from when that is known. Nothing is written any more.
        var ending: ProviderError?
        /// The handler's version of that, which callers get.
        var failure: ProviderError?
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

    /// Gets a line as ``MessageTrace`` shows it.
    package typealias Trace = @Sendable (_ isSent: Bool, _ line: String) -> Void

    /// Takes over the descriptors, which must be pipes.
    /// - Parameters:
    ///   - others: Further descriptors to read, for ``MessageHandler/read(_:from:)``.
    ///   - peer: The other side, for messages: `The plugin 'vault'`.
    ///   - trace: Gets each line. Called with a lock held: it must not use the channel.
    /// - Throws: `unavailable` if the process has no descriptors left.
    package init(
        input: Int32, output: Int32, others: [Int32] = [], peer: String, trace: Trace? = nil
    ) throws(ProviderError) {
        (self.input, self.output, self.others, self.peer, self.trace) = (input, output, others, peer, trace)
        state = BlockingMutex(State())
        event = certprov_event()
        guard event >= 0, ([input, output] + others).allSatisfy({ certprov_set_nonblocking($0) == 0 }) else {
            let reason = errorText(errno)
            // `deinit` closes the other one.
            for descriptor in [input, output] + others where descriptor >= 0 { close(descriptor) }
            throw ProviderError(.unavailable, "\(peer) cannot be reached: \(reason).")
        }
    }

    deinit { if event >= 0 { close(event) } }

    /// Reads on a thread of its own, until the end. Call it once.
    package func start(_ handler: any MessageHandler) {
        let caller = pthread_self()
        BlockingExecutor.threads(maximum: 1).submit { [self] in
            // The caller waits for answers, which no thread would read.
            if pthread_equal(caller, pthread_self()) != 0 {
                end(
                    ProviderError(
                        .unavailable, "\(peer) cannot be reached: this process cannot start a thread; raise its limit.")
                )
            }
            run(handler)
        }
    }

    /// Ends the channel: every request fails with `error`. Returns at once.
    package func end(_ error: ProviderError) {
        state.withLock { if $0.ending == nil { $0.ending = error } }
        wake()
    }

    /// Runs a job on the channel's thread, if that has not ended by then.
    package func after(_ delay: Duration, _ job: @escaping @Sendable () -> Void) {
        let time = clock.now + delay
        state.withLock { if $0.ending == nil { $0.timers.append((time, job)) } }
        wake()
    }

    /// Sends at most so many requests at a time; others wait. Requests that the other side waits for are not counted.
    package func limitConcurrency(to count: Int) { state.withLock { $0.requests.concurrency = max(1, count) } }

    /// Whether no request waits for an answer, in either direction.
    package var isIdle: Bool { state.withLock { $0.requests.isEmpty && $0.incoming.isEmpty } }
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
    package func send(
        _ name: String, _ params: some Encodable, _ limit: Limit, isAwaited: Bool = false,
        starting: (UInt64) -> Void = { _ in },
        completion: @escaping @Sendable (Result<Message, ProviderError>) -> Void
    ) {
        let id = state.withLock { $0.requests.makeID() }
        starting(id)
        send(id, name, params, limit, isAwaited: isAwaited, completion)
    }

    private func send(
        _ id: UInt64, _ name: String, _ params: some Encodable, _ limit: Limit, isAwaited: Bool,
        _ completion: @escaping @Sendable (Result<Message, ProviderError>) -> Void
    ) {
        let now = clock.now
        guard let line = Message.request(id, name, params) else {
            return completion(
                .failure(
                    ProviderError(
                        .malformedData,
                        "The request '\(name)' to a plugin is larger than \(Message.maximumSize) bytes; use less data.")
                ))
        }
        let request = OutgoingRequests.Request(name, limit, counts: !isAwaited, at: now, complete: completion)
        let (failure, wakes) = state.withLock { state -> (ProviderError?, Bool) in
            if let failure = state.failure { return (failure, false) }
            state.requests.add(id, request, line: line)
            let needsHelp = sendQueued(&state, at: now)
            return (nil, wakesTooLate(for: state.requests.deadline(of: id), state) || needsHelp)
        }
        if wakes { wake() }
        if let failure { completion(.failure(failure)) }
    }

    /// Sends a request, and blocks until its end.
    /// - Throws: What the completion of ``send(_:_:_:completion:)`` gets.
    package func call<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: Limit, as type: Answer.Type = Answer.self,
        starting: (UInt64) -> Void = { _ in }
    ) throws(ProviderError) -> Answer {
        let done = BlockingResult<Message>()
        send(name, params, limit, starting: starting) { done.set($0) }
        return try done.wait().get().result()
    }

    /// Sends a request, and suspends until its end. If the task is cancelled, the other side is told so.
    /// - Throws: Also `userCancelled`.
    package func request<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: Limit, isAwaited: Bool = false,
        as type: Answer.Type = Answer.self, starting: (UInt64) -> Void = { _ in }
    ) async throws(ProviderError) -> Answer {
        let id = state.withLock { $0.requests.makeID() }
        starting(id)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                send(id, name, params, limit, isAwaited: isAwaited) { continuation.resume(returning: $0) }
                // A cancellation before this found no request.
                if Task.isCancelled { cancel(id) }
            }
        } onCancel: {
            cancel(id)
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
        let now = clock.now
        let isSent = state.withLock { $0.requests.cancel(id, at: now, until: now + Self.grace) }
        if isSent { notify("cancel", Cancel(request: id)) }
        wake()
    }

    /// Takes note of a sign of life of a request of this side, or that a question to the user begins or ends for it.
    package func note(_ id: UInt64, questions: Int = 0) {
        let now = clock.now
        state.withLock { $0.requests.note(id, questions: questions, at: now) }
        wake()
    }

    package struct Cancel: Codable, Sendable {
        package let request: UInt64
    }

    /// Answers a request of the other side, unless that is done. Returns at once.
    func respond(_ id: UInt64, number: UInt64, _ line: [UInt8]?) {
        let now = clock.now
        let wakes = state.withLock { state in
            guard state.incoming[id] == number else { return false }
            (state.incoming[id], state.cancelled[id]) = (nil, nil)
            let counts = state.incoming.isEmpty && state.requests.rest(false, at: now)
            let needsHelp = line.map { write($0, &state) } ?? false
            return counts && wakesTooLate(for: state.requests.nextDeadline, state) || needsHelp
        }
        if wakes { wake() }
    }

    /// Answers a request of the other side with `userCancelled` if it is not answered within `time`. Returns at once.
    ///
    /// - Returns: Its number; `nil` if the request is answered.
    package func endCancelled(_ id: UInt64, after time: Duration) -> UInt64? {
        let deadline = clock.now + time
        let number = state.withLock { state in
            let number = state.incoming[id]
            if let number, state.cancelled[id] == nil { state.cancelled[id] = (number, deadline) }
            return number
        }
        wake()
        return number
    }

    /// Whether the thread looks at the clock only after a deadline.
    private func wakesTooLate(for deadline: ContinuousClock.Instant?, _ state: State) -> Bool {
        guard let deadline else { return false }
        return state.wakes.map { deadline < $0 } ?? true
    }

    /// Sends the requests that the other side takes now.
    /// - Returns: Whether the thread must help.
    private func sendQueued(_ state: inout State, at now: ContinuousClock.Instant) -> Bool {
        var needsHelp = false
        while let line = state.requests.nextLine(at: now) { needsHelp = write(line, &state) || needsHelp }
        return needsHelp
    }

    /// - Returns: Whether the thread must help.
    private func write(_ line: [UInt8], _ state: inout State) -> Bool {
        guard state.ending == nil else { return false }
        trace?(true, MessageTrace.text(of: line))
        var written = 0
        if state.outgoing.isEmpty {
            let count = line.withUnsafeBytes { certprov_write(output, $0.baseAddress, $0.count) }
            // A pipe without a reader: the end is read from the other pipe.
            if count < 0 && errno != EAGAIN && errno != EINTR { return false }
            written = max(0, count)
        }
        guard written < line.count else { return false }
        guard state.outgoing.count + line.count <= Self.maximumOutgoing else {
            state.ending = ProviderError(
                .unavailable, "\(peer) does not read its requests; \(Self.maximumOutgoing >> 20) MiB wait.")
            return true
        }
        state.outgoing += line[written...]
        return true
    }
}

// MARK: - The thread

extension MessageChannel {
    private func wake() {
        var one: UInt64 = 1
        _ = Glibc.write(event, &one, MemoryLayout<UInt64>.size)
    }

    private func run(_ handler: any MessageHandler) {
        let reader = LineReader(at: clock.now)
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        var open = others
        var missing = ""
        while true {
            let (ending, wantsToWrite, timeout) = turn(handler, reader)
            if let ending { return finish(ending, missing, handler) }
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
                missing = missingEnd(reader)
                end(ProviderError(.unavailable, "\(peer) has ended its side of the connection."))
                continue
            }
            do throws(ProviderError) {
                try reader.read(buffer[..<count], at: clock.now) { line throws(ProviderError) in
                    try receive(line, handler)
                }
            } catch {
                end(violation(error.message))
            }
            buffer.wipe(first: count)
        }
    }

    /// Ends requests whose time is over, and runs timers.
    private func turn(
        _ handler: any MessageHandler, _ reader: LineReader
    ) -> (ending: ProviderError?, wantsToWrite: Bool, timeout: Int32) {
        let now = clock.now
        var late: [(id: UInt64, request: OutgoingRequests.Request)] = []
        var ignored: [String] = []
        var unanswered: [(id: UInt64, number: UInt64)] = []
        var jobs: [@Sendable () -> Void] = []
        let (ending, wantsToWrite, timeout) = state.withLock { state -> (ProviderError?, Bool, Int32) in
            (late, ignored) = state.requests.expire(at: now, grace: Self.grace)
            unanswered = state.cancelled.filter { $0.value.at <= now }.map { ($0.key, $0.value.number) }
            jobs = state.timers.filter { $0.at <= now }.map(\.job)
            state.timers.removeAll { $0.at <= now }
            let next = ([state.requests.nextDeadline, state.cancelled.values.map(\.at).min()] + state.timers.map(\.at))
                .compactMap(\.self).min()
            // Requests come one after the other mostly: a look at the clock in a second costs less than being woken by the next
            // one.
            let isRecent = state.wakes.map { $0 > now } ?? false
            state.wakes = next ?? (isRecent ? now + .seconds(1) : nil)
            let timeout = state.wakes.map { Int32(clamping: Int64(($0 - now) / .milliseconds(1)) + 1) } ?? -1
            return (state.ending, !state.outgoing.isEmpty, timeout)
        }
        // First, so that a caller that goes on meets the next process.
        for name in ignored { handler.cancellationWasIgnored(name) }
        let missing = late.contains { !$0.request.isCancelled } ? missingEnd(reader) : ""
        for (id, request) in late {
            if request.isSent && !request.isCancelled { notify("cancel", Cancel(request: id)) }
            request.complete(.failure(request.isCancelled ? Self.cancelled(request.name) : timedOut(request, missing)))
        }
        for (id, number) in unanswered {
            let error = ProviderError(.userCancelled, "The request was cancelled.")
            respond(id, number: number, Message.failure(id, WireError(error)))
        }
        for job in jobs { job() }
        let isDone = jobs.isEmpty && late.isEmpty && ignored.isEmpty && unanswered.isEmpty
        return (ending, wantsToWrite, isDone ? timeout : 0)
    }

    private static func cancelled(_ name: String) -> ProviderError {
        ProviderError(.userCancelled, "The request '\(name)' to a plugin was cancelled.")
    }

    private func timedOut(_ request: OutgoingRequests.Request, _ missing: String) -> ProviderError {
        ProviderError(
            .timedOut,
            "\(peer) did not answer the request '\(request.name)' within \(request.allowedTime.components.seconds) seconds."
                + missing)
    }

    /// Returns a sentence for errors, after a blank, on a line whose end has not come; an empty text if there is none.
    private func missingEnd(_ reader: LineReader) -> String {
        guard reader.unfinished > 0 else { return "" }
        let text = "\(reader.unfinished) bytes without a newline at their end"
        if let trace { state.withLock { _ in trace(false, text) } }
        return " It has sent \(text)."
    }

    private func flush() {
        state.withLock { state in
            let count = state.outgoing.withUnsafeBytes { certprov_write(output, $0.baseAddress, $0.count) }
            if count > 0 { state.outgoing.removeFirst(count) }
            if count < 0 && errno != EAGAIN && errno != EINTR { state.outgoing = [] }
        }
    }

    /// Returns the error for a violation of the protocol.
    package func violation(_ what: String) -> ProviderError {
        ProviderError(.protocolError, "\(peer) violates the plugin protocol. \(what)")
    }

    /// - Returns: Whether the line answers a request.
    private func receive(_ line: [UInt8], _ handler: any MessageHandler) throws(ProviderError) -> Bool {
        if let trace { state.withLock { _ in trace(false, MessageTrace.text(of: line)) } }
        let message = try Message(line: line)
        switch message.form {
        case .notice(let name): handler.receive(notice: name, message)
        case .request(let id, let name):
            let now = clock.now
            let number = state.withLock { state -> UInt64? in
                guard state.incoming.count < Self.maximumIncoming, state.incoming[id] == nil else { return nil }
                _ = state.requests.rest(true, at: now)
                state.received += 1
                state.incoming[id] = state.received
                return state.received
            }
            guard let number else {
                throw ProviderError(
                    .protocolError,
                    "A request has the id of one that is not answered yet, or more than \(Self.maximumIncoming) wait.")
            }
            handler.receive(IncomingRequest(id: id, number: number, name: name, message: message, channel: self))
        case .result(let id):
            try complete(id, .success(message))
            return true
        case .failure(let id, let error):
            try complete(id, .failure(error))
            return true
        }
        return false
    }

    private func complete(
        _ id: UInt64, _ result: Result<Message, WireError>
    ) throws(ProviderError) {
        let now = clock.now
        let answered = state.withLock { state in
            let answered = state.requests.answer(id)
            // This is the thread: it looks at the output and the clock before it waits.
            _ = sendQueued(&state, at: now)
            return answered
        }
        switch (answered, result) {
        case (.none, _):
            throw ProviderError(.protocolError, "An answer has the id of no request that waits for one.")
        case (.abandoned, _): break
        // An identity that was obtained all the same is not lost.
        case (.request(let request), .failure) where request.isCancelled:
            request.complete(.failure(Self.cancelled(request.name)))
        case (.request(let request), .failure(let error)):
            request.complete(.failure(ProviderError(error, of: peer, request: request.name)))
        case (.request(let request), .success(let message)): request.complete(.success(message))
        }
    }

    private func finish(_ ending: ProviderError, _ missing: String, _ handler: any MessageHandler) {
        var failure = handler.explain(ending)
        failure.message += missing
        let requests = state.withLock { state in
            state.timers = []
            state.failure = failure
            return state.requests.removeAll()
        }
        // With a failure nothing more is written.
        for descriptor in [input, output] { close(descriptor) }
        for request in requests { request.complete(.failure(failure)) }
        handler.ended(failure)
        // The other side's last output is not an error of its own.
        for descriptor in others { close(descriptor) }
    }
}
