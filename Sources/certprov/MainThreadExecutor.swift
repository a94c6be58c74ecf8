import Dispatch
import Synchronization

/// Runs a program's tasks on its main thread.
///
/// An `async` main would start three threads before a command runs, which takes as long as reading a PKCS#12 file.
final class MainThreadExecutor: TaskExecutor {
    private struct State {
        var jobs: [UnownedJob] = []
        var isFinished = false
    }

    private let state = Mutex(State())
    private let wakeUp = DispatchSemaphore(value: 0)

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        state.withLock { $0.jobs.append(job) }
        wakeUp.signal()
    }

    /// Runs `body`, and blocks until it has returned.
    func run(_ body: @escaping @Sendable () async -> Void) {
        Task(executorPreference: self) { [self] in
            await body()
            state.withLock { $0.isFinished = true }
            wakeUp.signal()
        }
        while !state.withLock({ $0.isFinished }) {
            wakeUp.wait()
            let job = state.withLock { $0.jobs.isEmpty ? nil : $0.jobs.removeFirst() }
            job?.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}
