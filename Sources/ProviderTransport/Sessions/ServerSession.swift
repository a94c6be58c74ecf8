public import CertificateProviding
import FoundationEssentials
import NIOCore

/// A session with one server: connects when needed, authenticates to the server, follows redirections on the same
/// origin, and retries requests if that is harmless, within the time budget of the run.
///
/// Connecting is tried up to three times, since nothing was sent yet. A request that was sent is repeated, up to three
/// times in all, only if it is marked as repeatable: a server that got a certificate request and failed to answer may
/// have issued.
///
/// Send one request at a time. The connection is closed when the last copy of the session is released.
public struct ServerSession: Sendable {
    let session: AuthenticatingSession
    /// For all requests of the run, including retries.
    private let timeBudget: TimeBudget
    private let retryPolicy: RetryPolicy
    private let now: @Sendable () -> Date

    /// The maximum size of a response's body, in bytes, unless the request has another one (``HTTPRequest/maximumResponse``).
    /// Certificates have some kilobytes.
    public static let maximumBody = 1 << 20

    /// Creates a session. Nothing is sent yet.
    ///
    /// - Parameters:
    ///   - server: The server. Requests name the path.
    ///   - security: How to authenticate the server, and the certificate to present to it.
    ///   - credentials: How to authenticate to the server, in addition to the certificate.
    ///   - proxy: The proxy to connect through; `nil` for a direct connection.
    ///   - timeBudget: The time for all requests of the run.
    ///   - transport: The network, and the delays between attempts.
    public init(
        _ server: ServerURL, _ security: ServerSecurity, _ credentials: ServerCredentials = .none,
        through proxy: HTTPProxy? = nil, timeBudget: TimeBudget, transport: Transport = Transport()
    ) {
        session = AuthenticatingSession(server, security, credentials, through: proxy, over: transport.network)
        self.timeBudget = timeBudget
        retryPolicy = transport.retryPolicy
        now = security.now
    }

    /// Returns a session over the same connection, with a time budget of its own.
    public func with(timeBudget: TimeBudget) -> ServerSession {
        ServerSession(session: session, timeBudget: timeBudget, retryPolicy: retryPolicy, now: now)
    }

    private init(
        session: AuthenticatingSession, timeBudget: TimeBudget, retryPolicy: RetryPolicy,
        now: @escaping @Sendable () -> Date
    ) {
        (self.session, self.timeBudget, self.retryPolicy, self.now) = (session, timeBudget, retryPolicy, now)
    }

    private var settingNames: ServerSettingNames { session.security.settingNames }

    /// The server that the session was created for.
    public var server: ServerURL { session.server }

    /// Whether the server's last response has refused credentials that were sent: the password, or the token.
    public var hasRefusedCredentials: Bool { get async { await session.hasRefusedCredentials } }

    /// Whether the server has asked for the password and got an answer that was made with it. If not, a request that
    /// succeeds says nothing about the password.
    public var hasSentPassword: Bool { get async { await session.hasSentPassword } }

    /// Connects, and verifies the server.
    ///
    /// - Throws: `unavailable` if the server cannot be reached, `timedOut` if the time budget is spent, `serverNotTrusted`,
    ///   `protocolError` if it does not speak TLS, `rejected` if it refuses the client certificate, `userCancelled`. If a
    ///   proxy refuses: `rejected`, `unavailable` or `configurationInvalid`.
    public func connect() async throws(ProviderError) {
        try await timeBudget.spend(settingNames) { end throws(ProviderError) in try await connect(until: end)
        }
    }

    /// Sends a request, and returns the response of any status, except redirections that were followed and challenges
    /// that were answered.
    ///
    /// - Parameters:
    ///   - request: The request. Its path is on the session's server.
    ///   - bind: Makes the body for the connection that the request is sent over, so that it can contain the channel
    ///     binding. Called again each time the request is repeated. Without it, the request's own body is sent.
    /// - Throws: `configurationInvalid` for credentials and a server without TLS, and for a redirection to another origin,
    ///   to which nothing is sent; `timedOut` if the time budget is spent; `userCancelled`; the errors of the connection.
    public func response(
        to request: HTTPRequest,
        body bind: (@Sendable (ServerConnection) async throws(ProviderError) -> [UInt8])? = nil
    ) async throws(ProviderError) -> HTTPResponse {
        guard session.isConfidential || session.credentials.isNone else {
            throw ProviderError(
                .configurationInvalid,
                "Credentials are sent only over TLS, and \(server.authority) is an http: server; set an https: URL. "
                    + "Nothing was sent.")
        }
        // An optional request must leave time for the requests after it.
        return try await timeBudget.spend(oneOf: request.isOptional ? 4 : 1, settingNames) {
            end throws(ProviderError) in
            try await response(to: request, until: end, body: bind)
        }
    }

    private func response(
        to request: HTTPRequest, until end: ContinuousClock.Instant,
        body bind: (@Sendable (ServerConnection) async throws(ProviderError) -> [UInt8])?
    ) async throws(ProviderError) -> HTTPResponse {
        guard request.isRepeatable else {
            try await connect(until: end)
            try await session.authenticate(before: deadline(end))
            return try await session.response(to: request, before: deadline(end), body: bind)
        }
        // Not with each repetition: secrets are sent for it.
        try await session.authenticate(before: deadline(end))
        return try await repeating(until: end) { deadline throws(ProviderError) in
            try await session.response(to: request, before: deadline, body: bind)
        } isTemporary: { response in
            response.isTemporaryFailure ? .temporary(retryAfter: response.retryAfter(now: now())) : .final
        }
    }

    private func connect(until end: ContinuousClock.Instant) async throws(ProviderError) {
        try await repeating(until: end) { deadline throws(ProviderError) in
            try await session.connect(before: deadline)
        } isTemporary: { _ in
            .final
        }
    }

    private enum Verdict {
        case final
        case temporary(retryAfter: Duration?)
    }

    private func repeating<Answer>(
        until end: ContinuousClock.Instant,
        _ ask: (NIODeadline) async throws(ProviderError) -> Answer, isTemporary judge: (Answer) -> Verdict
    ) async throws(ProviderError) -> Answer {
        var attempt = 1
        while true {
            let outcome: Result<Answer, ProviderError>
            let verdict: Verdict
            do throws(ProviderError) {
                let answer = try await ask(deadline(end))
                (outcome, verdict) = (.success(answer), judge(answer))
            } catch {
                (outcome, verdict) = (
                    .failure(error), error.code == .unavailable ? .temporary(retryAfter: nil) : .final
                )
            }
            guard case .temporary(let told) = verdict, attempt < RetryPolicy.maximumAttempts, await session.mayRepeat
            else {
                return try outcome.get()
            }
            let delay = told.map(retryPolicy.delay(afterBeingTold:)) ?? retryPolicy.delay(after: attempt)
            // A server that is to be asked later than that is not asked sooner either.
            guard retryPolicy.now() + delay < end else { return try outcome.get() }
            do { try await retryPolicy.sleep(delay) } catch {
                throw ProviderError(.userCancelled, "The request to \(server.authority) was cancelled.")
            }
            attempt += 1
        }
    }

    private func deadline(_ end: ContinuousClock.Instant) -> NIODeadline {
        .now() + TimeAmount(retryPolicy.now().duration(to: end))
    }
}

extension HTTPResponse {
    /// Whether a retry may succeed soon.
    fileprivate var isTemporaryFailure: Bool { [408, 429, 500, 502, 503, 504].contains(status) }
}
