import Dispatch
import Glibc
import Synchronization

/// A bounded pool of threads that may block. Threads start on demand and end after they were idle for some seconds.
///
/// A dispatch queue is not used: on Linux the concurrent queues share their few threads with Swift's tasks, so about
/// twenty blocked calls would stall every task of the process.
final class WorkerThreads: Sendable {
    typealias Job = @Sendable () -> Void

    private struct State {
        /// The jobs that no thread has taken yet.
        var jobs = JobQueue()
        var threads = 0
        /// The idle threads. The last element became idle last, so its caches are warm.
        var idle: [DispatchSemaphore] = []
    }

    private let maximum: Int
    /// Starts a thread that runs ``work()``; returns false if no thread can be created.
    private let start: @Sendable (WorkerThreads) -> Bool
    private let state = Mutex(State())
    private static let idleTime = DispatchTimeInterval.seconds(5)

    init(maximum: Int, start: @escaping @Sendable (WorkerThreads) -> Bool = WorkerThreads.startThread) {
        self.maximum = maximum
        self.start = start
    }

    private enum Help {
        case none, newThread
        case idle(DispatchSemaphore)
    }

    func submit(_ job: @escaping Job) {
        let help = state.withLock { state -> Help in
            state.jobs.append(job)
            if let idle = state.idle.popLast() { return .idle(idle) }
            guard state.threads < maximum else { return .none }
            state.threads += 1
            return .newThread
        }
        switch help {
        case .none: return
        case .idle(let thread):
            thread.signal()
            return
        case .newThread: if start(self) { return }
        }
        state.withLock { $0.threads -= 1 }
        // Another thread will take the job; without any, it runs here, late rather than never. All there are: a
        // submitter that failed at the same time has left its job to the thread that this one hoped for.
        while let job = state.withLock({ $0.threads == 0 ? $0.jobs.popFirst() : nil }) { job() }
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

    private func work() {
        let wakeUp = DispatchSemaphore(value: 0)
        while true {
            let job = state.withLock { state -> Job? in
                if let job = state.jobs.popFirst() { return job }
                state.idle.append(wakeUp)
                return nil
            }
            if let job {
                job()
            } else if wakeUp.wait(timeout: .now() + Self.idleTime) == .timedOut {
                let isIdle = state.withLock { state in
                    guard let place = state.idle.firstIndex(where: { $0 === wakeUp }) else { return false }
                    state.idle.remove(at: place)
                    state.threads -= 1
                    return true
                }
                if isIdle { return }
                // Somebody is just waking it.
                wakeUp.wait()
            }
        }
    }
}
