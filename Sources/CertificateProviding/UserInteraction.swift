/// How a provider may ask a person for something. A service passes ``NoUserInteraction``.
public protocol UserInteraction: Sendable {
    /// Asks for a secret, such as a password or PIN.
    /// - Throws: `interactionRequired` when nobody can be asked, `userCancelled` when the person gives up.
    func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes

    /// Asks a yes-or-no question.
    /// - Throws: As ``requestSecret(_:)``.
    func confirm(_ question: String) async throws(CertificateProviderError) -> Bool

    /// Tells the person what is going on. Must return soon.
    func report(_ progress: String)

    /// Tells the person how long it takes until something goes on by itself: about once a second, the last time with
    /// zero. Must return soon.
    func report(_ progress: String, remaining: Duration)
}

extension UserInteraction {
    public func report(_ progress: String) {}
    public func report(_ progress: String, remaining: Duration) {}
}

/// The interaction of a process with nobody in front of it: every question is `interactionRequired`.
public struct NoUserInteraction: UserInteraction {
    public init() {}

    public func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        throw Self.nobodyToAsk(prompt)
    }

    public func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        throw Self.nobodyToAsk(question)
    }

    static func nobodyToAsk(_ question: String) -> CertificateProviderError {
        CertificateProviderError(
            .interactionRequired, "Nobody can be asked here (\"\(question)\"); configure a source for it instead.")
    }
}
