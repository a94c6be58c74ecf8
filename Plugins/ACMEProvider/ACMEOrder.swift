import CertificateProviding
import Enrolment
import FoundationEssentials
import Logging
import NIOHTTP1
import ProviderTransport

/// An order (RFC 8555, section 7.1.3).
struct ACMEOrder: Decodable, Sendable {
    struct Identifier: Codable, Hashable, Sendable {
        let type: String
        let value: String
    }
    let status: ACMEStatus
    let identifiers: [Identifier]?
    let authorizations: [String]
    let finalize: String
    let certificate: String?
    let error: ACMEProblem?

    /// The next step of an enrolment.
    enum Step: Equatable, Sendable {
        /// The names are to be proven.
        case prove
        /// The certificate is to be requested.
        case finalise
        /// The server is at work.
        case wait
        case download
        /// The order has ended without a certificate.
        case fail
    }

    /// Returns what follows from the status of an order (section 7.1.6).
    ///
    /// - Parameter isFinalised: Whether this is the answer to the request for the certificate. A server may tell it the status of before.
    static func next(_ order: ACMEOrder, isFinalised: Bool = false) -> Step {
        switch order.status {
        case .pending: isFinalised ? .wait : .prove
        case .ready: isFinalised ? .wait : .finalise
        case .processing: .wait
        case .valid: .download
        case .invalid, .deactivated, .expired, .revoked: .fail
        }
    }
}

/// Finds, makes and finalises the order of one enrolment.
struct ACMEOrders {
    let client: ACMEClient
    let account: ACMEAccount
    let request: EnrolmentRequest
    private var settings: ACMESettings { client.settings }
    private var logger: Logger { client.environment.logger }

    struct Found {
        let url: String
        let order: ACMEOrder
        let retryAfter: Duration?
        /// Whether this run has not looked at it before, nor made it.
        var isOfLastRun = false
    }

    /// The state of an enrolment that outlasts a kill. JSON.
    private struct Progress: Codable {
        /// `nil` from before the request for an order until its URL is known.
        var order: String?
        /// How many runs have found no certificate at its URL; `nil` for none.
        var failedDownloads: Int?
    }

    private var progress: Progress? { try? JSONDecoder().decode(Progress.self, from: Data(request.state)) }

    private func remember(_ progress: Progress) async throws(ProviderError) {
        try await request.remember(try JSONText.encode(progress))
    }

    /// Returns the order that was written down, or a new one.
    ///
    /// - Parameter isFirst: Whether this run has not looked at an order before.
    func current(isFirst: Bool) async throws(ProviderError) -> Found {
        guard let progress else { return try await make() }
        // Without a URL, the last run has ended before it knew the answer.
        let known = if let url = progress.order { url } else { try await openOrder() }
        guard let url = known else { return try await make() }
        let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
        if [404, 410].contains(response.status), isFirst {
            logger.warning("the order of the last run has been lost by the server; a new one is made")
            return try await make()
        }
        guard response.status == 200 else { throw client.refusal(response, of: "the request for the order") }
        let found = try found(url, response, isOfLastRun: isFirst)
        if progress.order == nil { try await remember(Progress(order: url)) }
        return found
    }

    private func found(
        _ url: String, _ response: HTTPResponse, isOfLastRun: Bool = false
    ) throws(ProviderError) -> Found {
        Found(
            url: url, order: try response.json(ACMEOrder.self, from: settings.directory),
            retryAfter: client.retryAfter(response), isOfLastRun: isOfLastRun)
    }

    // MARK: - Making

    private struct NewOrder: Encodable {
        let identifiers: [ACMEOrder.Identifier]
        let profile: String?
        var replaces: String?
    }

    private var identifiers: [ACMEOrder.Identifier] {
        settings.identifiers.map { .init(type: $0.type, value: $0.value) }
    }

