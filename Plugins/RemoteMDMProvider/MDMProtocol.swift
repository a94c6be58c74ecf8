import CertificateProviding
import CertificateTLS
import Enrolment
import ProviderTransport

/// EST or SCEP, with the parameters.
protocol MDMProtocol: EnrolmentProtocol {
    var settings: EnrolmentSettings { get }
    var environment: ProviderEnvironment { get }
    /// The rules for the trust in the server's CA.
    static var authorityRules: AuthorityTrust.Rules { get }
}

extension MDMProtocol {
    var serverName: String { settings.server.authority }
    var source: String { settings.server.origin + settings.server.path }

    func annotate(_ list: IdentityList) async -> IdentityList {
        var list = list
        do throws(ProviderError) {
            if list.identities.isEmpty, list.failures.isEmpty, let remark = try await remarkOnUser() {
                list.remarks.append(remark)
                list.choice = .failure(ProviderError(.interactionRequired, remark))
            }
        } catch {
            list.failures.append(error)
        }
        if list.choice == nil, let error = await settings.rejectedBefore(environment) { list.choice = .failure(error) }
        return list
    }

    /// Returns a remark if the first enrolment asks a person.
    private func remarkOnUser() async throws(ProviderError) -> String? {
        let isToBeConfirmed = try await environment.executor.run { () throws(ProviderError) in
            guard !settings.configuredTrust.hasAnchors else { return false }
            return try AuthorityTrust(settings, environment, NoUserInteraction(), Self.authorityRules).isToBeConfirmed
        }
        if isToBeConfirmed {
            return "No trust anchor is configured for \(serverName): the first enrolment needs a "
                + "user at a terminal to confirm its CA. Set 'ca-fingerprint' or 'trust-anchors'."
        }
        return settings.promptedSource.map {
            "The first enrolment with \(serverName) needs a user at a terminal to enter the secret of '\($0)'. "
                + "Set it to a file or a credential to enrol without one."
        }
    }

    func forget() throws(ProviderError) { try AuthorityTrust.forget(settings, in: environment.storage) }
    func shutdown() async { await settings.clientCertificate?.shutdown() }

    /// Returns what both protocols need for one run.
    func run(_ interaction: any UserInteraction) async throws(ProviderError) -> ServerRun {
        let proxies = try await settings.proxy.choice(environment, interaction)
        let access = try ServerAccess(settings, environment.transport, through: proxies)
        let trust = try await environment.executor.run { () throws(ProviderError) in
            try AuthorityTrust(settings, environment, interaction, Self.authorityRules)
        }
        return ServerRun(settings, environment, interaction, access, trust)
    }
}

/// One run with a server over EST or SCEP.
protocol MDMSession: EnrolmentSession {
    var run: ServerRun { get }

    /// - Parameters:
    ///   - known: The identity to present to the server.
    ///   - isRenewal: Whether `known` is the identity to be renewed.
    func connect(
        presenting known: Identity?, isRenewal: Bool
    ) async throws(ProviderError) -> EnrolmentTerms

    func send(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer
}

extension MDMSession {
    func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms {
        let known = if let current { current } else { try await run.device() }
        run.presented = (known?.certificate, current != nil)
        do throws(ProviderError) {
            return try await connect(presenting: known, isRenewal: current != nil)
        } catch {
            throw run.explained(error)
        }
    }

    func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        do throws(ProviderError) { return try await send(request) } catch { throw run.explained(error) }
    }

    func canEnrolAnew(after error: ProviderError) async throws(ProviderError) -> Bool {
        try await run.canEnrolAnew(after: error)
    }

    func noteOutcome(_ error: ProviderError?) async { await run.noteOutcome(error) }
}
