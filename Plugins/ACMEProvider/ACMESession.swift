import CertificateProviding
import Enrolment
import Logging
import Synchronization

/// One run of an enrolment over ACME.
final class ACMESession: EnrolmentSession {
    private let client: ACMEClient
    private let interaction: any UserInteraction
    private let responder: ChallengeResponder
    private struct State {
        var account: ACMEAccount?
        /// Trust anchors of the configuration, which may have issued what the server issues.
        var anchors: [X509Certificate] = []
        /// How often the engine was told to ask again.
        var polls = 0
    }
    private let state = Mutex(State())
    private var environment: ProviderEnvironment { client.environment }
    private var accounts: ACMEAccounts { ACMEAccounts(client: client, interaction: interaction) }

    init(_ client: ACMEClient, _ interaction: any UserInteraction) {
        (self.client, self.interaction) = (client, interaction)
        responder = ChallengeResponder(client.settings, client.environment)
    }

    func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms {
        // A run that was killed may have left some. The end of this one tries again, and warns.
        await responder.cleanUp(warns: false)
        let (anchors, attestsKeys) = try await environment.executor.run { [client] () throws(ProviderError) in
            (try client.settings.anchors(), client.settings.plan.keyStore.properties.attestsKeys)
        }
        if client.settings.challenge == .deviceAttest, !attestsKeys {
            // A store with a mistake in its settings says no more of itself than that.
            do throws(ProviderError) { try await client.settings.plan.keyStore.check(NoUserInteraction()) } catch {
                if error.code == .configurationInvalid { throw error }
            }
            throw client.settings.keyCannotAttest
        }
        let account = try await accounts.account()
        state.withLock { ($0.account, $0.anchors) = (account, anchors) }
        return EnrolmentTerms(intermediates: anchors)
    }

    /// The names are those of the order, whatever the certificate to be renewed has. No usage is requested: the server decides by its
    /// profile, and some servers refuse a request with further extensions (RFC 8555, section 7.4).
    func certificateRequest(
        _ names: CertificateRequest.Names, _ usage: IdentityUsage, _ key: any IdentityKey
    ) async throws(ProviderError) -> CertificateRequest {
        try await CertificateRequest(client.settings.plan.names, key: key)
    }

    func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        guard let account = state.withLock(\.account) else {
            throw ProviderError(.internal, "A request was made before the connection.")
        }
        let orders = ACMEOrders(client: client, account: account, request: request)
        var found = try await orders.current(isFirst: state.withLock { $0.polls == 0 })
        while true {
            do throws(ProviderError) { return try await proceed(with: found, orders) } catch {
                guard error.reason == .endedOrder else { throw error }
                try await request.remember([])
                // An order that has ended since the last run says nothing about this one.
                guard found.isOfLastRun else { throw error }
                environment.logger.warning("the order of the last run has ended; a new one is made")
                found = try await orders.make()
            }
        }
    }

    private func proceed(
        with found: ACMEOrders.Found, _ orders: ACMEOrders, isFinalised: Bool = false
    ) async throws(ProviderError) -> EnrolmentAnswer {
        let authorizations = ACMEAuthorizations(
            client: client, account: orders.account, responder: responder, key: orders.request.key,
            interaction: interaction)
        switch ACMEOrder.next(found.order, isFinalised: isFinalised) {
        case .prove:
            let told = try await authorizations.prove(found.order)
            return pending([found.retryAfter, told].compactMap(\.self).max())
        case .finalise:
            await responder.cleanUp(warns: false)
            return try await proceed(with: try await orders.finalise(found), orders, isFinalised: true)
        case .wait:
            if !isFinalised { await responder.cleanUp(warns: false) }
            return pending(found.retryAfter)
        case .download:
            let key = orders.request.key.publicKey
            let chain: [X509Certificate]
            do throws(ProviderError) {
                chain = try await ACMECertificates(client: client).chain(of: found.order, for: key, orders.account)
            } catch { throw try await orders.noteFailedDownload(error, of: found.url) }
            // The leaf comes first (section 7.4.2), but for servers that do not know it.
            let issuers = chain.filter { $0.publicKey != key }
            return .issued(chain, authorities: issuers.isEmpty ? state.withLock(\.anchors) : issuers)
        case .fail:
            throw await authorizations.failure(of: found.order) ?? orders.failure(found.order)
        }
    }

    /// The delay that the server has named. Without one: short at first, since most servers decide at once, then longer.
    private func pending(_ told: Duration?) -> EnrolmentAnswer {
        let polls = state.withLock { state in
            defer { state.polls += 1 }
            return state.polls
        }
        if let told { return .pending(retryAfter: max(told, .seconds(1))) }
        return .pending(retryAfter: .milliseconds(min(100 << min(polls, 7), 10_000)))
    }

    func isFinalRefusal(_ error: ProviderError) -> Bool {
        error.isRefusalByHTTPStatus || error.reason == .refusedStatement
    }

    /// Removes the challenges: a listener is not left open, whatever the end.
    func noteOutcome(_ error: ProviderError?) async {
        await responder.cleanUp()
        await client.noteOutcome(error)
    }

    func revoke(_ identity: Identity, _ reason: RevocationReason) async throws(ProviderError) {
        try await ACMECertificates(client: client).revoke(identity, reason, by: try await accounts.existing())
    }

    func closeAccount() async throws(ProviderError) { try await accounts.close() }
}
