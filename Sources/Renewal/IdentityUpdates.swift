public import CertificateProviding
import Synchronization

/// The sequence of identities of a ``RenewingIdentity``, beginning with the current one.
///
/// Any number of tasks may iterate independently: each gets the current identity at once, and then each new one.
/// Identities are not queued: a slow task gets the newest and misses the ones in between. The sequence ends when the
/// service ends, and when the iterating task is cancelled.
public struct IdentityUpdates: AsyncSequence, Sendable {
    let latest: LatestIdentity

    /// Returns an iterator that begins with the current identity.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(latest: latest) }

    /// The iterator of one task.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let latest: LatestIdentity
        private var seen: UInt64 = 0

        init(latest: LatestIdentity) { self.latest = latest }

        /// Returns the current identity at the first call, then waits for a newer one. `nil` at the end.
        public mutating func next(isolation: isolated (any Actor)?) async -> Identity? {
            guard let (identity, version) = await latest.next(after: seen) else { return nil }
            seen = version
            return identity
        }
    }
}

/// The current identity, and the tasks that wait for the next one.
final class LatestIdentity: Sendable {
    private struct State {
        var identity: Identity
        var version: UInt64 = 1
        var isFinished = false
        var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
        var lastTicket: UInt64 = 0
    }
    private let state: Mutex<State>

    init(_ identity: Identity) { state = Mutex(State(identity: identity)) }

    var identity: Identity { state.withLock { $0.identity } }

    func publish(_ identity: Identity) {
        resume { state in
            state.identity = identity
            state.version += 1
        }
    }

    func finish() { resume { $0.isFinished = true } }

    private func resume(after change: (inout State) -> Void) {
        let waiting = state.withLock { state in
            change(&state)
            defer { state.waiting = [:] }
            return state.waiting
        }
        for continuation in waiting.values { continuation.resume() }
    }

    /// Waits for a version later than `seen`. Returns `nil` at the end.
    func next(after seen: UInt64) async -> (Identity, version: UInt64)? {
        while !Task.isCancelled {
            let (found, isFinished) = state.withLock { state in
                (state.version > seen ? (state.identity, version: state.version) : nil, state.isFinished)
            }
            if let found { return found }
            if isFinished { return nil }
            await change(after: seen)
        }
        return nil
    }

    private func change(after seen: UInt64) async {
        let ticket = state.withLock { state in
            state.lastTicket += 1
            return state.lastTicket
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // Looked at again under the lock: both may have happened since, and then no later event would resume it.
                let isOver = state.withLock { state in
                    if state.version > seen || state.isFinished || Task.isCancelled { return true }
                    state.waiting[ticket] = continuation
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: ticket) }?.resume()
        }
    }
}
