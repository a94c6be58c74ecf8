public import CertificateProviding
import NIOCore
public import ProviderTransport

/// A source of access tokens for one client (RFC 6749). It holds the current token in memory and replaces it before it
/// expires.
///
/// Concurrent callers share one request. Failed requests are not retried automatically.
public actor AccessTokenSource {
    private struct Kept {
        let token: AccessToken
        let expiry: ContinuousClock.Instant
        /// When to get the next token: when a tenth of the lifetime is left, so that no token expires while a request
        /// is on its way.
        var renewal: ContinuousClock.Instant
    }

    private let endpoint: TokenEndpoint
    private let client: OAuthClient
    private let grant: OAuthGrant
    private let scope: String
    private let now: @Sendable () -> ContinuousClock.Instant
    private var kept: Kept?
    private var refreshToken: SecretBytes?
    private typealias Outcome = Result<AccessToken, ProviderError>
    /// The callers that wait for the current request; `nil` if there is no request.
    private var waiting: [UInt64: CheckedContinuation<Outcome, Never>]?
    private var callers: UInt64 = 0
    private var count: UInt64 = 0
    /// When a token was last requested because a server had refused one.
    private var lastReplacement: ContinuousClock.Instant?
    /// The server's refusal of the password, the code or the refresh token of the grant, which is then not sent again.
    private var passwordRefusal: ProviderError?
    /// Whether the grant is a code, and was sent.
    private var isCodeSpent = false
    /// As ``passwordRefusal``, of the client's secret.
    private var clientRefusal: ProviderError?

    /// The minimum time between two replacements of refused tokens.
    private static let replacementPause = Duration.seconds(60)

    /// Creates a source. Requests no token yet.
    ///
    /// - Parameters:
    ///   - scopes: The scopes to request; empty for the server's default.
    ///   - now: A clock that also runs while the host is suspended, since tokens expire then, too.
    /// - Throws: `configurationInvalid` for an invalid scope (RFC 6749, section 3.3), and for a client that has
    ///   neither a secret nor a password grant.
    public init(
        _ endpoint: TokenEndpoint, client: OAuthClient, grant: OAuthGrant = .clientCredentials, scopes: [String] = [],
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) throws(ProviderError) {
        guard client.secret != nil || !grant.secrets.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "The OAuth client '\(client.id.withVisibleControls)' has no secret, which the client-credentials "
                    + "grant needs; give it one.")
        }
        self.endpoint = endpoint
        self.client = client
        self.grant = grant
        self.scope = try Self.scope(scopes)
        self.now = now
        if case .refreshToken(let token) = grant.kind { refreshToken = token }
    }

    /// Returns the parameter `scope`; empty for no scopes.
    static func scope(_ scopes: [String]) throws(ProviderError) -> String {
        for scope in scopes where !isScope(scope) {
            throw ProviderError(
                .configurationInvalid,
                "'\(scope.withVisibleControls)' is not a valid OAuth scope: expected one word of printable ASCII "
                    + "without quotation marks and backslashes.")
        }
        return scopes.joined(separator: " ")
    }

    /// Whether a text is one scope (RFC 6749, section 3.3).
    public static func isScope(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c }
    }

    /// Returns a valid token: the current one, or a new one if less than a tenth of the lifetime remains. If no new one
    /// can be obtained, the current one is returned until it expires.
    ///
    /// Suspends for at most the endpoint's timeout. If the calling task is cancelled, it throws at once; the request
    /// goes on, since other callers may wait for it. A password or client secret that the server has refused is not sent
    /// again by this source.
    ///
    /// - Throws: `rejected` if the server refuses the client, the password or the grant, with the reason `rejectedClient` or
    ///   `rejectedGrant` where it says which, and `rejectedPassword` for another 401; `configurationInvalid` for a scope that it
    ///   refuses; `rejected` for a code that was sent before; `unavailable`, `timedOut` and `protocolError` as with any server;
    ///   `userCancelled` if the task is cancelled. No error contains a secret.
    public func token() async throws(ProviderError) -> AccessToken { try await token(within: nil) }

    /// As ``token()``, with a timeout of this caller, which may be shorter than that of the request.
    func token(within timeout: Duration?) async throws(ProviderError) -> AccessToken {
        if let kept, now() < kept.renewal { return kept.token }
        do throws(ProviderError) { return try await newToken(within: timeout) } catch {
            guard error.code != .userCancelled, var kept, now() < kept.expiry else { throw error }
            // Not with each call: the server has trouble enough.
            kept.renewal = now() + (kept.expiry - now()) / 4
            self.kept = kept
            return kept.token
        }
    }

    /// Returns a replacement for a token of this source that a server has refused with the status 401 and
    /// `error="invalid_token"` (RFC 6750, section 3.1). Call it once per request: send the request again with the new
    /// token, and accept the second answer.
    ///
    /// - Throws: `rejected` if the last replacement of a refused token was less than a minute ago: the server refuses
    ///   new tokens as well. Otherwise as ``token()``.
    public func token(insteadOf refused: AccessToken) async throws(ProviderError) -> AccessToken {
        try await token(insteadOf: refused, within: nil)
    }

    /// As ``token(insteadOf:)``, with a timeout of this caller, which may be shorter than that of the request.
    func token(
        insteadOf refused: AccessToken, within timeout: Duration?
    ) async throws(ProviderError) -> AccessToken {
        // Another caller was sooner.
        guard let kept, kept.token.number == refused.number else { return try await token(within: timeout) }
        guard waiting == nil else { return try await newToken(within: timeout) }
        if let lastReplacement, now() < lastReplacement + Self.replacementPause {
            throw ProviderError(
                .rejected,
                "A token that \(endpoint.server.authority) has just issued is refused by the server that it is for; "
                    + "check its scope and audience.")
        }
        lastReplacement = now()
        self.kept = nil
        return try await newToken(within: timeout)
    }

    /// Waits for the current request, or starts one.
    private func newToken(within timeout: Duration?) async throws(ProviderError) -> AccessToken {
        callers += 1
        let caller = callers
        let authority = endpoint.server.authority
        let timer = timeout.map { timeout in
            Task {
                try await Task.sleep(for: timeout)
                giveUp(
                    caller,
                    ProviderError(
                        .timedOut,
                        "\(authority) did not issue a token in time; check whether it is overloaded, or increase "
                            + "'timeout'."))
            }
        }
        defer { timer?.cancel() }
        let cancelled = ProviderError(.userCancelled, "The request to \(authority) was cancelled.")
        return try await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Outcome, Never>) in
                guard !Task.isCancelled else { return continuation.resume(returning: .failure(cancelled)) }
                if waiting == nil {
                    waiting = [:]
                    Task { await obtain() }
                }
                waiting?[caller] = continuation
            }
        } onCancel: {
            Task { await giveUp(caller, cancelled) }
        }.get()
    }

    private func giveUp(_ caller: UInt64, _ error: ProviderError) {
        waiting?.removeValue(forKey: caller)?.resume(returning: .failure(error))
    }

    private func obtain() async {
        let outcome = await newOutcome()
        let waiting = waiting ?? [:]
        self.waiting = nil
        for continuation in waiting.values { continuation.resume(returning: outcome) }
    }

    private func newOutcome() async -> Outcome {
        // A lifetime begins before the answer is here.
        let start = now()
        do throws(ProviderError) {
            let response = try await request()
            count += 1
            // Without a new one, the old one stays good (section 6).
            refreshToken = response.refreshToken ?? refreshToken
            let token = AccessToken(
                value: response.token, scopes: response.scopes, idToken: response.idToken,
                expiresIn: response.expiresIn, refreshToken: refreshToken, number: count)
            kept = Kept(
                token: token, expiry: start + response.lifetime, renewal: start + response.lifetime * 9 / 10)
            return .success(token)
        } catch {
            return .failure(error)
        }
    }

    /// Requests a token with the refresh token, if there is one; otherwise, or if the server refuses it, with the
    /// grant.
    private func request() async throws(ProviderError) -> TokenResponse {
        var timeout = endpoint.timeout
        // While the current token is valid, it must be returned before it expires.
        if let kept, now() < kept.expiry { timeout = min(timeout, (kept.expiry - now()) / 2) }
        let deadline = NIODeadline.now() + TimeAmount(timeout)
        if let clientRefusal { throw clientRefusal }
        if let refreshToken {
            let request = TokenRequest(endpoint, client, .refreshToken(refreshToken))
            do throws(ProviderError) { return try await request.send(before: deadline) } catch {
                // Any of these codes: servers have many names for an expired refresh token. A refusal of the client
                // itself would only be repeated.
                guard [.rejected, .configurationInvalid].contains(error.code), !mayRefuseClient(error) else {
                    throw remembered(error)
                }
                self.refreshToken = nil
                if case .refreshToken = grant.kind {
                    var refusal = error
                    refusal.reason = .rejectedGrant
                    passwordRefusal = refusal
                }
            }
        }
        if let passwordRefusal { throw passwordRefusal }
        guard !isCodeSpent else {
            throw ProviderError(
                .rejected,
                "The authorisation code was sent to \(endpoint.server.authority) before, and is good once; ask the user "
                    + "to authorise again.")
        }
        isCodeSpent = grant.isCode
        var request = TokenRequest(endpoint, client, grant)
        // With a code, the scope is that of its request (section 4.1.3).
        if !scope.isEmpty, !grant.isCode { request.form.append("scope", scope) }
        do throws(ProviderError) { return try await request.send(before: deadline) } catch {
            if !grant.secrets.isEmpty, error.mayRefusePassword { passwordRefusal = error }
            throw remembered(error)
        }
    }

    /// Notes a refusal of the client, so that its secret is not sent again.
    private func remembered(_ error: ProviderError) -> ProviderError {
        if client.secret != nil, mayRefuseClient(error) { clientRefusal = error }
        return error
    }

    /// Whether the token endpoint refuses the client, or says 401 to a client with a secret, and not that it means the refresh
    /// token.
    private func mayRefuseClient(_ error: ProviderError) -> Bool {
        error.reason == .rejectedClient
            || client.secret != nil && [.rejectedPassword, .rejectedProxyPassword].contains(error.reason)
    }
}

extension ProviderError {
    /// Whether the token endpoint refuses the user's password, or says 401 and not that it means the client.
    fileprivate var mayRefusePassword: Bool { [.rejectedGrant, .rejectedPassword].contains(reason) }
}

extension AccessTokenSource: BearerTokenSource {
    /// As ``token()``, with a timeout of this caller, which may be shorter than that of the request.
    ///
    /// - Throws: As ``token()``; `timedOut` if this caller's timeout is over. The request goes on for other callers.
    public func token(within timeout: Duration) async throws(ProviderError) -> SecretBytes {
        let token: AccessToken = try await token(within: timeout as Duration?)
        return token.value
    }

    /// As ``token(insteadOf:)``, with a timeout of this caller, which may be shorter than that of the request.
    ///
    /// - Throws: As ``token(insteadOf:)``; `timedOut` if this caller's timeout is over.
    public func token(
        insteadOf refused: SecretBytes, within timeout: Duration
    ) async throws(ProviderError) -> SecretBytes {
        // Another caller was sooner, unless it is still the current one.
        guard let kept, kept.token.value == refused else { return try await token(within: timeout) }
        return try await token(insteadOf: kept.token, within: timeout).value
    }
}
