/// Asks the user for a provider. A service passes ``NoUserInteraction``.
public protocol UserInteraction: Sendable {
    /// Whether the user can be asked. If not, every question throws `interactionRequired`.
    var canAsk: Bool { get }

    /// Asks for a secret, such as a password or PIN.
    /// - Throws: `interactionRequired` if no user can be asked, `userCancelled` if the user gives up.
    func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes

    /// Asks a yes-or-no question.
    /// - Throws: As ``requestSecret(_:)``.
    func confirm(_ question: String) async throws(ProviderError) -> Bool

    /// Asks for a text that may be shown, such as a user name.
    /// - Throws: As ``requestSecret(_:)``.
    func requestText(_ prompt: String) async throws(ProviderError) -> String

    /// Asks for one of several choices.
    /// - Returns: The number of the choice, counted from 0.
    /// - Throws: As ``requestSecret(_:)``.
    func choose(_ question: String, among choices: [String]) async throws(ProviderError) -> Int

    /// Shows the user what the provider is doing. Must return soon.
    func report(_ progress: String)

    /// Shows the user how long a wait takes: called about once a second, the last time with zero. Must return soon.
    func report(_ progress: String, remaining: Duration)
}

extension UserInteraction {
    /// True: the default.
    public var canAsk: Bool { true }
    /// Throws `interactionRequired`: the default for a program that can ask only for secrets and for consent.
    public func requestText(_ prompt: String) async throws(ProviderError) -> String {
        throw NoUserInteraction.nobodyToAsk(prompt)
    }

    /// Throws `interactionRequired`, as ``requestText(_:)``.
    public func choose(
        _ question: String, among choices: [String]
    ) async throws(ProviderError) -> Int { throw NoUserInteraction.nobodyToAsk(question) }

    /// Does nothing.
    public func report(_ progress: String) {}
    /// Does nothing.
    public func report(_ progress: String, remaining: Duration) {}
}

/// The interaction of a process without a user: every question throws `interactionRequired`.
public struct NoUserInteraction: UserInteraction {
    /// Creates the interaction.
    public init() {}

    /// Always false.
    public var canAsk: Bool { false }

    /// Throws `interactionRequired`.
    public func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        throw Self.nobodyToAsk(prompt)
    }

    /// Throws `interactionRequired`.
    public func confirm(_ question: String) async throws(ProviderError) -> Bool {
        throw Self.nobodyToAsk(question)
    }

    static func nobodyToAsk(_ question: String) -> ProviderError {
        ProviderError(
            .interactionRequired,
            "The question \"\(question)\" cannot be asked: there is no user here. Configure a source for it instead.")
    }
}
