import CertificateProviding
import CertificateTLS
import FoundationEssentials
import IdentityStore
import NIOHTTP1
import ProviderTransport
import Synchronization

/// The client of the platform server. Keeps connections for later requests of the same identity or user.
final class PlatformClient: Sendable {
    /// The sender of a request.
    enum Principal: Sendable {
        case identity(Identity)
        case user(String, SentPassword)

        /// Whether it is a user whose password the server has not accepted yet.
        var isOnTrial: Bool { if case .user(_, let password) = self { password.beforeSending != nil } else { false } }
    }

    let platform: LogonConfiguration.Platform
    private let configuration: LogonConfiguration
    private let transport: Transport
    private let now: @Sendable () -> Date
    /// Reads the password of the environment's proxy.
    private let secrets: SecretReader
    private let executor: BlockingExecutor
    /// Sessions without a request, for one principal.
    private struct Idle {
        var principal: [UInt8] = []
        var sessions: [ServerSession] = []
        /// Sessions of an earlier generation are not used again: the vault was locked, or the certificate replaced, since they
        /// began.
        var generation: UInt64 = 0
    }
    private let idle = Mutex(Idle())

    /// The time for one request, with its repetitions.
    private static let timeout = Duration.seconds(60)
    private static let maximumIdle = 16

    init(
        _ platform: LogonConfiguration.Platform, _ configuration: LogonConfiguration, _ transport: Transport,
        _ secrets: SecretReader, _ executor: BlockingExecutor, now: @escaping @Sendable () -> Date
    ) {
        (self.platform, self.configuration) = (platform, configuration)
        (self.transport, self.secrets, self.executor, self.now) = (transport, secrets, executor, now)
    }

    /// Whether a client of this configuration would do the same.
    func isFor(_ configuration: LogonConfiguration) -> Bool {
        self.configuration.hasSameServer(as: configuration)
    }

    /// Sends a request, and returns the response of any status but those that refuse the principal.
    ///
    /// - Parameter connection: The application's connection; `nil` for none.
    /// - Throws: `rejected` if the server refuses the principal, and the errors of the connection.
    func response(
        to request: HTTPRequest, from principal: Principal, over connection: ConnectionID?, purpose: String
    ) async throws(ProviderError) -> HTTPResponse {
        var request = request
        if let connection { request.headers.replaceOrAdd(name: ConnectionEntry.idField, value: "\(connection)") }
        // Instead of the security configuration that is the domain's default.
        request.headers.replaceOrAdd(name: "X-SUP-SC", value: platform.securityConfiguration)
        request.headers.remove(name: "X-SUP-DOMAIN")
        if !platform.domain.isEmpty { request.headers.add(name: "X-SUP-DOMAIN", value: platform.domain) }
        let key = Self.key(of: principal)
        let budget = TimeBudget(Self.timeout, transport.retryPolicy)
        let (known, generation) = principal.isOnTrial ? (nil, 0) : take(key)
        let session: ServerSession
        if let known { session = known } else { session = try await new(principal, budget) }
        let response = try await session.with(timeBudget: budget).response(to: request)
        // Without a challenge (RFC 9110, section 15.5.2), a gateway in front has answered, and has not looked at the password.
        let hasRefusedPassword = response.hasRefusedPassword && !response.headers["WWW-Authenticate"].isEmpty
        if case .user(_, let password) = principal, let verdict = hasRefusedPassword ? .rejected : response.verdict,
            await session.hasSentPassword
        {
            await password.note(verdict)
        }
        if [401, 403].contains(response.status) {
            // The session knows the password that was refused.
            forget()
            var error = response.refusal(
                of: purpose, by: platform.server, advice: Self.advice(for: principal), at: now())
            if !hasRefusedPassword { error.reason = nil }
            throw error
        }
        if response.isRefusalOfCertificate {
            throw response.refusal(
                of: purpose, by: platform.server, advice: Self.adviceAboutCertificate(for: principal), at: now())
        }
        if !principal.isOnTrial { give(session, key, generation) }
        return response
    }

