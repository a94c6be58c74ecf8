import CertificateProviding
import Glibc
import IdentityStore
import Logging
import Logon
import ProviderTransport
import Signing
import SigningRequests

extension CommandContext {
    /// Returns what answers signing requests, as the property file says.
    func requestHandler(
        _ configuration: LogonConfiguration, _ logger: Logger? = nil
    ) async throws(ProviderError) -> RequestHandler {
        let settings = configuration.settings
        let registry = try RequestRegistry(settings, secrets: secrets, path: configuration.path)
        guard !registry.clients.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "\(configuration.path.map { "\($0.withVisibleControls): " } ?? "")No application may ask for signatures; set Signing.client.<number>.name, "
                    + "key-source and operations.")
        }
        var timeStamps = try TimeStampServer.configured(by: settings, timeStampEnvironment())
        timeStamps?.proxy = .environment(secrets)
        let directory = try StateDirectory.requests()
        let prompt: any ApprovalPrompt
        // A PIN is asked for as approvals are, unless the option says otherwise.
        var interaction = interaction
        switch requestPrompt(settings) {
        case .queue: prompt = QueuePrompt(PendingRequests(directory: directory))
        case .terminal: prompt = ExclusivePrompt(TerminalPrompt(), directory: directory)
        case .pinentry:
            prompt = ExclusivePrompt(PinentryPrompt(pinentry), directory: directory)
            interaction = PinentryInteraction(pinentry)
        }
        interaction = ExclusiveInteraction(interaction, directory: directory)
        let manager = try await manager(configuration, unlocking: interaction)
        return RequestHandler(
            registry, ManagedSigner(manager, interaction), timeStamps: timeStamps, prompt: prompt,
            directory: directory, logger: logger ?? self.logger)
    }

    /// How the person is asked about signing requests.
    func requestPrompt(_ settings: Parameters) -> RequestSettings.Prompt {
        options.prompt ?? settings[RequestSettings.prompt]
    }
}

/// The identity of the Logon manager, for signing requests.
private final class ManagedSigner: RequestSigner {
    private let manager: LogonManager
    private let interaction: any UserInteraction
    /// The manager does one thing at a time.
    private let lock = AsyncLock()

    init(_ manager: LogonManager, _ interaction: any UserInteraction) {
        (self.manager, self.interaction) = (manager, interaction)
    }

    func certificate() async throws(ProviderError) -> X509Certificate {
        await lock.acquire()
        defer { lock.release() }
        do throws(ProviderError) {
            // A file that has changed is taken here, before the question names its certificate.
            return try await manager.identity(NoUserInteraction()).certificate
        } catch {
            guard error.code == .interactionRequired else { throw error }
            if let leaf = await manager.chosenWithoutQuestion()?.certificateChain.first { return leaf }
            // The choice depends on the person.
            return try await manager.identity(interaction).certificate
        }
    }

    func identity() async throws(ProviderError) -> Identity {
        await lock.acquire()
        defer { lock.release() }
        return try await manager.identity(interaction)
    }
}

extension LogonManager {
    /// The identity that would be obtained, as far as that needs no question. A token that wants its PIN first and has one identity
    /// has no other one to choose.
    func chosenWithoutQuestion() async -> ListedIdentity? {
        for provider in (try? await activeProviders()) ?? [] {
            guard let list = await provider.listing?.listIdentities() else { continue }
            if let chosen = try? list.choice?.get() { return chosen }
            if list.identities.count == 1 { return list.identities[0] }
        }
        return nil
    }
}

extension RequestReply {
    /// The error that stands beside the code; `nil` for a signature.
    var error: ProviderError? {
        code.map { code in
            ProviderError(
                code.errorCode, "\(code): \(reason ?? code.sentence)".endingWithPeriod,
                reason: .init(rawValue: code.rawValue))
        }
    }
}

extension String {
    fileprivate var endingWithPeriod: String { hasSuffix(".") ? self : self + "." }
}
