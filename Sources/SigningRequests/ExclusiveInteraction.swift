package import CertificateProviding

/// An interaction that asks under the ``TerminalLock``, as ``ExclusivePrompt`` does.
package struct ExclusiveInteraction: UserInteraction {
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
        try await locked { () throws(ProviderError) in try await interaction.requestSecret(prompt) }
    }

    package func confirm(_ question: String) async throws(ProviderError) -> Bool {
        try await locked { () throws(ProviderError) in try await interaction.confirm(question) }
    }

    package func requestText(_ prompt: String) async throws(ProviderError) -> String {
        try await locked { () throws(ProviderError) in try await interaction.requestText(prompt) }
    }

    package func choose(
        _ question: String, among choices: [String]
    ) async throws(ProviderError) -> Int {
        try await locked { () throws(ProviderError) in
            try await interaction.choose(question, among: choices)
        }
    }

    package func report(_ progress: String) { interaction.report(progress) }
    package func report(_ progress: String, remaining: Duration) { interaction.report(progress, remaining: remaining) }

    private func locked<T>(
        _ ask: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        guard let lock = try await TerminalLock.acquire(in: directory, within: Self.timeout) else {
            throw ProviderError(
                .timedOut, "The question was not asked: another one is on the screen. Answer it, and try again.")
        }
        defer { withExtendedLifetime(lock) {} }
        return try await ask()
    }
}
