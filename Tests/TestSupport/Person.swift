public import CertificateProviding
import Synchronization

/// A person who answers every question alike, and is counted.
public final class Person: UserInteraction {
    private let answer: String
    private let heard = Mutex<[String]>([])
    private let told = Mutex<[String]>([])

    public init(_ answer: String) { self.answer = answer }

    public var questions: [String] { heard.withLock { $0 } }
    public var timesAsked: Int { questions.count }
    /// The progress that was shown.
    public var reports: [String] { told.withLock { $0 } }
    public func report(_ progress: String) { told.withLock { $0.append(progress) } }

    public func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        heard.withLock { $0.append(prompt) }
        return SecretBytes(utf8: answer)
    }

    public func requestText(_ prompt: String) async throws(CertificateProviderError) -> String {
        heard.withLock { $0.append(prompt) }
        return answer
    }

    /// Chooses the last.
    public func choose(_ question: String, among choices: [String]) async throws(CertificateProviderError) -> Int {
        heard.withLock { $0.append(question) }
        return choices.count - 1
    }

    public func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        heard.withLock { $0.append(question) }
        return true
    }
}
