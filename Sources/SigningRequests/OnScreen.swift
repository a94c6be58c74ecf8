package import CertificateProviding

/// A prompt whose question stands on the screen: no other one of this user's signers does so at the same time.
package struct OnScreenPrompt: ApprovalPrompt {
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
        guard let turn = try await ScreenTurn.take(in: directory, within: time * PendingRequests.usualMaximum) else {
            return .timedOut
        }
        defer { withExtendedLifetime(turn) {} }
        return try await prompt.answer(to: question, within: time)
    }
}

/// An interaction whose questions stand on the screen: no other one of this user's signers does so at the same time.
package struct OnScreenInteraction: UserInteraction {
    /// How long a question waits for another one to be answered.
    private static let timeout = Duration.seconds(120)
    private let interaction: any UserInteraction
    private let directory: String

    /// - Parameter directory: That of the journal.
    package init(_ interaction: any UserInteraction, directory: String) {
        (self.interaction, self.directory) = (interaction, directory)
    }

    package var canAsk: Bool { interaction.canAsk }

    package func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        try await inTurn { () throws(ProviderError) in try await interaction.requestSecret(prompt) }
    }

    package func confirm(_ question: String) async throws(ProviderError) -> Bool {
        try await inTurn { () throws(ProviderError) in try await interaction.confirm(question) }
    }

    package func requestText(_ prompt: String) async throws(ProviderError) -> String {
        try await inTurn { () throws(ProviderError) in try await interaction.requestText(prompt) }
    }

    package func choose(
        _ question: String, among choices: [String]
    ) async throws(ProviderError) -> Int {
        try await inTurn { () throws(ProviderError) in
            try await interaction.choose(question, among: choices)
        }
    }

    package func report(_ progress: String) { interaction.report(progress) }
    package func report(_ progress: String, remaining: Duration) { interaction.report(progress, remaining: remaining) }

    private func inTurn<T>(
        _ ask: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        guard let turn = try await ScreenTurn.take(in: directory, within: Self.timeout) else {
            throw ProviderError(
                .timedOut, "The question was not asked: another one is on the screen. Answer it, and try again.")
        }
        defer { withExtendedLifetime(turn) {} }
        return try await ask()
    }
}
