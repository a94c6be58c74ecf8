public import FoundationEssentials
public import Logging

/// What a provider is given when it is made: everything it may use of the world outside its own source.
public struct ProviderEnvironment: Sendable {
    /// The provider's own part of this host's identity store.
    public var storage: any IdentityStorage
    /// Reads the secrets that parameters name.
    public var secrets: SecretReader
    public var logger: Logger
    /// The wall clock, so that tests can turn it.
    public var now: @Sendable () -> Date
    /// Where calls that block run.
    public var executor: BlockingExecutor

    public init(
        storage: any IdentityStorage, secrets: SecretReader = SecretReader(), logger: Logger,
        now: @escaping @Sendable () -> Date = { Date() }, executor: BlockingExecutor
    ) {
        self.storage = storage
        self.secrets = secrets
        self.logger = logger
        self.now = now
        self.executor = executor
    }
}

extension ProviderEnvironment {
    /// Reads the secret that a parameter names, on ``executor``, or asks the person where the source is
    /// ``SecretSource/prompt``.
    ///
    /// - Throws: As ``SecretReader/read(_:)`` and ``UserInteraction/requestSecret(_:)``.
    public func secret(
        from source: SecretSource, prompt: String, interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> SecretBytes {
        if source == .prompt { return try await interaction.requestSecret(prompt) }
        let secrets = secrets
        return try await executor.run { () throws(CertificateProviderError) in try secrets.read(source) }
    }
}
