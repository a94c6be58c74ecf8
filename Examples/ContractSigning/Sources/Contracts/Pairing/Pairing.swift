public import CertificateProviding
public import CertprovKit
import CertificateTLS
public import FoundationEssentials
import Logon
public import ProviderTransport

/// The pairing of this host with a server: an identity that the server has issued for a token, by EST. The token is the password of
/// the enrolment. The identity rests in the store or in a token like any other, and is renewed like one.
public struct Pairing: Sendable {
    private let manager: LogonManager
    private let queue: ContractQueue
    private let settings: Parameters
    private let server: ServerURL
    private let trust: ConfiguredTrust
    private let transport: Transport
    private let now: @Sendable () -> Date

    /// The provider of enrolments, by its id in the registry.
    private static let provider = ProviderID("mdm")
    private static let user = "pairing"

    /// - Throws: `configurationMissing` without `Contracts.url`; errors of the provider about its parameters.
    public init(
        _ logon: CertprovLogon, _ queue: ContractQueue, transport: Transport = Transport(),
        now: @escaping @Sendable () -> Date = { Date() }
    ) throws(ProviderError) {
        settings = logon.manager.configuration.settings
        guard let server = settings[ContractsSettings.url] else {
            throw ProviderError(
                .configurationMissing, "No server of contracts is configured; set Contracts.url in the property file.")
        }
        (self.server, self.queue, self.transport, self.now) = (server, queue, transport, now)
        trust = ConfiguredTrust(anchors: ContractsSettings.trustAnchors, pins: ContractsSettings.pin, in: settings)
        manager = try logon.manager(of: [
            ConfiguredProvider(id: Self.provider, parameters: Self.parameters(settings, server))
        ])
    }

    private static func parameters(_ settings: Parameters, _ server: ServerURL) -> ProviderParameters {
        var parameters = ProviderParameters([
            "protocol": .init("est"), "url": .init(server.origin + server.path), "username": .init(user),
            "password-source": .init("prompt"), "subject": .init("CN=\(hostName)"),
            "timeout": .init("\(settings[ContractsSettings.timeout].components.seconds)"),
        ])
        let others: [(String, String?)] = [
            ("trust-anchors", settings.text(ContractsSettings.trustAnchors)),
            ("ca-fingerprint", settings.text(ContractsSettings.caFingerprint)),
            ("pin", settings.text(ContractsSettings.pin)), ("key", settings.text(ContractsSettings.key)),
        ]
        for case (let name, let text?) in others { parameters[name] = .init(text, origin: "Contracts.\(name)") }
        return parameters
    }

    /// The name of this host, which the server's page shows.
    private static var hostName: String {
        let name = ProcessInfo.processInfo.hostName.filter {
            $0.isASCII && ($0.isLetter || $0.isNumber || "-.".contains($0))
        }
        return name.isEmpty ? "host" : String(name.prefix(63))
    }

    /// The host and the port of the server.
    public var authority: String { server.authority }

    /// Closes the provider's resources.
    public func shutdown() async { await manager.shutdown() }

    /// Pairs this host with the account of a token. A host that is paired with it, and accepted by the server, stays as it is: the
    /// token is not used.
    ///
    /// - Parameters:
    ///   - token: White space at its ends is not part of it.
    ///   - interaction: Confirms the fingerprint of the server's CA, where nothing else is configured to authenticate it.
    ///   - permit: Throws where the host must not be paired. Called before the token is used, with the account that the host is paired for
    ///     already, whose contracts here are deleted if it is another one, and with that of the token, which is `nil` if only the enrolment
    ///     can tell it.
    /// - Returns: The account, and whether the token was used.
    /// - Throws: `operationNotAllowed` for another account while contracts wait; `rejected` or `wrongPassword` for a token that is over,
    ///   used or wrong; errors of the enrolment.
    public func pair(
        _ token: SecretBytes, _ interaction: any UserInteraction = NoUserInteraction(),
        permit: (_ old: String?, _ new: String?) async throws(ProviderError) -> Void = { _, _ in }
    ) async throws(ProviderError) -> (account: String, isTokenUsed: Bool) {
        let token = Self.trimmed(token)
        guard !token.isEmpty else {
            throw ProviderError(.malformedData, "The token is empty; ask the server for another one.")
        }
        let (stored, own) = (try await manager.storedIdentity(), try queue.state().account)
        try requireTrust(of: stored, interaction)
        let account = try await account(of: token, trusting: stored)
        if let own, let account, own != account { try requireNothingWaits(for: own) }
        if let stored, own == account, await isAccepted(stored, for: account) { return (account ?? "", false) }
        try await permit(own, account)
        if stored != nil { try await manager.deleteStoredCertificates() }
        let identity: Identity
        do throws(ProviderError) {
            identity = try await manager.obtainIdentity(TokenInteraction(token: token, interaction: interaction))
        } catch { throw Self.named(error) }
        let confirmed = try await contractServer(identity).account()
        if let own, own != confirmed {
            try requireNothingWaits(for: own)
            try queue.removeAll(evenUnsent: false)
        }
        try queue.changeState { $0.account = confirmed }
        return (confirmed, true)
    }

