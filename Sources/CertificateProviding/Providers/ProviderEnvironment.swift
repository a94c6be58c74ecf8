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
    /// Makes another of the installed providers, for one whose keys live there: with its own part of the store and with
    /// these parameters.
    ///
    /// Throws `configurationInvalid` where it is not installed, and what its parameters meet.
    public var makeProvider: ProviderMaker

    public typealias ProviderMaker =
        @Sendable (ProviderID, ProviderParameters) throws(CertificateProviderError) -> any CertificateProvider

    public init(
        storage: any IdentityStorage, secrets: SecretReader = SecretReader(), logger: Logger,
        now: @escaping @Sendable () -> Date = { Date() }, executor: BlockingExecutor,
        makeProvider: @escaping ProviderMaker = Self.withoutOthers
    ) {
        self.storage = storage
        self.secrets = secrets
        self.logger = logger
        self.now = now
        self.executor = executor
        self.makeProvider = makeProvider
    }

    /// For an environment in which a provider is alone.
    public static let withoutOthers: ProviderMaker = { id, _ throws(CertificateProviderError) in
        throw CertificateProviderError(
            .configurationInvalid, "This needs the provider '\(id)', which is not installed beside this one.")
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
