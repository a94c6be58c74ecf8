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
        var jobs: [Job] = []
        var threads = 0
        var idle = 0
    }

    private let maximum: Int
    /// Lets a thread of its own run ``work()``; false where there is no thread to be had.
    private let start: @Sendable (WorkerThreads) -> Bool
    private let state = Mutex(State())
    /// Counts the jobs that no thread has taken yet, for idle threads to wait on.
    private let signal = Semaphore()
    private static let idleSeconds = 5

    init(maximum: Int, start: @escaping @Sendable (WorkerThreads) -> Bool = WorkerThreads.startThread) {
        self.maximum = maximum
        self.start = start
    }

    func submit(_ job: @escaping Job) {
        let needsThread = state.withLock { state in
            state.jobs.append(job)
            guard state.jobs.count > state.idle, state.threads < maximum else { return false }
            state.threads += 1
            return true
        }
        if needsThread && !start(self) {
            state.withLock { $0.threads -= 1 }
            // Another thread will take the job; without any, it runs here, late rather than never. All there are: a
            // submitter that failed at the same time has left its job to the thread that this one hoped for.
            while let job = takeOrphan() { job() }
        }
        signal.post()
    }

    private func takeOrphan() -> Job? {
        state.withLock { $0.threads == 0 && !$0.jobs.isEmpty ? $0.jobs.removeFirst() : nil }
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

    func work() {
        while true {
            let job: Job? = state.withLock { state in
                if state.jobs.isEmpty {
                    state.idle += 1
                    return nil
                }
                return state.jobs.removeFirst()
            }
            if let job {
                job()
                continue
            }
            let isSignalled = signal.wait(seconds: Self.idleSeconds)
            let isFinished = state.withLock { state in
                state.idle -= 1
                guard !isSignalled && state.jobs.isEmpty else { return false }
                state.threads -= 1
                return true
            }
            if isFinished { return }
        }
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