    /// Returns the server as the paired host sees it. Renews the identity, if that is due.
    ///
    /// - Throws: `notFound` for a host that is not paired; errors of the renewal, if the identity has expired.
    public func contractServer() async throws(ProviderError) -> HTTPContractServer {
        try contractServer(try await identity())
    }

    /// Returns the paired identity. Renews it, if that is due.
    ///
    /// - Throws: As ``contractServer()``.
    public func identity() async throws(ProviderError) -> Identity {
        guard let stored = try await manager.storedIdentity() else {
            throw ProviderError(
                .notFound,
                "This host is not paired with \(server.authority); ask there for a token, and run: contracts pair")
        }
        do throws(ProviderError) {
            let current = try await manager.renewIdentityIfDue(at: now(), NoUserInteraction())
            try? await manager.discardReplaced(by: current, NoUserInteraction())
            return current
        } catch {
            guard stored.expiry > now() else {
                throw ProviderError(
                    .expired,
                    "The pairing of this host with \(server.authority) has expired; ask there for a token, and run: contracts pair",
                    underlying: error)
            }
            // The next run tries again; until its end the old one does.
            guard error.code != .operationNotAllowed || error.reason == .busy else { throw error }
            return stored
        }
    }

    /// Ends the pairing: tells the server, and deletes the identity and the queue.
    ///
    /// - Parameter isForced: Whether signatures that were not sent are deleted too, and a server that does not answer is left alone.
    /// - Throws: `operationNotAllowed` while a signature is not sent; errors of the server.
    public func unpair(isForced: Bool) async throws(ProviderError) {
        if !isForced { try requireNothingIsLost() }
        if let stored = try await manager.storedIdentity() {
            do throws(ProviderError) { try await contractServer(stored).unpair() } catch {
                // The server has ended the pairing already.
                guard isForced || error.reason == .rejectedCertificate else { throw error }
            }
            // A signature may have been made while the server was asked.
            if !isForced { try requireNothingIsLost(after: "The server has ended the pairing: pair this host again. ") }
            try await manager.deleteStoredCertificates()
        }
        try queue.removeAll(evenUnsent: isForced)
    }

    private func requireNothingIsLost(after event: String = "") throws(ProviderError) {
        let contracts = try queue.entries().map { entry throws(ProviderError) in try entry.contract.get() }
        guard let contract = contracts.first(where: \.hasUnsentSignature) else { return }
        let reason =
            if contract.conflict != nil {
                "is in conflict with the server; decide: contracts resolve \(contract.id)"
            } else if !contract.superseded.isEmpty {
                "is here only, since the server's version has taken its place; save it: contracts show \(contract.id)"
            } else {
                "was not sent; run contracts sync, which says why, if the server refuses it"
            }
        throw ProviderError(
            .operationNotAllowed,
            "\(event)A signature of the contract \(contract.id) \(reason). To delete it with the pairing: contracts unpair --force"
        )
    }

    // MARK: - The server

    private func contractServer(_ identity: Identity) throws(ProviderError) -> HTTPContractServer {
        HTTPContractServer(
            server, trusting: try serverTrust(identity), presenting: try TLSCredentials(identity),
            timeout: settings[ContractsSettings.timeout], transport: transport, now: now)
    }

    /// The trust of the settings; without trust anchors there, the CA that the pairing has brought.
    private func serverTrust(_ identity: Identity?) throws(ProviderError) -> ServerTrust {
        var configured = try trust.serverTrust()
        guard !trust.hasAnchors, let bundle = identity?.trust else { return configured }
        configured.trustAnchors = .certificates(bundle.certificates).named("the CA of the pairing")
        return configured
    }