    /// Makes an order (section 7.4).
    func make() async throws(ProviderError) -> Found {
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
        var new = NewOrder(identifiers: identifiers, profile: settings.profile)
        if directory.renewalInfo != nil, let current = request.current {
            new.replaces = ACMEClient.renewalID(of: current.certificate)
        }
        try await remember(Progress())
        var response = try await client.post(try JSONText.encode(new), to: directory.newOrder, by: account.signer)
        if new.replaces != nil, isRefused(response) {
            // The field is a hint, not a condition (RFC 9773, section 5). The server does not know that certificate, cannot look it up now, or
            // another order or account has it.
            logger.info(
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
        try await remember(Progress(order: url))
        return try found(url, response)
    }

    /// Whether the server has looked at an order and refused it, and does not only want it at another time or with another nonce.
    private func isRefused(_ response: HTTPResponse) -> Bool {
        !(200...299).contains(response.status) && response.status != 429 && client.retryAfter(response) == nil
            && !["badNonce", "rateLimited"].contains(response.problem?.kind)
    }

    // MARK: - Finding

    private static let maximumPages = 50
    private static let maximumOrders = 8

    /// The orders of an account (section 7.1.2.1).
    private struct List: Decodable { let orders: [String] }

    /// Looks for an order that a killed run has made, in the account's list (section 7.1.2.1). `nil` also from a server without one.
    private func openOrder() async throws(ProviderError) -> String? {
        var urls: [String] = []
        var page = account.orders
        for _ in 0..<Self.maximumPages {
            guard let url = page else { break }
            let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
            guard response.status == 200, let list = try? response.json(List.self, from: settings.directory)
            else { break }
            urls += list.orders
            page = response.links("next", from: url).first
        }
        // Servers list the oldest first, or the newest.
        for url in urls.suffix(Self.maximumOrders).reversed() + urls.prefix(Self.maximumOrders) {
            let response = try await client.post(to: url, by: account.signer, isRepeatable: true)
            guard response.status == 200, let order = try? found(url, response).order else { continue }
            let isOpen = [.pending, .ready].contains(order.status)
            if isOpen, Set(order.identifiers ?? []) == Set(identifiers) { return url }
        }
        return nil
    }

    // MARK: - The end

    /// Requests the certificate, and returns the order as the server has it then.
    func finalise(_ found: Found) async throws(ProviderError) -> Found {
        let response = try await client.post(
            try JSONText.encode(["csr": ByteText.base64URL(request.csr.derRepresentation)]), to: found.order.finalize,
            by: account.signer)
        if (200...299).contains(response.status) { return try self.found(found.url, response) }
        guard response.problem?.kind == "orderNotReady" else {
            throw client.refusal(response, of: "the request for a certificate")
        }
        // It was asked too early, or it has the request already: the next look at the order tells.
        return Found(url: found.url, order: found.order, retryAfter: client.retryAfter(response))
    }

    /// So many runs look for a certificate before another one is ordered.
    private static let maximumFailedDownloads = 3

    /// Keeps the order of a certificate that was not there: the next run downloads it, and orders none. One that stays away, or cannot be
    /// read, ends the order.
    ///
    /// - Returns: The error to throw.
    func noteFailedDownload(_ error: ProviderError, of url: String) async throws(ProviderError) -> ProviderError {
        guard error.reason == .missingCertificate else { return error }
        var error = error
        let before = progress
        let count = (before?.order == url ? before?.failedDownloads ?? 0 : 0) + 1
        if count <= Self.maximumFailedDownloads {
            try await remember(Progress(order: url, failedDownloads: count))
            error.message += " The next attempt downloads it again."
        } else {
            // It stays as it is: the next run makes a new order.
            error.reason = .endedOrder
        }
        return error
    }

    func failure(_ order: ACMEOrder) -> ProviderError {
        ProviderError(
            .rejected,
            """
            \(client.serverName) has ended the order for \(settings.plan.names.displayText) with the status \
            '\(order.status.rawValue)'\(order.error.reasonForMessage); \
            \(order.error?.advice ?? "look for the reason in the server's log"). The next attempt makes a new order.
            """, reason: .endedOrder)
    }
}

extension ProviderError.Reason {
    /// The order is over, without a certificate that can be used.
    static let endedOrder = Self(rawValue: "endedOrder")
    /// The server does not accept what the key has proven.
    static let refusedStatement = Self(rawValue: "refusedStatement")
    /// The server has issued, and answers the request for the certificate with something else.
    static let missingCertificate = Self(rawValue: "missingCertificate")
}
