import CertificateProviding
import Enrolment
import FoundationEssentials
import Logging
import NIOHTTP1
import ProviderTransport
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
        /// Whether this run has looked at an order before.
        var hasLooked = false
        var polls = 0
    }
    private let state = Mutex(State())
    private var settings: ACMESettings { client.settings }
    private var environment: ProviderEnvironment { client.environment }

    init(_ client: ACMEClient, _ interaction: any UserInteraction) {
        (self.client, self.interaction) = (client, interaction)
        responder = ChallengeResponder(client.settings, client.environment)
    }

    /// The state of an enrolment that outlasts a kill. JSON.
    private struct Progress: Codable {
        /// `nil` from before the request for an order until its URL is known.
        var order: String?
        /// How many runs have found no certificate at its URL; `nil` for none.
        var failedDownloads: Int?

        init(order: String?, failedDownloads: Int? = nil) {
            (self.order, self.failedDownloads) = (order, failedDownloads)
        }

        init?(_ bytes: [UInt8]) {
            guard let known = try? JSONDecoder().decode(Self.self, from: Data(bytes)) else { return nil }
            self = known
        }

        func encoded() throws(ProviderError) -> [UInt8] { try JSONText.encode(self) }
    }

    func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms {
        // A run that was killed may have left some. The end of this one tries again, and warns.
        await responder.cleanUp(warns: false)
        let anchors = try await environment.executor.run { [settings] () throws(ProviderError) in
            try settings.anchors()
        }
        let account = try await ACMEAccounts(client: client, interaction: interaction).account()
        state.withLock { ($0.account, $0.anchors) = (account, anchors) }
        return EnrolmentTerms(intermediates: anchors)
    }

    /// The names are those of the order, whatever the certificate to be renewed has. No usage is requested: the server decides by its
    /// profile, and some servers refuse a request with further extensions (RFC 8555, section 7.4).
    func certificateRequest(
        _ names: CertificateRequest.Names, _ usage: IdentityUsage, _ key: any IdentityKey
    ) async throws(ProviderError) -> CertificateRequest {
        try await CertificateRequest(settings.plan.names, key: key)
    }

    func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        let account = try account()
        let found = try await order(for: request, account)
        do throws(ProviderError) { return try await goOn(with: found, request, account) } catch {
            // An order that has ended since the last run says nothing about this one.
            guard error.reason == .endedOrder, found.isOfLastRun else { throw error }
            environment.logger.warning("the order of the last run has ended; a new one is made")
            return try await goOn(with: try await newOrder(for: request, account), request, account)
        }
    }

    private func goOn(
        with found: FoundOrder, _ request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> EnrolmentAnswer {
        let order = found.order
        switch order.status {
        case "pending":
            let told = try await authorise(order, for: request, account)
            return .pending(retryAfter: pause([found.retryAfter, told].compactMap(\.self).max()))
        case "ready":
            await responder.cleanUp(warns: false)
            return try await finalise(found, with: request, account)
        case "processing":
            await responder.cleanUp(warns: false)
            return .pending(retryAfter: pause(found.retryAfter))
        case "valid": return try await issued(order, at: found.url, for: request, account)
        default:
            try await request.remember([])
            throw await reason(for: order, account)
        }
    }

    private func account() throws(ProviderError) -> ACMEAccount {
        if let account = state.withLock(\.account) { return account }
        throw ProviderError(.internal, "A request was made before the connection.")
    }

    /// The delay that the server has named. Without one: short at first, since most servers decide at once, then longer.
    private func pause(_ told: Duration?) -> Duration {
        let polls = state.withLock { state in
            defer { state.polls += 1 }
            return state.polls
        }
        if let told { return max(told, .seconds(1)) }
        return .milliseconds(min(100 << min(polls, 7), 10_000))
    }

    // MARK: - Orders

    private struct NewOrder: Encodable {
        struct Identifier: Encodable {
            let type: String
            let value: String
        }
        let identifiers: [Identifier]
        let profile: String?
        var replaces: String?
    }

    private struct FoundOrder {
        let url: String
        let order: ACMEOrder
        let retryAfter: Duration?
        /// Whether this run has not looked at it before, nor made it.
        var isOfLastRun = false
    }

    /// Returns the order of this enrolment: the one that was written down, or a new one.
    private func order(
        for request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> FoundOrder {
        guard let progress = Progress(request.state) else { return try await newOrder(for: request, account) }
        let isFirst = state.withLock { state in
            defer { state.hasLooked = true }
            return !state.hasLooked
        }
        // Without a URL, the last run has ended before it knew the answer.
        let known = if let url = progress.order { url } else { try await openOrder(of: account) }
        guard let url = known else { return try await newOrder(for: request, account) }
        let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
        if [404, 410].contains(response.status), isFirst {
            environment.logger.warning("the order of the last run has been lost by the server; a new one is made")
            return try await newOrder(for: request, account)
        }
        guard response.status == 200 else { throw client.refusal(response, of: "the request for the order") }
        let order = try order(response)
        if progress.order == nil { try await request.remember(try Progress(order: url).encoded()) }
        return FoundOrder(url: url, order: order, retryAfter: retryAfter(response), isOfLastRun: isFirst)
    }

    private func newOrder(
        for request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> FoundOrder {
        let directory = try await client.directory()
        if let profile = settings.profile, directory.meta?.profiles?[profile] == nil {
            let known = (directory.meta?.profiles ?? [:]).keys.sorted().prefix(16).map(\.shown).joined(separator: ", ")
            throw ProviderError(
                .configurationInvalid,
                """
                \(client.serverName) has no profile '\(profile.shown)'; \
                \(known.isEmpty ? "it names none: leave out 'profile'" : "set 'profile' to one of: \(known)").
                """)
        }
        var new = NewOrder(
            identifiers: settings.identifiers.map { .init(type: $0.type, value: $0.value) }, profile: settings.profile)
        if directory.renewalInfo != nil, let current = request.current {
            new.replaces = ACMEClient.renewalID(of: current.certificate)
        }
        try await request.remember(try Progress(order: nil).encoded())
        var response = try await client.post(try JSONText.encode(new), to: directory.newOrder, by: account.signer)
        if new.replaces != nil, isRefused(response) {
            // The field is a hint, not a condition (RFC 9773, section 5). The server does not know that certificate, cannot look it up now, or
            // another order or account has it.
            environment.logger.info(
                "the server refuses an order that names the certificate to be replaced; ordering without",
                metadata: ["reason": "\((response.problem?.text ?? "status \(response.status)").shown)"])
            new.replaces = nil
            response = try await client.post(try JSONText.encode(new), to: directory.newOrder, by: account.signer)
        }
        guard response.status == 201 || response.status == 200 else {
            if (400...499).contains(response.status) { try await request.remember([]) }
            throw client.refusal(
                response, of: "the request for an order",
                advice: response.problem?.kind == "malformed" ? "check 'identifiers'" : nil)
        }
        guard let url = response.headers.first(name: "Location"), !url.isEmpty else {
            throw ProviderError(
                .protocolError,
                "\(client.serverName) does not name the URL of the order; look for the reason in the server's log.")
        }
        try await request.remember(try Progress(order: url).encoded())
        state.withLock { $0.hasLooked = true }
        return FoundOrder(url: url, order: try order(response), retryAfter: retryAfter(response))
    }

    /// Whether the server has looked at an order and refused it, and does not only want it at another time or with another nonce.
    private func isRefused(_ response: HTTPResponse) -> Bool {
        !(200...299).contains(response.status) && response.status != 429 && retryAfter(response) == nil
            && !["badNonce", "rateLimited"].contains(response.problem?.kind)
    }

    private func order(_ response: HTTPResponse) throws(ProviderError) -> ACMEOrder {
        try response.json(ACMEOrder.self, from: settings.directory)
    }

    private func retryAfter(_ response: HTTPResponse) -> Duration? { response.retryAfter(now: environment.now()) }

    /// Looks for an order that a killed run has made, in the account's list (section 7.1.2.1). `nil` also from a server without one.
    private func openOrder(of account: ACMEAccount) async throws(ProviderError) -> String? {
        let wanted = Set(settings.identifiers.map { ACMEOrder.Identifier(type: $0.type, value: $0.value) })
        var urls: [String] = []
        var page = account.orders
        for _ in 0..<Self.maximumPages {
            guard let url = page else { break }
            let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
            guard response.status == 200, let list = try? response.json(ACMEOrders.self, from: settings.directory)
            else { break }
            urls += list.orders
            page = Self.links("next", in: response, from: url).first
        }
        // Servers list the oldest first, or the newest.
        for url in urls.suffix(Self.maximumOrders).reversed() + urls.prefix(Self.maximumOrders) {
            let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
            guard response.status == 200, let order = try? order(response) else { continue }
            guard ["pending", "ready"].contains(order.status), Set(order.identifiers ?? []) == wanted else { continue }
            return url
        }
        return nil
    }

    private static let maximumPages = 50
    private static let maximumOrders = 8

    /// Why an order has ended. An authorisation says more than the order, for which many servers give no reason at all.
    private func reason(for order: ACMEOrder, _ account: ACMEAccount) async -> ProviderError {
        for url in order.authorizations.prefix(Self.maximumAuthorizations) {
            guard let response = try? await client.post(to: url, by: account.signer, isRepeatable: true),
                let authorization = try? response.json(ACMEAuthorization.self, from: settings.directory)
            else { break }
            if authorization.challenges.contains(where: { $0.error != nil }) { return failed(authorization) }
        }
        return failed(order)
    }

    private func failed(_ order: ACMEOrder) -> ProviderError {
        let reason = order.error.map { ": \(DisplayText.visible(String($0.text.prefix(1000))))" } ?? ""
        return ProviderError(
            .rejected,
            """
            \(client.serverName) has ended the order for \(settings.plan.names.displayText) with the status \
            '\(order.status.shown)'\(reason); \(order.error?.advice ?? "look for the reason in the server's log"). The \
            next attempt makes a new order.
            """, reason: .endedOrder)
    }

    // MARK: - Authorisations

    /// One for each name are expected.
    private static let maximumAuthorizations = 256

    /// Answers the challenges of all authorisations that are pending.
    ///
    /// - Returns: The delay that the server asks for.
    private func authorise(
        _ order: ACMEOrder, for request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> Duration? {
        guard order.authorizations.count <= Self.maximumAuthorizations else {
            throw ProviderError(
                .protocolError,
                """
                \(client.serverName) wants \(order.authorizations.count) proofs for \(settings.plan.names.displayText), more than the \
                \(Self.maximumAuthorizations) that certprov gives; look for the reason in the server's log.
                """)
        }
        let thumbprint = try account.signer.webKey.thumbprint()
        var answers: [ChallengeAnswer] = []
        var delays: [Duration] = []
        for url in order.authorizations {
            let (authorization, told) = try await client.read(
                ACMEAuthorization.self, from: url, by: account.signer, "the request for an authorisation")
            switch authorization.status {
            case "valid": continue
            case "pending": break
            default:
                // The order has ended with it.
                try await request.remember([])
                throw failed(authorization)
            }
            if let told { delays.append(told) }
            // Its name goes to the program of 'dns-hook', and this host proves no other ones.
            guard let name = settings.identifiers.first(where: { $0.isProven(by: authorization) }) else {
                throw ProviderError(
                    .protocolError,
                    """
                    \(client.serverName) wants a proof for \(authorization.name), which is not among 'identifiers'; it is not given. \
                    Look for the reason in the server's log.
                    """)
            }
            let challenge = try self.challenge(of: authorization)
            answers.append(try ChallengeAnswer(challenge, for: name, thumbprint: thumbprint))
        }
        guard !answers.isEmpty else { return nil }
        if !answers.allSatisfy(responder.isInPlace) {
            let names = answers.map { $0.identifier.value.shown }.joined(separator: ", ")
            interaction.report("Proving \(names) by \(settings.challenge.rawValue)")
        }
        try await responder.begin(answers)
        for answer in answers where responder.needsSubmission(answer) {
            let response = try await client.post(Array("{}".utf8), to: answer.url, by: account.signer)
            guard (200...299).contains(response.status) else {
                // It may have been submitted by a run that was killed.
                if response.status == 400, response.problem?.kind == "malformed" { continue }
                throw client.refusal(response, of: "the answer to a challenge")
            }
            responder.noteSubmission(of: answer)
            if let told = retryAfter(response) { delays.append(told) }
        }
        return delays.max()
    }

    private func challenge(
        of authorization: ACMEAuthorization
    ) throws(ProviderError) -> ACMEAuthorization.Challenge {
        let offered = authorization.challenges.prefix(16).map(\.type.shown).joined(separator: ", ")
        guard settings.challenge != .none else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) wants a proof for \(authorization.name), and 'challenge' is none; set it to one of: \(offered)."
            )
        }
        guard let challenge = authorization.challenges.first(where: { $0.type == settings.challenge.rawValue }) else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) offers no challenge \(settings.challenge.rawValue) for \(authorization.name); set 'challenge' to one "
                    + "of: \(offered).")
        }
        return challenge
    }

    private func failed(_ authorization: ACMEAuthorization) -> ProviderError {
        let problem = authorization.challenges.lazy.compactMap(\.error).first
        let reason = problem.map { ": \(DisplayText.visible(String($0.text.prefix(1000))))" } ?? ""
        return ProviderError(
            .rejected,
            """
            \(client.serverName) has not accepted the proof for \(authorization.name), and its authorisation is \
            '\(authorization.status.shown)'\(reason); \(problem?.adviceForProof ?? settings.adviceForProof). The next attempt makes a \
            new order.
            """, reason: .endedOrder)
    }

    // MARK: - Certificates

    private func finalise(
        _ found: FoundOrder, with request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> EnrolmentAnswer {
        let response = try await client.post(
            try JSONText.encode(["csr": Base64URL.encode(request.csr.derRepresentation)]), to: found.order.finalize,
            by: account.signer)
        guard (200...299).contains(response.status) else {
            // It was asked too early, or it has the request already: the next look at the order tells.
            if response.problem?.kind == "orderNotReady" { return .pending(retryAfter: pause(retryAfter(response))) }
            throw client.refusal(response, of: "the request for a certificate")
        }
        let order = try self.order(response)
        switch order.status {
        case "valid": return try await issued(order, at: found.url, for: request, account)
        case "invalid":
            try await request.remember([])
            throw await reason(for: order, account)
        default: return .pending(retryAfter: pause(retryAfter(response)))
        }
    }

    private func issued(
        _ order: ACMEOrder, at orderURL: String, for request: EnrolmentRequest, _ account: ACMEAccount
    ) async throws(ProviderError) -> EnrolmentAnswer {
        guard let url = order.certificate else {
            throw ProviderError(
                .protocolError,
                "\(client.serverName) has issued, but does not name the certificate's URL; look for the reason in its log."
            )
        }
        var chain: [X509Certificate]
        let alternates: [String]
        do throws(ProviderError) { (chain, alternates) = try await self.chain(at: url, account) } catch {
            throw try await noteFailedDownload(error, of: orderURL, request)
        }
        if let preferred = settings.preferredChain, !chain.leads(to: preferred) {
            chain = await alternative(to: chain, leadingTo: preferred, alternates, request, account) ?? chain
        }
        // The leaf comes first (section 7.4.2), but for servers that do not know it.
        let issuers = chain.filter { $0.publicKey != request.key.publicKey }
        return .issued(chain, authorities: issuers.isEmpty ? state.withLock(\.anchors) : issuers)
    }

    /// So many runs look for a certificate before another one is ordered.
    private static let maximumFailedDownloads = 3

    /// Keeps the order of a certificate that was not there: the next run downloads it, and orders none. One that stays away, or cannot be
    /// read, ends the order.
    ///
    /// - Returns: The error to throw.
    private func noteFailedDownload(
        _ error: ProviderError, of order: String, _ request: EnrolmentRequest
    ) async throws(ProviderError) -> ProviderError {
        var error = error
        if error.reason == .missingCertificate {
            let before = Progress(request.state)
            let count = (before?.order == order ? before?.failedDownloads ?? 0 : 0) + 1
            if count <= Self.maximumFailedDownloads {
                try await request.remember(try Progress(order: order, failedDownloads: count).encoded())
                error.message += " The next attempt downloads it again."
            } else {
                error.reason = .endedOrder
            }
        }
        // It stays as it is: the next run makes a new order.
        if error.reason == .endedOrder { try await request.remember([]) }
        return error
    }

    /// Looks among the alternate chains of the same certificate for one that leads to the preferred root. They are optional (section
    /// 7.4.2): one that cannot be downloaded costs no identity.
    ///
    /// - Returns: `nil` if there is none, with a warning.
    private func alternative(
        to chain: [X509Certificate], leadingTo root: String, _ alternates: [String], _ request: EnrolmentRequest,
        _ account: ACMEAccount
    ) async -> [X509Certificate]? {
        let leaf = chain.first { $0.publicKey == request.key.publicKey }
        var reason = "it has none that leads there"
        for url in alternates.prefix(8) {
            do throws(ProviderError) {
                let (other, _) = try await self.chain(at: url, account, isOptional: true)
                guard other.leads(to: root) else { continue }
                if leaf.map(other.contains) == true { return other }
                reason = "\(url.shown) is the chain of another certificate"
            } catch { reason = error.message }
        }
        environment.logger.warning(
            "the server has no chain to the preferred root; its default is used",
            metadata: ["preferred-chain": "\(DisplayText.visible(root))", "reason": "\(reason)"])
        return nil
    }

    /// Downloads a chain (section 7.4.2). Returns the URLs of other ones, too.
    ///
    /// - Throws: With the reason `endedOrder` for an answer that another attempt would get again, and `missingCertificate` for another one
    ///   than the certificate.
    private func chain(
        at url: String, _ account: ACMEAccount, isOptional: Bool = false
    ) async throws(ProviderError) -> ([X509Certificate], alternates: [String]) {
        let response: HTTPResponse
        do throws(ProviderError) {
            response = try await client.post(
                to: url, by: account.signer, accepting: "application/pem-certificate-chain",
                isRepeatable: !isOptional, isOptional: isOptional)
        } catch {
            var error = error
            // Such as one that is cut off, or too large.
            if error.code == .protocolError { error.reason = .missingCertificate }
            throw error
        }
        guard response.status == 200 else {
            var refusal = client.refusal(
                response, of: "the request for the certificate", advice: "look for the reason in its log")
            if refusal.code != .unavailable { (refusal.code, refusal.reason) = (.unavailable, .missingCertificate) }
            throw refusal
        }
        let chain: [X509Certificate]
        do throws(ProviderError) {
            chain = try X509Certificate.certificates(pem: String(decoding: response.body, as: UTF8.self))
        } catch {
            // A page of something in between is of another type.
            let isServers = response.mediaType == "application/pem-certificate-chain"
            throw ProviderError(
                .protocolError,
                "\(client.serverName) has issued a certificate, but its answer is not a PEM chain: \(error.message)",
                reason: isServers ? .endedOrder : .missingCertificate)
        }
        return (chain, Self.links("alternate", in: response, from: url))
    }

    /// Returns the targets of the links with a relation (RFC 8288), which may be relative to the URL of the response.
    private static func links(_ relation: String, in response: HTTPResponse, from base: String) -> [String] {
        response.headers[canonicalForm: "Link"].flatMap { $0.split(separator: ",") }.compactMap { link in
            let parts = link.split(separator: ";").map(\.trimming)
            guard let target = parts.first, target.hasPrefix("<"), target.hasSuffix(">"),
                parts.dropFirst().contains(where: {
                    ["rel=\"\(relation)\"", "rel=\(relation)"].contains($0.lowercased())
                })
            else { return nil }
            let text = String(target.dropFirst().dropLast())
            return URL(string: text, relativeTo: URL(string: base))?.absoluteString ?? text
        }
    }

    // MARK: - End

    func isFinalRefusal(_ error: ProviderError) -> Bool { error.isRefusalByHTTPStatus }

    /// Removes the challenges: a listener is not left open, whatever the end.
    func noteOutcome(_ error: ProviderError?) async {
        await responder.cleanUp()
        await client.noteOutcome(error)
    }

    func revoke(_ identity: Identity, _ reason: RevocationReason) async throws(ProviderError) {
        guard let url = try await client.directory().revokeCert else {
            throw ProviderError(
                .operationNotAllowed, "\(client.serverName) revokes no certificates; ask its administrator.")
        }
        struct Revocation: Encodable {
            let certificate: String
            let reason: Int?
        }
        let payload = try JSONText.encode(
            Revocation(
                certificate: Base64URL.encode(identity.certificate.derRepresentation),
                reason: reason == .unspecified ? nil : reason.rawValue))
        // By the account, or by the certificate's own key (section 7.6).
        var response: HTTPResponse?
        if let account = try await ACMEAccounts(client: client, interaction: interaction).existing() {
            response = try await client.post(payload, to: url, by: account.signer)
        }
        // The account may be another one than that which the certificate was issued to.
        if response == nil || response?.problem?.kind == "unauthorized" {
            response = try await client.post(payload, to: url, by: try RequestSigner(identity.key))
        }
        guard let response else { return }
        if response.problem?.kind == "alreadyRevoked" { return }
        guard (200...299).contains(response.status) else {
            throw client.refusal(response, of: "the request for a revocation")
        }
    }

    func closeAccount() async throws(ProviderError) {
        try await ACMEAccounts(client: client, interaction: interaction).close()
    }
}

