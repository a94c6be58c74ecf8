import CertificateProviding
import Logging
import OAuth
import ProviderTransport
import Synchronization

/// The secrets of one run, cached by their prompts: the user is asked for each once.
final class SecretsInHand: Sendable {
    /// An account that a server may lock after a few wrong secrets.
    struct Account {
        enum Kind { case password, clientSecret }

        let kind: Kind
        let user: String
        let authority: String
        var name: String { "\(kind) \(user)@\(authority)" }
    }

    private struct State {
        var secrets: [String: (secret: SecretBytes, account: Account?)] = [:]
        var withheld: ProviderError?
        var proxies: ProxyChoice?
        var session: ServerSession?
    }
    private let state = Mutex(State())
    private let environment: ProviderEnvironment
    private let interaction: any UserInteraction

    init(_ environment: ProviderEnvironment, _ interaction: any UserInteraction) {
        (self.environment, self.interaction) = (environment, interaction)
    }

    /// Why a renewal goes without a password that is configured.
    var withheld: ProviderError? {
        get { state.withLock(\.withheld) }
        set { state.withLock { $0.withheld = newValue } }
    }
    /// The proxies of the run, with the password for them.
    var proxies: ProxyChoice? {
        get { state.withLock(\.proxies) }
        set { state.withLock { $0.proxies = newValue } }
    }

    /// The session with the server, which a password for it is sent over.
    var session: ServerSession? {
        get { state.withLock(\.session) }
        set { state.withLock { $0.session = newValue } }
    }

    /// Returns the password of a user. As ``secret(from:_:isRenewal:_:)``.
    func password(
        of user: String, at authority: String, from source: SecretSource?, isRenewal: Bool
    ) async throws(ProviderError) -> SecretBytes? {
        try await secret(
            from: source ?? .prompt, "Password of \(user) at \(authority)", isRenewal: isRenewal,
            Account(kind: .password, user: user, authority: authority))
    }

    /// Returns a secret for the server: password, token or challenge.
    ///
    /// - Parameter account: What a server locks after a few wrong secrets; `nil` for a token or a challenge.
    /// - Returns: `nil` for a renewal whose secret is missing, or was rejected before: the current certificate authenticates
    ///   it, and the secret for the first enrolment may be gone. Another one is sent, since some servers want both.
    func secret(
        from source: SecretSource, _ prompt: String, isRenewal: Bool, _ account: Account? = nil
    ) async throws(ProviderError) -> SecretBytes? {
        if let known = state.withLock({ $0.secrets[prompt] }) { return known.secret }
        do throws(ProviderError) {
            let secret = try await environment.secret(from: source, prompt: prompt, interaction: interaction)
            if let account, source != .prompt, try await environment.isRejected(secret, for: account.name) {
                throw account.rejectedBefore
            }
            state.withLock { $0.secrets[prompt] = (secret, account) }
            return secret
        } catch {
            guard isRenewal, error.isMissingSecret else { throw error }
            if error.reason == .rejectedBefore { withheld = error }
            // A prompt has no answer in a renewal without a person, which is usual.
            environment.logger.log(
                level: source == .prompt ? .debug : .warning, "renewing with the current certificate only",
                metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// The accounts whose secrets the run has.
    var accounts: [(Account, SecretBytes)] {
        state.withLock { $0.secrets.values.compactMap { entry in entry.account.map { ($0, entry.secret) } } }
    }
}

extension SecretsInHand.Account {
    /// The error for a secret that is not sent, since the server has rejected it before.
    var rejectedBefore: ProviderError {
        let (what, setting) =
            switch kind {
            case .password: ("password of", EnrolmentParameter.passwordSource.name)
            case .clientSecret: ("secret of the OAuth client", EnrolmentParameter.clientSecretSource.name)
            }
        return ProviderError(
            .rejected,
            "\(authority) has rejected this \(what) '\(DisplayText.visible(user))' before, so it is not sent again; correct "
                + "'\(setting)', or set it to prompt and enter it once.",
            reason: .rejectedBefore)
    }
}

extension ProviderError.Reason {
    /// A secret is not sent, since the server has rejected it before.
    static let rejectedBefore = Self(rawValue: "rejectedBefore")
}

extension SecretsInHand {
    /// The accounts whose secrets the server has got and rejected.
    func accounts(rejectedBy error: ProviderError) -> [(Account, SecretBytes)] {
        let kind: Account.Kind
        // A token endpoint that says 401 means the client (RFC 6749, section 5.2), whatever it calls the error.
        let first = accounts.contains { $0.0.kind == .clientSecret } ? Account.Kind.clientSecret : .password
        switch error.reason {
        case .rejectedPassword?: kind = first
        case .rejectedClient?: kind = .clientSecret
        case .rejectedGrant?: kind = .password
        default: return []
        }
        return accounts.filter { $0.0.kind == kind }
    }
}
