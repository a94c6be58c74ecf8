public import CertificateProviding
import Synchronization

/// A user who answers as a test says, and remembers questions and reports.
public final class Person: UserInteraction {
    public typealias Answer = @Sendable (_ question: String) async throws(ProviderError) -> String

    private struct State {
        var questions: [String] = []
        var reports: [String] = []
        var waits: [Duration] = []
        var answers: [(question: String, answer: String)] = []
    }
    private let state = Mutex(State())
    private let answer: Answer
    private let consent: Bool?
    private let onReport: @Sendable () -> Void
    public let canAsk: Bool

    /// - Parameters:
    ///   - consent: To each question that takes a yes or no; `nil` where there is no terminal.
    ///   - onReport: Runs when progress is shown.
    ///   - answer: To each question for a secret or a text.
    public init(
        confirming consent: Bool? = true, canAsk: Bool = true, onReport: @escaping @Sendable () -> Void = {},
        _ answer: @escaping Answer
    ) { (self.consent, self.canAsk, self.onReport, self.answer) = (consent, canAsk, onReport, answer) }

    /// Always gives the same answer, but for those of ``answer(_:with:)``.
    public convenience init(_ answer: String) { self.init { _ in answer } }

    /// Gives these answers in turn.
    public convenience init(inTurn answers: [String]) {
        let left = Queue(answers)
        self.init { _ throws(ProviderError) in
            guard let answer = left.next() else {
                throw ProviderError(.userCancelled, "No answer is left.")
            }
            return answer
        }
    }

    /// Says yes or no, and knows no secrets.
    public convenience init(
        confirming consent: Bool?, canAsk: Bool = true, onReport: @escaping @Sendable () -> Void = {}
    ) {
        self.init(confirming: consent, canAsk: canAsk, onReport: onReport) { _ throws(ProviderError) in
            throw ProviderError(.interactionRequired, "There is no answer here.")
        }
    }

    /// Answers differently where a question contains a text.
    public func answer(_ question: String, with answer: String) {
        state.withLock { $0.answers.append((question, answer)) }
    }

    public var questions: [String] { state.withLock(\.questions) }
    public var timesAsked: Int { questions.count }
    /// The progress that was shown.
    public var reports: [String] { state.withLock(\.reports) }
    /// How long a wait was said to take still.
    public var waits: [Duration] { state.withLock(\.waits) }

    public func report(_ progress: String) {
        state.withLock { $0.reports.append(progress) }
        onReport()
    }

    public func report(_ progress: String, remaining: Duration) {
        state.withLock { $0.waits.append(remaining) }
        report("\(progress) \(remaining / .seconds(1)) seconds")
    }

    public func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        SecretBytes(utf8: try await requestText(prompt))
    }

    public func requestText(_ prompt: String) async throws(ProviderError) -> String {
        let known = state.withLock { state in
            state.questions.append(prompt)
            return state.answers.last { prompt.contains($0.question) }?.answer
        }
        if let known { return known }
        return try await answer(prompt)
    }

    /// Chooses the last.
    public func choose(_ question: String, among choices: [String]) async throws(ProviderError) -> Int {
        state.withLock { $0.questions.append(question) }
        return choices.count - 1
    }

    public func confirm(_ question: String) async throws(ProviderError) -> Bool {
        state.withLock { $0.questions.append(question) }
        guard let consent else { throw ProviderError(.interactionRequired, "There is no terminal.") }
        return consent
    }

    private final class Queue: Sendable {
        private let left: Mutex<[String]>
        init(_ answers: [String]) { left = Mutex(answers) }
        func next() -> String? { left.withLock { $0.isEmpty ? nil : $0.removeFirst() } }
    }
}