    /// Asks the server whose token it is, which does not use it up. `nil` where the fingerprint of its CA alone authenticates the server:
    /// the enrolment does that, and the token goes nowhere before.
    private func account(
        of token: SecretBytes, trusting stored: Identity?
    ) async throws(ProviderError) -> String? {
        guard trust.isConfigured || stored?.trust != nil else { return nil }
        var security = ServerSecurity(trust: try serverTrust(stored), now: now)
        security.settingNames = ContractsSettings.names
        let session = ServerSession(
            server, security, .password(user: Self.user, token),
            timeBudget: TimeBudget(settings[ContractsSettings.timeout], transport.retryPolicy), transport: transport)
        let path = server.path.hasSuffix("/") ? String(server.path.dropLast()) : server.path
        let response = try await session.response(to: HTTPRequest(target: path + "/pairing", isRepeatable: true))
        guard response.status == 200 else {
            throw response.refusal(
                of: "the question for the token's account", by: server,
                advice: [401, 403].contains(response.status)
                    ? "the token is wrong, over, or was used; ask for another one" : "check 'Contracts.url'", at: now())
        }
        guard let account = (try? JSONValue(parsing: response.body))?["account"]?.string else {
            throw ProviderError(
                .protocolError, "\(server.authority) does not say whose token it is; check 'Contracts.url'.")
        }
        return account
    }

    /// Requires something that authenticates the server, where nobody can be asked whether a fingerprint is right.
    private func requireTrust(
        of stored: Identity?, _ interaction: any UserInteraction
    ) throws(ProviderError) {
        guard !trust.isConfigured, stored?.trust == nil, settings[ContractsSettings.caFingerprint] == nil,
            !interaction.canAsk
        else { return }
        throw ProviderError(
            .configurationMissing,
            "Nothing authenticates \(server.authority); set Contracts.trust-anchors to the file with its CA, or Contracts.ca-fingerprint."
        )
    }

    private static let passedOn = ["trust-anchors", "ca-fingerprint", "pin", "key", "timeout", "url"]

    /// An error of the provider, with the names of this program's settings.
    private static func named(_ error: ProviderError) -> ProviderError {
        var error = error
        error.provider = nil
        for name in passedOn {
            error.message = error.message.replacing("'\(name)'", with: "'Contracts.\(name)'")
        }
        return error
    }

    /// Whether the server accepts an identity for an account. After a kill in another pairing it may be another one's.
    private func isAccepted(_ stored: Identity, for account: String?) async -> Bool {
        guard stored.expiry > now() else { return false }
        do throws(ProviderError) {
            let accepted = try await contractServer(stored).account()
            return account == nil || accepted == account
        } catch {
            // Of a server that does not answer, nothing is known; and a new identity cannot be had there.
            return error.reason != .rejectedCertificate && error.code != .rejected
        }
    }

    private func requireNothingWaits(for account: String) throws(ProviderError) {
        let waiting = try queue.list().filter {
            $0.isUnsent || $0.conflict != nil || [.incomplete, .inProgress].contains($0.state)
        }
        guard let first = waiting.first else { return try requireNothingIsLost() }
        throw ProviderError(
            .operationNotAllowed,
            "\(waiting.count == 1 ? "A contract" : "\(waiting.count) contracts") of \(DisplayText.visible(account)) wait here, such as \(first.id); sign or abandon and synchronise them, or run: contracts unpair"
        )
    }

    private static func trimmed(_ token: SecretBytes) -> SecretBytes {
        token.withUnsafeBytes { bytes in
            let isSpace: (UInt8) -> Bool = { [0x20, 0x09, 0x0A, 0x0B, 0x0C, 0x0D].contains($0) }
            let rest = bytes.drop(while: isSpace)
            let last = rest.lastIndex { !isSpace($0) } ?? rest.startIndex - 1
            return SecretBytes(copying: rest[rest.startIndex..<(last + 1)])
        }
    }
}

/// Answers the question for the password of the enrolment with the token, and passes others on.
private struct TokenInteraction: UserInteraction {
    let token: SecretBytes
    let interaction: any UserInteraction

    var canAsk: Bool { interaction.canAsk }

    func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes { token }

    func confirm(_ question: String) async throws(ProviderError) -> Bool {
        try await interaction.confirm(question)
    }
}