    private static func advice(for principal: Principal) -> String {
        switch principal {
        case .identity(let identity):
            "it does not accept the certificate of '\(identity.certificate.subject)' for this; ask its administrator, or "
                + "use another certificate"
        case .user:
            "check the user name and the password, for a first registration the activation code, and whether the user may do "
                + "this"
        }
    }

    private static func adviceAboutCertificate(for principal: Principal) -> String {
        switch principal {
        case .identity: advice(for: principal)
        case .user:
            "it requires a client certificate; set Port to one for passwords, or UserCreationPolicy=certificate"
        }
    }

    /// Creates a connection, or gets the one with this id again.
    ///
    /// - Returns: The id that the server gave it, and what it demands of passcodes.
    /// - Throws: `rejected`, `configurationInvalid` for 404, `protocolError`, also for demands that certprov cannot meet, and the
    ///   errors of the connection.
    func create(
        _ id: ConnectionID, from principal: Principal, activationCode: SecretBytes?
    ) async throws(ProviderError) -> (ConnectionID, PasscodeDemands?) {
        var headers = HTTPHeaders([("Content-Type", ConnectionEntry.mediaType)])
        if let code = activationCode?.withUnsafeBytes({ String(decoding: $0, as: UTF8.self) }) {
            guard code.utf8.allSatisfy({ (0x21...0x7e).contains($0) }), !code.isEmpty else {
                throw ProviderError(
                    .configurationInvalid,
                    "The activation code must be visible ASCII characters without a blank; correct "
                        + "Registration.activation-code-source.")
            }
            headers.add(name: "X-Activation-Code", value: code)
        }
        let purpose = "the registration of '\(platform.applicationID)'"
        let response = try await response(
            to: HTTPRequest(
                method: .post, target: platform.connections, headers: headers,
                body: Array(ConnectionEntry.creation.utf8),
                isRepeatable: true),
            from: principal, over: id, purpose: purpose)
        guard [200, 201].contains(response.status) else {
            throw response.refusal(of: purpose, by: platform.server, at: now())
        }
        guard let given = ConnectionEntry.id(in: response) else {
            throw ProviderError(
                .protocolError,
                "\(platform.server.authority) answers \(purpose) without a valid connection id; look for the reason in the "
                    + "server's log.")
        }
        return (given, try ConnectionEntry.demands(in: response, of: platform.server))
    }

    /// Reads a connection, to see that the server accepts the principal.
    ///
    /// - Throws: As ``create(_:from:activationCode:)``.
    func confirm(_ id: ConnectionID, from principal: Principal) async throws(ProviderError) {
        let purpose = "the connection of '\(platform.applicationID)'"
        let response = try await response(
            to: HTTPRequest(method: .get, target: platform.connection(id), isRepeatable: true), from: principal,
            over: id, purpose: purpose)
        guard response.status == 200 else { throw response.refusal(of: purpose, by: platform.server, at: now()) }
    }

    /// Removes a connection. Succeeds if there is none.
    ///
    /// - Throws: As ``create(_:from:activationCode:)``.
    func delete(_ id: ConnectionID, from principal: Principal) async throws(ProviderError) {
        let purpose = "the end of the registration of '\(platform.applicationID)'"
        let response = try await response(
            to: HTTPRequest(method: .delete, target: platform.connection(id), isRepeatable: true), from: principal,
            over: id, purpose: purpose)
        guard [200, 202, 204, 404, 410].contains(response.status) else {
            throw response.refusal(of: purpose, by: platform.server, at: now())
        }
    }

    /// The settings of a registration that the user can change.
    private static let settingNames = ServerSettingNames(
        address: "Host, Port, HTTPS, URLSuffix and FarmID", path: "ApplicationId, URLSuffix and FarmID",
        trustAnchors: "TrustAnchors", timeout: nil)

    // MARK: - Sessions

