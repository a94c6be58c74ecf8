import CLinux
import CertificateProviding
import Dispatch
import Glibc
import Synchronization

/// The questions at the terminal: one at a time, in the order in which they were asked, on a thread of their own. The threads
/// of tasks hold signals back, so that the process would not notice that the user has pressed ^C.
package enum Questions {
    private static let thread = BlockingExecutor.threads(maximum: 1)
    private struct State {
        /// The questions without an answer.
        var open: [ObjectIdentifier: Cancellation] = [:]
        var hasEnded = false
    }
    private static let state = Mutex(State())

    /// Calls `body` when it is this question's turn.
    ///
    /// - Parameter body: Blocks for the answer. It ends with `userCancelled` when the cancellation's descriptor is readable.
    /// - Throws: What `body` throws; `userCancelled` if the task was cancelled before, and after ``end()``.
    static func ask(
        _ body: @escaping @Sendable (Cancellation) throws(ProviderError) -> SecretBytes
    ) async throws(ProviderError) -> SecretBytes {
        let cancellation = Cancellation()
        let hasEnded = state.withLock { state in
            state.open[ObjectIdentifier(cancellation)] = cancellation
            return state.hasEnded
        }
        defer { _ = state.withLock { $0.open.removeValue(forKey: ObjectIdentifier(cancellation)) } }
        if hasEnded { throw noAnswer }
        let result = await withTaskCancellationHandler { () async -> Result<SecretBytes, ProviderError> in
            do throws(ProviderError) {
                return .success(
                    try await thread.run { () throws(ProviderError) in
                        receiveSignals()
                        guard !cancellation.isCancelled else { throw noAnswer }
                        return try body(cancellation)
                    })
            } catch { return .failure(error) }
        } onCancel: {
            cancellation.cancel()
        }
        return try result.get()
    }

    /// Ends all questions, also those that are asked later, and waits until the terminal is as it was before: two seconds at
    /// most.
    package static func end() {
        let questions = state.withLock { state in
            state.hasEnded = true
            return state.open.values.map(\.self)
        }
        guard !questions.isEmpty else { return }
        for question in questions { question.cancel() }
        let isOver = DispatchSemaphore(value: 0)
        thread.submit { isOver.signal() }
        _ = isOver.wait(timeout: .now() + 2)
    }

    static let noAnswer = ProviderError(.userCancelled, "The question was not answered.")

    /// A new thread holds back what the one that made it does.
    private static func receiveSignals() {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU] {
            sigaddset(&signals, number)
        }
        pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    }

    /// Tells a question that its answer is not wanted any more.
    final class Cancellation: Sendable {
        /// Readable after the cancellation. -1 if the process has no descriptors left: then it is not noticed.
        let descriptor = certprov_event()

        deinit { close(descriptor) }

        func cancel() {
            var one: UInt64 = 1
            _ = write(descriptor, &one, MemoryLayout<UInt64>.size)
        }

        var isCancelled: Bool {
            var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            return poll(&event, 1, 0) == 1
        }
    }
}
