import CertificateProviding

/// The requests of one side, from their beginning to their answer.
///
/// A plain value: the owner locks it, and passes the time in. Nothing here is called back, or does I/O.
struct OutgoingRequests {
    typealias Instant = ContinuousClock.Instant

    /// A request that waits for its answer.
    struct Request {
        let name: String
        let limit: MessageChannel.Limit
        /// Whether it counts among those that the other side takes at a time.
        let counts: Bool
        let complete: @Sendable (Result<Message, ProviderError>) -> Void
        fileprivate(set) var deadline: Instant?
        /// How long the other side may be silent, or take in all, as the request stands now.
        fileprivate(set) var allowedTime = Duration.zero
        /// Questions to the user that the request waits for.
        fileprivate(set) var questions = 0
        /// The caller does not want the answer any more, and waits for the end of the work.
        fileprivate(set) var isCancelled = false
        /// When it was sent; `nil` until then.
        fileprivate(set) var sent: Instant?
        var isSent: Bool { sent != nil }
        /// Since when a question is open, or this side works for the other one.
        private var pausedSince: Instant?
        /// How long such times were, of which not all counts.
        private var pauses = Duration.zero

        init(
            _ name: String, _ limit: MessageChannel.Limit, counts: Bool, at now: Instant,
            complete: @escaping @Sendable (Result<Message, ProviderError>) -> Void
        ) {
            (self.name, self.limit, self.counts, self.complete) = (name, limit, counts, complete)
            switch limit {
            case .total(let total): allow(total, at: now)
            // Until it is sent: those before it may each ask the user.
            case .silence: allow(MessageChannel.interactive * 2, at: now)
            case .unlimited: break
            }
        }

        private mutating func allow(_ time: Duration, at now: Instant) {
            (allowedTime, deadline) = (time, now + time)
        }

        /// Begins the time of silence anew, which ends with the whole time at the latest.
        fileprivate mutating func restart(at now: Instant, isResting: Bool) {
            guard case .silence(let limit, let total) = limit, let sent, !isCancelled else { return }
            if let pausedSince { pauses = min(pauses + (now - pausedSince), MessageChannel.interactive) }
            let isPaused = questions > 0 || isResting
            pausedSince = isPaused ? now : nil
            // This side may work for the other one for as long as a user may take: it may ask one itself.
            allow(isPaused ? max(limit, MessageChannel.interactive) : limit, at: now)
            let whole = total + (isPaused ? MessageChannel.interactive : pauses)
            if let deadline, sent + whole < deadline { (allowedTime, self.deadline) = (whole, sent + whole) }
        }
    }

    /// A request whose time was over, until its answer comes.
    private struct Abandoned {
        let name: String
        let counts: Bool
        /// When the other side has ignored the cancellation; `nil` once that was noticed.
        var until: Instant?
    }

    /// Whose answer came.
    enum Answered {
        case request(Request)
        /// One whose time was over.
        case abandoned
        /// None that waits for an answer.
        case none
    }

    private var nextID: UInt64 = 1
    private var pending: [UInt64: Request] = [:]
    private var abandoned: [UInt64: Abandoned] = [:]
    /// Requests that are not sent yet, since the other side takes fewer at a time.
    private var queue: [(id: UInt64, line: [UInt8])] = []
    /// How many of those that count were sent, and are not answered.
    private var inFlight = 0

    /// How many requests the other side takes at a time.
    var concurrency = Int.max
    /// Whether this side works for the other one, whose silence is then not counted.
    private var isResting = false

    var isEmpty: Bool { pending.isEmpty }

    /// When ``expire(at:)`` has something to do.
    var nextDeadline: Instant? { (pending.values.compactMap(\.deadline) + abandoned.values.compactMap(\.until)).min() }

    func deadline(of id: UInt64) -> Instant? { pending[id]?.deadline }

    mutating func makeID() -> UInt64 {
        defer { nextID += 1 }
        return nextID
    }

    /// Adds a request, which ``nextLine()`` sends.
    mutating func add(_ id: UInt64, _ request: Request, line: [UInt8]) {
        pending[id] = request
        // One that the other side waits for goes first.
        queue.insert((id, line), at: request.counts ? queue.count : 0)
    }

    /// Returns the line of the next request that the other side takes now; the caller writes it. Its silence counts from now.
    mutating func nextLine(at now: Instant) -> [UInt8]? {
        while let (id, line) = queue.first {
            guard let request = pending[id] else {
                queue.removeFirst()
                continue
            }
            guard !request.counts || inFlight < concurrency else { return nil }
            queue.removeFirst()
            pending[id]?.sent = now
            pending[id]?.restart(at: now, isResting: isResting)
            if request.counts { inFlight += 1 }
            return line
        }
        return nil
    }

    /// Takes out the request that an answer belongs to.
    mutating func answer(_ id: UInt64) -> Answered {
        if let request = pending[id], request.isSent {
            pending[id] = nil
            if request.counts { inFlight -= 1 }
            return .request(request)
        }
        guard let request = abandoned.removeValue(forKey: id) else { return .none }
        if request.counts { inFlight -= 1 }
        return .abandoned
    }

    /// Cancels a request: it expires at `deadline`, or at once if it is not sent.
    /// - Returns: Whether the other side is to be told.
    mutating func cancel(_ id: UInt64, at now: Instant, until deadline: Instant) -> Bool {
        guard let request = pending[id], !request.isCancelled else { return false }
        pending[id]?.isCancelled = true
        pending[id]?.deadline = request.isSent ? deadline : now
        return request.isSent
    }

    /// Takes note of a sign of life: also of questions to the user that begin or end for a request.
    mutating func note(_ id: UInt64, questions: Int, at now: Instant) {
        pending[id]?.questions += questions
        pending[id]?.restart(at: now, isResting: isResting)
    }

    /// Takes note that this side works for the other one, or does not any more.
    /// - Returns: Whether deadlines may have changed.
    mutating func rest(_ isResting: Bool, at now: Instant) -> Bool {
        guard isResting != self.isResting else { return false }
        self.isResting = isResting
        for id in pending.keys { pending[id]?.restart(at: now, isResting: isResting) }
        return !pending.isEmpty
    }

    /// Takes out the requests whose time is over. One that is sent counts among those in flight until it is answered.
    ///
    /// - Parameter grace: How long the other side may take to answer one that is cancelled for that.
    /// - Returns: These requests, and the names of cancelled ones that the other side has not answered in time.
    mutating func expire(at now: Instant, grace: Duration) -> (
        late: [(id: UInt64, request: Request)], ignored: [String]
    ) {
        var ignored: [String] = []
        for (id, request) in abandoned where request.until.map({ $0 <= now }) ?? false {
            abandoned[id]?.until = nil
            ignored.append(request.name)
        }
        let late = pending.filter { $0.value.deadline.map { $0 <= now } ?? false }
        for (id, request) in late {
            pending[id] = nil
            guard request.isSent else { continue }
            if request.isCancelled { ignored.append(request.name) }
            abandoned[id] = Abandoned(
                name: request.name, counts: request.counts, until: request.isCancelled ? nil : now + grace)
        }
        return (late.map { ($0.key, $0.value) }, ignored)
    }

    /// Takes out all requests that wait.
    mutating func removeAll() -> [Request] {
        defer { (pending, queue, abandoned) = ([:], [], [:]) }
        return Array(pending.values)
    }
}