extension ProviderError.Reason {
    /// The order is over, without a certificate that can be used.
    fileprivate static let endedOrder = Self(rawValue: "endedOrder")
    /// The server has issued, and answers the request for the certificate with something else.
    fileprivate static let missingCertificate = Self(rawValue: "missingCertificate")
}

extension [X509Certificate] {
    /// Whether the chain ends in, or below, a root with this subject, its parts in any order, or this common name.
    func leads(to root: String) -> Bool {
        guard let last else { return false }
        // openssl(1) writes blanks, too.
        func parts(_ name: String) -> Set<[String]> {
            Set(name.lowercased().split(separator: ",").map { $0.split(separator: "=").map { String($0.trimming) } })
        }
        let name = parts(last.issuer)
        return name == parts(root) || name.contains(["cn", root.lowercased()])
    }
}

extension ACMESettings {
    /// The next step after a proof that the server has not accepted.
    var adviceForProof: String {
        switch challenge {
        case .http where httpRoot == nil:
            "check that port 80 of the name leads to port \(httpListen.port) of this host ('http-listen'), and that no firewall or other "
                + "program answers"
        case .http:
            "check that port 80 of the name leads to the web server of 'http-root', and that it serves files below "
                + "/.well-known/acme-challenge"
        case .tlsALPN:
            "check that port 443 of the name leads to port \(tlsListen.port) of this host ('tls-listen'), and that no firewall or other "
                + "program answers"
        case .dns: "check that the program of 'dns-hook' publishes the record where the server looks"
        case .none: "look for the reason in the server's log"
        }
    }
}
