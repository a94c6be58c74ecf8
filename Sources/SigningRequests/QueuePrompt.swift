import CLinux
package import CertificateProviding
import Glibc

/// Waits until another process answers: `certprov requests approve` or `decline`. Nothing is shown.
///
/// The request waits among ``PendingRequests``, with `isQueued`.
package struct QueuePrompt: ApprovalPrompt {
    private let requests: PendingRequests
    private let threads: BlockingExecutor

    package init(_ requests: PendingRequests) {
        self.requests = requests
        threads = .threads(maximum: requests.maximum)
    }

    static let name = "queue"
    package var name: String { Self.name }

    /// Waits for the answer on a thread of its own. An answer at the last moment counts, or its sender gets an error.
    ///
    /// - Throws: `userCancelled` if the task was cancelled; `notFound` for a question that is not among those that wait.
    package func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(ProviderError) -> ApprovalAnswer {
        let end = ContinuousClock.now + time
        let wait = try Wait(try requests.openPipe(of: question))
        let result = await withTaskCancellationHandler { () async -> Result<ApprovalAnswer, ProviderError> in
            do throws(ProviderError) {
                return .success(
                    try await threads.run { [requests] () throws(ProviderError) in
                        if let answer = try wait.answer(until: end) { return try Self.read(answer, question) }
                        // The pipe was renamed by an answer that is about to be written.
                        if !requests.refuseAnswers(to: question),
                            let answer = try wait.answer(until: .now + .seconds(1))
                        {
                            return try Self.read(answer, question)
                        }
                        return .timedOut
                    })
            } catch {
                _ = requests.refuseAnswers(to: question)
                return .failure(error)
            }
        } onCancel: {
            wait.cancel()
        }
        return try result.get()
    }

    private static func read(
        _ answer: [UInt8], _ question: SigningQuestion
    ) throws(ProviderError) -> ApprovalAnswer {
        for approve in [true, false]
        where answer.elementsEqual(PendingRequests.answer(to: question, approve: approve).utf8) {
            return approve ? .approved : .declined
        }
        throw ProviderError(
            .malformedData, "The answer to the request \(question.id) is not one to it, and does not count.")
    }

    /// The wait for one answer.
    private final class Wait: Sendable {
        private let pipe: Int32
        /// Readable after a cancellation.
        private let cancellation = certprov_event()

        init(_ pipe: Int32) throws(ProviderError) {
            self.pipe = pipe
            guard cancellation >= 0 else {
                throw ProviderError(
                    .unavailable, "The queue cannot wait for an answer: \(errorText(errno)).")
            }
        }

        deinit {
            close(pipe)
            if cancellation >= 0 { close(cancellation) }
        }

        func cancel() {
            var one: UInt64 = 1
            _ = write(cancellation, &one, MemoryLayout<UInt64>.size)
        }

        /// Blocks until there is an answer; `nil` when the time is over.
        func answer(until end: ContinuousClock.Instant) throws(ProviderError) -> [UInt8]? {
            while true {
                let left = max(.zero, end - .now) / .milliseconds(1)
                var both = [
                    pollfd(fd: cancellation, events: Int16(POLLIN), revents: 0),
                    pollfd(fd: pipe, events: Int16(POLLIN), revents: 0),
                ]
                let ready = poll(&both, 2, Int32(min(left.rounded(.up), 60_000)))
                if both[0].revents != 0 {
                    throw ProviderError(.userCancelled, "The wait for an answer was cancelled.")
                }
                var buffer = [UInt8](repeating: 0, count: 256)
                if both[1].revents != 0, case let count = Glibc.read(pipe, &buffer, buffer.count), count > 0 {
                    return Array(buffer[..<count])
                }
                if ready == 0, left <= 0 || ContinuousClock.now >= end { return nil }
                // An error that does not go away must not spin.
                guard ready >= 0 || errno == EINTR else {
                    throw ProviderError(
                        .unavailable, "The queue cannot wait for an answer: \(errorText(errno)).")
                }
            }
        }
    }
}
