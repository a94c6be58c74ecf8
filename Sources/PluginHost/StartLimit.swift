import CertificateProviding

/// Bounds how often a plugin is started, so that one that fails is not started without end.
final class StartLimit: Sendable {
    private struct State {
        var starts: [ContinuousClock.Instant] = []
        var lastFailure: ProviderError?
    }
    private let id: ProviderID
    private let state = BlockingMutex(State())

    /// How often a plugin may be started within a minute.
    private static let maximumStarts = 5

    init(_ id: ProviderID) { self.id = id }

    /// Why the plugin failed last.
    var lastFailure: ProviderError? { state.withLock(\.lastFailure) }

    func note(_ failure: ProviderError) { state.withLock { $0.lastFailure = failure } }

    /// Counts a start.
    /// - Throws: The code of the last failure, or `unavailable`, if it is one too many.
    func count() throws(ProviderError) {
        let now = ContinuousClock.now
        let (isTooOften, failure) = state.withLock { state in
            state.starts.removeAll { now - $0 > .seconds(60) }
            let isTooOften = state.starts.count >= Self.maximumStarts
            if !isTooOften { state.starts.append(now) }
            return (isTooOften, state.lastFailure)
        }
        guard isTooOften else { return }
        throw ProviderError(
            failure?.code ?? .unavailable,
            "The plugin '\(id)' was started \(Self.maximumStarts) times within a minute, and is not started again before that "
                + "is over. " + (failure.map { "The last error: \($0.message)" } ?? "Each time it ended."), provider: id
        )
    }
}
