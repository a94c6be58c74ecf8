package import CertificateProviding

/// The result of a question.
package enum ApprovalAnswer: Sendable, Equatable {
    case approved
    case declined
    /// The question stands on no screen any more.
    case timedOut
}

/// Asks a person about one request.
package protocol ApprovalPrompt: Sendable {
    /// The approver in the journal: `terminal`, `pinentry` or `queue`.
    var name: String { get }

    /// Shows the question, and returns the answer. Suspends until there is one, or until the time is up.
    ///
    /// - Parameter time: Runs from when the question is shown, also while the person reads the document.
    /// - Throws: `interactionRequired` if no person can be asked. After any error, the request is not approved.
    func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(ProviderError) -> ApprovalAnswer
}
