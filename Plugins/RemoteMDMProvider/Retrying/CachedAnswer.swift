import CertificateProviding
import Synchronization

/// An answer of the server that holds for the whole of a run.
final class CachedAnswer<Answer: Sendable>: Sendable {
    private let answer = Mutex<Answer?>(nil)

    /// Returns the answer, and asks where it is not known yet. A failure is none. Not for several tasks at once, each
    /// of which would ask.
    func callAsFunction(
        _ ask: () async throws(CertificateProviderError) -> Answer
    ) async throws(CertificateProviderError) -> Answer {
        if let known = answer.withLock({ $0 }) { return known }
        let new = try await ask()
        answer.withLock { $0 = new }
        return new
    }
}
