import Glibc
import Synchronization

/// A bounded number of threads that may block, started when there is work and ended when there has been none for a
/// while.
///
/// Not a dispatch queue: on Linux the concurrent ones draw on the same few threads as Swift's own tasks, so that some
/// twenty blocked calls would stall every task of the process.
final class WorkerThreads: Sendable {
    typealias Job = @Sendable () -> Void

    private struct State {
        /// Those that no thread has taken yet.
        var jobs = Queue()
        var threads = 0
        /// The last one became idle last: it may not have gone to sleep yet, and what it needs is in the caches.
        var idle: [Semaphore] = []
    }

    private let maximum: Int
    /// Lets a thread of its own run ``work()``; false where there is no thread to be had.
    private let start: @Sendable (WorkerThreads) -> Bool
    private let state = Mutex(State())
    private static let idleSeconds = 5
    /// For how long a thread that has just worked looks out for the next job before it sleeps. Work often comes one call
    /// after the other, and waking a thread takes as long as a token's software needs for a signature.
    private static let lookout = sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1 ? Duration.microseconds(20) : .zero

    init(maximum: Int, start: @escaping @Sendable (WorkerThreads) -> Bool = WorkerThreads.startThread) {
        self.maximum = maximum
        self.start = start
    }

    func submit(_ job: @escaping Job) {
        let (idle, needsThread) = state.withLock { state -> (Semaphore?, Bool) in
            state.jobs.append(job)
            if let idle = state.idle.popLast() { return (idle, false) }
            guard state.threads < maximum else { return (nil, false) }
            state.threads += 1
            return (nil, true)
        }
        idle?.post()
        guard needsThread && !start(self) else { return }
        state.withLock { $0.threads -= 1 }
        // Another thread will take the job; without any, it runs here, late rather than never. All there are: a submitter
        // that failed at the same time has left its job to the thread that this one hoped for.
        while let job = takeOrphan() { job() }
    }

    private func takeOrphan() -> Job? {
        state.withLock { $0.threads == 0 ? $0.jobs.popFirst() : nil }
    }

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
        case run(Job)
        case wait(isOnlyOne: Bool)
        case end
    }

    func work() {
        let wakeUp = Semaphore()
        var isOverdue = false
        while true {
            let turn: Turn = state.withLock { state in
                // Whoever wakes it takes it out. It is still in after a wait in vain, and after one that a late wake-up
                // has cut short.
                let place = state.idle.firstIndex { $0 === wakeUp }
                if let place { state.idle.remove(at: place) }
                if let job = state.jobs.popFirst() { return .run(job) }
                if isOverdue && place != nil {
                    state.threads -= 1
                    return .end
                }
                state.idle.append(wakeUp)
                return .wait(isOnlyOne: state.idle.count == 1)
            }
            isOverdue = false
            switch turn {
            case .run(let job): job()
            case .wait(let isOnlyOne):
                let isWoken = isOnlyOne && wakeUp.look(for: Self.lookout) || wakeUp.wait(seconds: Self.idleSeconds)
                isOverdue = !isWoken
            case .end: return
            }
        }
    }
}

/// First in, first out.
private struct Queue {
    private var incoming: [WorkerThreads.Job] = []
    /// The next one last.
    private var outgoing: [WorkerThreads.Job] = []

    mutating func append(_ job: @escaping WorkerThreads.Job) { incoming.append(job) }

    mutating func popFirst() -> WorkerThreads.Job? {
        if outgoing.isEmpty {
            outgoing = incoming.reversed()
            incoming.removeAll(keepingCapacity: true)
        }
        return outgoing.popLast()
    }
}

/// A POSIX semaphore. Posting and waiting are the only things done with it, and both are thread-safe by themselves.
private final class Semaphore: @unchecked Sendable {
    private let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    func post() { sem_post(semaphore) }

    /// Waits without sleeping. Returns false when nothing was posted in time.
    func look(for duration: Duration) -> Bool {
        let end = ContinuousClock.now + duration
        repeat {
            if sem_trywait(semaphore) == 0 { return true }
        } while ContinuousClock.now < end
        return false
    }

    /// Returns false when nothing was posted in time.
    func wait(seconds: Int) -> Bool {
        var deadline = timespec()
        // The wall clock, since there is no other for this call; a step of it only changes when an idle thread ends.
        clock_gettime(CLOCK_REALTIME, &deadline)
        deadline.tv_sec += seconds
        while sem_timedwait(semaphore, &deadline) != 0 {
            if errno != EINTR { return false }
        }
        return true
    }
}
