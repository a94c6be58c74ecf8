import CertificateProviding
import Synchronization

/// A person who compares fingerprints, and types no secrets.
final class Administrator: UserInteraction {
    private let answer: Bool?
    private let heard = Mutex([String]())
    private let seen = Mutex([Duration]())

    /// - Parameter answer: `nil` where there is no terminal.
    init(answering answer: Bool?) { self.answer = answer }

    var questions: [String] { heard.withLock(\.self) }

    /// The waits that were announced.
    var waits: [Duration] { seen.withLock(\.self) }

    func report(_ progress: String, remaining: Duration) { seen.withLock { $0.append(remaining) } }

    func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        throw CertificateProviderError(.interactionRequired, "no secrets here")
    }

    func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        heard.withLock { $0.append(question) }
        guard let answer else { throw CertificateProviderError(.interactionRequired, "no terminal") }
        return answer
    }
}
