package import CertificateProviding

/// A prompt that asks under the ``TerminalLock``: one question of this user's signers is on the screen at a time.
package struct ExclusivePrompt: ApprovalPrompt {
    private let prompt: any ApprovalPrompt
    private let directory: String

    /// - Parameter directory: That of the journal.
    package init(_ prompt: any ApprovalPrompt, directory: String) {
        (self.prompt, self.directory) = (prompt, directory)
    }

    package var name: String { prompt.name }

    package func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(ProviderError) -> ApprovalAnswer {
        // The time of the person is whole: it runs from when the question is shown. As many as may wait are before this one.
        guard let lock = try await TerminalLock.acquire(in: directory, within: time * PendingRequests.usualMaximum)
        else {
            return .timedOut
        }
        defer { withExtendedLifetime(lock) {} }
        return try await prompt.answer(to: question, within: time)
    }
}
