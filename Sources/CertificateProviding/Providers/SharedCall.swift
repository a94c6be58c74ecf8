/// A call that is made once for all who want its result while it runs, such as an enrolment: concurrent calls of
/// ``CertificateProvider/getCertificate(_:)`` give one identity.
///
/// May be used from any thread.
public final class SharedCall<Value: Sendable>: Sendable {
    private typealias Outcome = Result<Value, ProviderError>
    private struct State {
        /// Nil while no call runs.
        var task: Task<Void, Never>?
        /// The last waiter, which has cancelled the task and waits for its end.
        var canceller: UInt64?
        var waiters: [UInt64: Waiter] = [:]
        var nextWaiter: UInt64 = 0
    }
    private struct Waiter {
        /// Gets nil where the call was cancelled before this one came.
        let continuation: CheckedContinuation<Outcome?, Never>
        let isLate: Bool
    }
    private let state = BlockingMutex(State())

    /// Creates a call that does not run.
    public init() {}

    /// Returns the result of the call that runs, or makes it with `body`.
    ///
    /// A caller that is cancelled stops waiting. The call goes on for the others; with the last one, its task is cancelled, and
    /// its result is waited for.
    ///
    /// - Throws: Errors of the call; `userCancelled` for a caller that is cancelled while others wait.
    public func run(
        _ body: @escaping @Sendable () async throws(ProviderError) -> Value
    ) async throws(ProviderError) -> Value {
        while true {
            if let outcome = await join(body) { return try outcome.get() }
        }
    }

    private func join(_ body: @escaping @Sendable () async throws(ProviderError) -> Value) async -> Outcome? {
        let number = state.withLock { state in
            state.nextWaiter += 1
            return state.nextWaiter
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                state.withLock { state in
                    state.waiters[number] = Waiter(continuation: continuation, isLate: state.canceller != nil)
                    guard state.task == nil else { return }
                    state.task = Task { self.finish(await Self.outcome(of: body)) }
                }
                if Task.isCancelled { leave(number) }
            }
        } onCancel: {
            leave(number)
        }
    }

    private static func outcome(
        of body: @Sendable () async throws(ProviderError) -> Value
    ) async -> Outcome {
        do throws(ProviderError) { return .success(try await body()) } catch { return .failure(error) }
    }

    private func finish(_ outcome: Outcome) {
        let waiters = state.withLock { state in
            defer { (state.task, state.canceller, state.waiters) = (nil, nil, [:]) }
            return state.waiters.values
        }
        for waiter in waiters { waiter.continuation.resume(returning: waiter.isLate ? nil : outcome) }
    }

    /// Does nothing the second time: a cancellation while the caller joins is seen twice.
    private func leave(_ number: UInt64) {
        let waiter = state.withLock { state -> Waiter? in
            guard state.waiters[number] != nil, number != state.canceller else { return nil }
            if state.waiters.count > 1 || state.canceller != nil { return state.waiters.removeValue(forKey: number) }
            state.canceller = number
            state.task?.cancel()
            return nil
        }
        waiter?.continuation.resume(
            returning: .failure(
                ProviderError(.userCancelled, "The call was cancelled, and goes on for others.")))
    }
}
