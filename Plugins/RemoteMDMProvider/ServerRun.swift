import CertificateProviding
import CertificateTLS
import Glibc
import Logging
import ProviderTransport
import Synchronization

/// The secrets, the identity to present and the connections of one run.
final class ServerRun: Sendable {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    let interaction: any UserInteraction
    let access: ServerAccess
    let trust: AuthorityTrust
    let secrets: SecretsInHand

    private struct State {
        var presented: (leaf: X509Certificate?, isOwn: Bool) = (nil, false)
        /// The refusal of the current certificate, after which the run enrols without it.
        var refusal: ProviderError?
        /// The identity of `client-certificate` for that; `nil` inside if there is none.
        var device: Identity??
    }
    private let state = Mutex(State())

    init(
        _ settings: EnrolmentSettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction,
        _ access: ServerAccess, _ trust: AuthorityTrust
    ) {
        (self.settings, self.environment, self.interaction) = (settings, environment, interaction)
        (self.access, self.trust) = (access, trust)
        secrets = SecretsInHand(environment, interaction)
    }

    /// The certificate that is presented to the server, and whether it is the one to be renewed.
    var presented: (leaf: X509Certificate?, isOwn: Bool) {
        get { state.withLock(\.presented) }
        set { state.withLock { $0.presented = newValue } }
    }

    /// Whether a password, a token or a challenge is configured.
    private var hasSecret: Bool {
        settings.username != nil || settings.bearerSource != nil || settings.oauth != nil
            || settings.challengeSource != nil
    }

    /// Whether an enrolment without the current certificate is possible after the server has refused it: the credentials are there.
    ///
    /// - Throws: `refusal` if the credentials for that are missing.
    func canEnrolAnew(after refusal: ProviderError) async throws(ProviderError) -> Bool {
        guard hasSecret || settings.clientCertificate != nil, refusal.reason == .rejectedCertificate else {
            return false
        }
        state.withLock { $0.refusal = refusal }
        do throws(ProviderError) {
            let device = try await clientIdentity(isOptional: hasSecret)
            state.withLock { $0.device = .some(device) }
        } catch {
            throw error.code == .userCancelled ? error : impossible(error, after: refusal)
        }
        // It is otherwise read only when the request is made.
        do throws(ProviderError) { _ = try await challenge(isRenewal: false) } catch {
            throw explained(error)
        }
        return true
    }

    private func impossible(
        _ reason: ProviderError, after refusal: ProviderError
    ) -> ProviderError {
        var refusal = refusal
        refusal.message += " An enrolment without it is not possible either: \(reason.message)"
        return refusal
    }

    /// Adds to an error what the run knows: which certificate was refused, why a password was withheld, and that the error ends
    /// an enrolment without the current certificate.
    func explained(_ error: ProviderError) -> ProviderError {
        let (presented, refusal) = state.withLock { ($0.presented, $0.refusal) }
        if let refusal, error.isMissingSecret { return impossible(error, after: refusal) }
        var error = presented.leaf.map { error.naming($0, isOwn: presented.isOwn) } ?? error
        if error.code == .rejected, refusal == nil, let withheld = secrets.withheld {
            error.message += " \(withheld.message)"
        }
        return error
    }

    /// Returns the identity of `client-certificate`, which authenticates an enrolment; `nil` if none is configured.
    func device() async throws(ProviderError) -> Identity? {
        if let known = state.withLock(\.device) { return known }
        return try await clientIdentity()
    }

    /// - Parameter isOptional: Whether a failure is only logged, and the result is then `nil`: the certificate may be gone
    ///   by now, and another credential is enough.
    private func clientIdentity(isOptional: Bool = false) async throws(ProviderError) -> Identity? {
        guard let certificate = settings.clientCertificate else { return nil }
        do throws(ProviderError) {
            return try await certificate.identity(environment, interaction)
        } catch {
            guard isOptional, error.code != .userCancelled else { throw error }
            environment.logger.warning(
                "enrolling without 'client-certificate'", metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// Returns a session with the server. Opens no connection yet.
    func session(
        presenting known: Identity?, _ trust: ServerTrust, _ credentials: ServerCredentials
    ) throws(ProviderError) -> ServerSession {
        let security = ServerSecurity(
            trust: trust,
            credentials: try (settings.server.isSecure ? known : nil).map {
                identity throws(ProviderError) in
                try TLSCredentials(identity)
            }, now: environment.now, executor: environment.executor)
        let session = access.session(security, credentials)
        secrets.session = session
        return session
    }

    func challenge(isRenewal: Bool) async throws(ProviderError) -> SecretBytes? {
        guard let source = settings.challengeSource else { return nil }
        return try await secrets.secret(
            from: source, "Challenge for \(settings.server.authority)", isRenewal: isRenewal)
    }

    func credentials(
        _ trust: ServerTrust, isRenewal: Bool
    ) async throws(ProviderError) -> ServerCredentials {
        let authority = settings.server.authority
        if let oauth = settings.oauth {
            let tokens = try await oauth.tokens(
                trustLike: trust, through: access.proxies, within: settings.timeout, secrets, environment,
                isRenewal: isRenewal)
            return tokens.map { .tokens($0) } ?? .none
        }
        if let source = settings.bearerSource {
            let prompt = "Token for \(authority)"
            guard let token = try await secrets.secret(from: source, prompt, isRenewal: isRenewal) else { return .none }
            return try .bearer(token, from: EnrolmentParameter.bearerSource.name)
        }
        guard let user = settings.username,
            let password = try await secrets.password(
                of: user, at: authority, from: settings.passwordSource, isRenewal: isRenewal)
        else { return .none }
        return .password(user: user, password)
    }

    /// Notes the passwords that the server has rejected or accepted in this run, so that a rejected one is not sent again by itself.
    func noteOutcome(_ error: ProviderError?) async {
        // A request that is pending was accepted from this client.
        let rejection = error?.code == .pending ? nil : error
        var accounts = rejection.map(secrets.accounts(rejectedBy:)) ?? secrets.accounts
        // The current certificate may have authenticated a renewal, without the password.
        if rejection == nil, settings.oauth == nil, await secrets.session?.hasSentPassword != true {
            accounts = []
        }
        for (account, secret) in accounts {
            await environment.noteOutcome(of: secret, for: account.name, isRejected: rejection != nil)
        }
        await settings.proxy.noteOutcome(rejection, through: access.proxies, environment)
    }
}

extension ProviderError {
    /// Whether a secret does not exist, needs a user to enter it, or was rejected before. An unsafe secret is not missing.
    var isMissingSecret: Bool {
        [.fileNotFound, .interactionRequired].contains(code)
            // Other codes have other numbers: a failInfo of SCEP may be 2 as well.
            || code == .configurationInvalid && nativeCode == Int(ENOENT) || reason == .rejectedBefore
    }

    /// Adds to a refusal in the TLS handshake which certificate the server has refused.
    ///
    /// - Parameter isOwn: Whether the server itself has issued the certificate.
    fileprivate func naming(_ shown: X509Certificate, isOwn: Bool) -> Self {
        guard code == .rejected, let number = nativeCode.flatMap(UInt8.init(exactly:)),
            TLSAlert(rawValue: number).refusesCertificate
        else { return self }
        var copy = self
        copy.message +=
            isOwn
            ? " The refused certificate is the one to be renewed, '\(shown.subject)'. If the server has changed its "
                + "CA, delete the identity and enrol again."
            : " The refused certificate is that of 'client-certificate', '\(shown.subject)'. Check that the server "
                + "trusts its CA, and that the file contains the intermediate certificates."
        return copy
    }
}
