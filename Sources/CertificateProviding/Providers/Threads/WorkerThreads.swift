import Glibc
import Synchronization

/// A bounded pool of threads that may block. Threads start on demand and end after they were idle for some time.
///
/// A dispatch queue is not used: on Linux the concurrent queues share their few threads with Swift's tasks, so about
/// twenty blocked calls would stall every task of the process.
///
/// While jobs are short, no more threads run than there are processors, since more would only compete for them. A job
/// submitted by a job stays on the same thread, whose caches are warm. One thread then watches that the work goes on,
/// since any job may hang.
final class WorkerThreads: Sendable {
    typealias Job = @Sendable () -> Void

    private struct State {
        /// The jobs that no thread has taken yet.
        var jobs = JobQueue()
        /// The number of jobs taken so far.
        var taken = 0
        var threads = 0
        /// The idle threads; the last element became idle last. It may still be awake, and its caches are warm.
        var idle: [Semaphore] = []
        /// Whether one of the idle threads spins for work instead of sleeping.
        var hasLookout = false
        var watch = Watch.none
        var jobLength = JobLength()

        enum Watch { case none, wanted, kept }

        var running: Int { threads - idle.count - (watch == .kept ? 1 : 0) }

        mutating func takeJob() -> Job? {
            guard let job = jobs.popFirst() else { return nil }
            taken &+= 1
            return job
        }
    }

    private let maximum: Int
    /// Starts a thread that runs ``work()``; returns false if no thread can be created.
    private let start: @Sendable (WorkerThreads) -> Bool
    private let state = Mutex(State())
    private static let processors = max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    /// How long a thread spins for the next job before it sleeps. Calls often come in sequence, and waking a thread
    /// takes as long as a token's software needs for a signature.
    private static let lookout = Duration.microseconds(20)
    /// The maximum run time of a short job, in nanoseconds. After this time the watch checks whether any job was taken.
    private static let shortJob: Int64 = 1_000_000

    init(maximum: Int, start: @escaping @Sendable (WorkerThreads) -> Bool = WorkerThreads.startThread) {
        self.maximum = maximum
        self.start = start
    }

    func submit(_ job: @escaping Job) {
        let isFromJob = WorkerThread.isOne(of: self)
        let helper = state.withLock { state -> Help in
            let isNext = isFromJob && state.jobs.isEmpty
            state.jobs.append(job)
            if state.jobLength.shortest < Self.shortJob && (isNext || state.running >= Self.processors) {
                // They come to it soon; the watch sees to that.
                return watch(&state)
            }
            return help(&state)
        }
        give(helper)
    }

    // MARK: - Whom to wake

    private enum Help {
        case none, newThread
        case idle(Semaphore)
    }

    /// Returns one more thread, if the limit permits.
    private func help(_ state: inout State) -> Help {
        if let idle = state.idle.popLast() { return .idle(idle) }
        guard state.threads < maximum else { return .none }
        state.threads += 1
        return .newThread
    }

    /// Returns a thread for the watch, if there is none yet.
    private func watch(_ state: inout State) -> Help {
        guard state.watch == .none else { return .none }
        let watch = help(&state)
        if case .none = watch { return .none }
        state.watch = .wanted
        return watch
    }

    private func give(_ help: Help) {
        switch help {
        case .none: return
        case .idle(let thread): return thread.post()
        case .newThread: if start(self) { return }
        }
        state.withLock { state in
            state.threads -= 1
            if state.watch == .wanted { state.watch = .none }
        }
        // Another thread will take the job; without any, it runs here, late rather than never. All there are: a
        // submitter that failed at the same time has left its job to the thread that this one hoped for.
        while let job = state.withLock({ $0.threads == 0 ? $0.takeJob() : nil }) { job() }
    }

    // MARK: - What a thread does

    @Sendable static func startThread(_ threads: WorkerThreads) -> Bool {
        var thread = pthread_t()
        let context = Unmanaged.passRetained(threads)
        let result = pthread_create(
            &thread, nil,
            { context in
                guard let context else { return nil }
                Unmanaged<WorkerThreads>.fromOpaque(context).takeRetainedValue().work()
                return nil
            }, context.toOpaque())
        guard result == 0 else {
            context.release()
            return false
        }
        pthread_detach(thread)
        return true
    }

    private enum Turn {
        case run(Job, Help)
        case look, sleep, watch, end
    }

    /// The last activity of a thread.
    private enum Past {
        case begun, worked(nanoseconds: Int64), lookedOut, slept(isOverdue: Bool), watched
    }

    func work() {
        WorkerThread.begin(of: self)
        let wakeUp = Semaphore()
        var past = Past.begun
        var taken = 0
        while true {
            let turn = state.withLock { next(&$0, after: past, wakeUp, &taken) }
            switch turn {
            case .run(let job, let help):
                give(help)
                let start = nanoseconds()
                job()
                past = .worked(nanoseconds: nanoseconds() - start)
            case .look:
                _ = wakeUp.look(for: Self.lookout)
                past = .lookedOut
            case .sleep: past = .slept(isOverdue: !wakeUp.wait(seconds: 5))
            case .watch:
                usleep(1000)
                past = .watched
            case .end: return
            }
        }
    }

    /// Chooses the next activity of a thread.
    ///
    /// - Parameter taken: The number of jobs that had been taken when the thread began to watch.
    private func next(_ state: inout State, after past: Past, _ wakeUp: Semaphore, _ taken: inout Int) -> Turn {
        // Whoever wakes it takes it out. It is still in after a wait in vain, and after one that a late wake-up has cut
        // short.
        let place = state.idle.firstIndex { $0 === wakeUp }
        var isOverdue = false
        var help = Help.none
        switch past {
        case .worked(let duration):
            state.jobLength.append(duration)
        case .watched:
            // Kept as long as work goes on: waking it takes longer than its looks.
            if state.taken != taken {
                taken = state.taken
                return .watch
            }
            state.watch = .none
            // Those at work hang, or are no longer short.
            if !state.jobs.isEmpty { help = watch(&state) }
        case .begun, .lookedOut, .slept:
            if case .lookedOut = past {
                state.hasLookout = false
                if place != nil { return .sleep }
            }
            if case .slept(isOverdue: true) = past { isOverdue = place != nil }
            if state.watch == .wanted && place == nil {
                state.watch = .kept
                taken = state.taken
                return .watch
            }
        }
        if let place { state.idle.remove(at: place) }
        if let job = state.takeJob() { return .run(job, help) }
        if isOverdue {
            state.threads -= 1
            return .end
        }
        state.idle.append(wakeUp)
        guard case .worked = past, !state.hasLookout, Self.processors > 1 else { return .sleep }
        state.hasLookout = true
        return .look
    }
}

/// Returns the time since boot in nanoseconds. Cheaper by one division than `ContinuousClock`.
private func nanoseconds() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}
