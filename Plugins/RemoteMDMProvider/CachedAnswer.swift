import CertificateProviding
import Synchronization

/// An answer of the server that is asked for once per run.
final class CachedAnswer<Answer: Sendable>: Sendable {
    private let answer = Mutex<Answer?>(nil)

    /// Returns the cached answer, or asks for it. A failure is not cached. Do not call it from several tasks at once:
    /// each of them would ask.
    func callAsFunction(
        _ ask: () async throws(ProviderError) -> Answer
    ) async throws(ProviderError) -> Answer {
        if let known = answer.withLock({ $0 }) { return known }
        let new = try await ask()
        answer.withLock { $0 = new }
        return new
    }
}
