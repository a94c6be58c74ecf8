import CertificateProviding
import SigningRequests
import Terminal

/// Asks the user by a pinentry. Progress is shown as at the terminal.
struct PinentryInteraction: UserInteraction {
    private let pinentry: Pinentry
    private let terminal = TerminalInteraction()

    init(_ pinentry: Pinentry) { self.pinentry = pinentry }

    /// - Throws: `interactionRequired` where the program is missing or cannot ask, `userCancelled` without an answer.
    func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        try await pinentry.secret(Self.text(prompt), label: "Secret:")
    }

    /// - Throws: As ``requestSecret(_:)``.
    func confirm(_ question: String) async throws(ProviderError) -> Bool {
        switch try await pinentry.confirm(Self.text(question), .init(approve: "Yes", decline: "No", typed: "yes")) {
        case .approved: true
        case .declined: false
        case .timedOut: throw ProviderError(.userCancelled, "The question was not answered in time.")
        }
    }

    /// - Throws: `interactionRequired`: a pinentry hides the typed text.
    func requestText(_ prompt: String) async throws(ProviderError) -> String {
        throw Self.notAskable(prompt)
    }

    /// - Throws: `interactionRequired`, as ``requestText(_:)``.
    func choose(_ question: String, among choices: [String]) async throws(ProviderError) -> Int {
        throw Self.notAskable(question)
    }

    func report(_ progress: String) { terminal.report(progress) }
    func report(_ progress: String, remaining: Duration) { terminal.report(progress, remaining: remaining) }

    /// The first line has nothing from outside: some programs look for tags of rich text there.
    private static func text(_ question: String) -> String { "certprov asks:\n\(question.withVisibleControls)" }

    private static func notAskable(_ question: String) -> ProviderError {
        ProviderError(
            .interactionRequired,
            "A pinentry can ask for secrets and for consent, and not for \"\(question.withVisibleControls)\"; set the value in the configuration, or use --prompt terminal."
        )
    }
}
