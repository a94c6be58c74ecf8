import CertificateProviding
import Synchronization
import TestSupport

enum KeyHome: String, CaseIterable, Sendable {
    case exportable, atHome
}

extension Identity {
    /// The same identity with a key that cannot be exported.
    ///
    /// - Parameter willSign: Runs before each signature; may suspend, and may throw what a token would report.
    func keptAtHome(
        willSign: @escaping @Sendable () async throws(ProviderError) -> Void = {}
    ) throws -> Identity {
        try with(
            TestKey(key) { [key] message, scheme throws(ProviderError) in
                try await willSign()
                return try await key.signature(for: message, using: scheme)
            })
    }

    func kept(_ home: KeyHome) throws -> Identity { home == .atHome ? try keptAtHome() : self }
}

/// Holds each caller until it is opened.
final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private let state = Mutex(State())
    private let arrived: AsyncStream<Void>.Continuation
    /// Yields once for each caller that had to wait.
    let arrivals: AsyncStream<Void>

    init() { (arrivals, arrived) = AsyncStream.makeStream() }

    func pass() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() } else { arrived.yield() }
        }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}
