import CertificateProviding

/// Lets one operation run at a time, and keeps what the last one has decided. A manager shares it with the one that replaces it.
final class Operations: Sendable {
    private struct State {
        var isBusy = false
        var decisions: [Decision] = []
    }
    private let state = BlockingMutex(State())

    /// - Throws: `operationNotAllowed` while another one runs.
    func begin() throws(ProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else {
            throw ProviderError(
                .operationNotAllowed, "Another operation is in progress; wait until it has finished.",
                reason: .busy)
        }
    }

    func end() { state.withLock { $0.isBusy = false } }

    /// The steps of the last operation.
    var decisions: [Decision] { state.withLock { $0.decisions } }

    func keep(_ log: DecisionLog) { state.withLock { $0.decisions = log.decisions } }
}