    private static func key(of principal: Principal) -> [UInt8] {
        switch principal {
        case .identity(let identity): identity.certificate.derRepresentation
        case .user(let name, _): Array(name.utf8)
        }
    }

    private func take(_ principal: [UInt8]) -> (ServerSession?, generation: UInt64) {
        idle.withLock { ($0.principal == principal ? $0.sessions.popLast() : nil, $0.generation) }
    }

    private func give(_ session: ServerSession, _ principal: [UInt8], _ generation: UInt64) {
        idle.withLock { idle in
            guard idle.generation == generation else { return }
            if idle.principal != principal { (idle.principal, idle.sessions) = (principal, []) }
            if idle.sessions.count < Self.maximumIdle { idle.sessions.append(session) }
        }
    }

    /// Closes the connections that no request uses.
    func forget() { idle.withLock { $0 = Idle(generation: $0.generation + 1) } }

    /// Checks that the files and pins that authenticate the server can be read, before a certificate is obtained for nothing.
    ///
    /// - Throws: `configurationInvalid`, `fileNotFound`.
    func checkTrust() async throws(ProviderError) {
        _ = try await pins()
        let anchors = TrustAnchors.configured(configuration.trustAnchors)
        _ = try await executor.run { () throws(ProviderError) in try anchors.read() }
    }

    private func pins() async throws(ProviderError) -> [CertificatePin] {
        let pins = configuration.registration.pins
        do throws(ProviderError) {
            return try await executor.run { () throws(ProviderError) in
                try pins.map { text throws(ProviderError) in try CertificatePin.read(text) }.flatMap { $0 }
            }
        } catch {
            throw configuration.invalid("Registration.pin", "Registration.pin: \(error.message)", code: error.code)
        }
    }

    private func new(
        _ principal: Principal, _ budget: TimeBudget
    ) async throws(ProviderError) -> ServerSession {
        let trusted = try await pins()
        var anchors = TrustAnchors.configured(configuration.trustAnchors)
        if case .identity(let identity) = principal { anchors = try anchors.resolved(with: identity) }
        let trust = ServerTrust(
            trustAnchors: anchors, pins: trusted,
            isPinOnly: configuration.registration.isPinOnly)
        let proxy = try ProxyChoice.environment(secrets).proxy(for: platform.server)
        var security = ServerSecurity(trust: trust, now: now, executor: executor)
        security.settingNames = Self.settingNames
        let credentials: ServerCredentials
        switch principal {
        case .identity(let identity):
            security.credentials = try TLSCredentials(identity)
            credentials = .none
        case .user(let name, let password):
            // The server would count it as a wrong one.
            guard !password.secret.isEmpty else {
                throw ProviderError(
                    .configurationInvalid,
                    "The password of '\(name.withVisibleControls)' is empty, so it is not sent; correct Registration.password-source, "
                        + "or type one.")
            }
            // `HTTPS=false` is refused for all others.
            security.permitsPlaintextToLoopback = true
            credentials =
                password.beforeSending.map { .password(user: name, password.secret, beforeSending: $0) }
                ?? .password(user: name, password.secret)
        }
        return ServerSession(
            platform.server, security, credentials, through: proxy, timeBudget: budget, transport: transport)
    }
}

extension HTTPResponse {
    /// The answer's verdict on the password, other than a rejection; `nil` for none: it may be that of a gateway in the
    /// server's place.
    fileprivate var verdict: SentPassword.Verdict? {
        if (200..<300).contains(status) { return .accepted }
        let saysNothing = [401, 407, 408, 429].contains(status) || status >= 500
        return !saysNothing && ConnectionEntry.isError(self) ? .errorOfServer : nil
    }

    /// Whether a proxy in front of the server refuses the certificate with 400, as nginx does: it has done the handshake
    /// by then.
    fileprivate var isRefusalOfCertificate: Bool {
        guard status == 400, body.count < 4096 else { return false }
        let page = String(decoding: body, as: UTF8.self)
        return page.contains("No required SSL certificate was sent") || page.contains("The SSL certificate error")
    }
}
