import Dispatch
import Glibc

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
        /// Whether a thread has been woken or started and has not looked for a job yet. It wakes the next one if there
        /// are more jobs: where each job woke a thread, short ones would wake more than there are processors, which then
        /// take turns with the threads that wait for the results.
        var isWaking = false

        /// - Returns: The thread to wake or to start for the jobs in the queue.
        mutating func help(maximum: Int) -> Help {
            guard !jobs.isEmpty, !isWaking else { return .none }
            if let thread = idle.popLast() {
                isWaking = true
                return .idle(thread)
            }
            guard threads < maximum else { return .none }
            threads += 1
            isWaking = true
            return .newThread
        }
    }

    private enum Help {
        case none, newThread
        case idle(DispatchSemaphore)
    }

    private let maximum: Int
    /// Starts a thread that runs ``work()``; returns false if no thread can be created.
    private let start: @Sendable (WorkerThreads) -> Bool
    private let state = BlockingMutex(State())
    private static let idleTime = DispatchTimeInterval.seconds(5)

    init(maximum: Int, start: @escaping @Sendable (WorkerThreads) -> Bool = WorkerThreads.startThread) {
        self.maximum = maximum
        self.start = start
    }

    func submit(_ job: @escaping Job) {
        call(
            state.withLock { state in
                state.jobs.append(job)
                return state.help(maximum: maximum)
            })
    }

    private func call(_ help: Help) {
        switch help {
        case .none: return
        case .idle(let thread): thread.signal()
        case .newThread:
            if start(self) { return }
            let idle = state.withLock { state in
                state.threads -= 1
                // It may have become idle in the meantime.
                let idle = state.jobs.isEmpty ? nil : state.idle.popLast()
                state.isWaking = idle != nil
                return idle
            }
            idle?.signal()
            // Without any thread the jobs run here, late rather than never. All of them: another submitter that came in the
            // meantime has left its job to the thread that did not start.
            while let job = state.withLock({ $0.threads == 0 ? $0.jobs.popFirst() : nil }) { job() }
        }
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
        // A library that writes to a process that has ended gets an error, as p11-kit does, and does not end this process.
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let wakeUp = DispatchSemaphore(value: 0)
        var wasWoken = true
        while true {
            let (job, help) = state.withLock { state -> (Job?, Help) in
                if wasWoken { state.isWaking = false }
                guard let job = state.jobs.popFirst() else {
                    state.idle.append(wakeUp)
                    return (nil, .none)
                }
                return (job, state.help(maximum: maximum))
            }
            wasWoken = job == nil
            if let job {
                call(help)
                job()
            } else if wakeUp.wait(timeout: .now() + Self.idleTime) == .timedOut {
                let isIdle = state.withLock { state in
                    guard let place = state.idle.firstIndex(where: { $0 === wakeUp }) else { return false }
                    state.idle.remove(at: place)
                    state.threads -= 1
                    return true
                }
                if isIdle { return }
                // Another thread is just waking it.
                wakeUp.wait()
            }
        }
    }
}
