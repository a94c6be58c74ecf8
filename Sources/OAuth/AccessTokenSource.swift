public import CertificateProviding
import NIOCore
import ServerTransport

/// The access tokens of one client: gets one, keeps it in memory, and gets the next before it ends (RFC 6749).
///
/// Callers that come at the same time share one request. Nothing is repeated by itself.
public actor AccessTokenSource {
    private struct Kept {
        let token: AccessToken
        let expiry: ContinuousClock.Instant
        /// When to get the next one: while a tenth of the lifetime is left, so that no request goes out with a token
        /// that ends on its way.
        var renewal: ContinuousClock.Instant
    }

    private let endpoint: TokenEndpoint
    private let client: OAuthClient
    private let grant: OAuthGrant
    private let scope: String
    private let now: @Sendable () -> ContinuousClock.Instant
    private var kept: Kept?
    private var refreshToken: SecretBytes?
    private typealias Outcome = Result<AccessToken, CertificateProviderError>
    /// Those who wait for the request that is under way; `nil` while there is none.
    private var waiting: [UInt64: CheckedContinuation<Outcome, Never>]?
    private var callers: UInt64 = 0
    private var count: UInt64 = 0
    /// When a token was last asked for since a server had refused one.
    private var lastReplacement: ContinuousClock.Instant?
    /// What the server has said to the password.
    private var passwordRefusal: CertificateProviderError?

    /// How soon a token that has replaced a refused one may be replaced in turn.
    private static let replacementPause = Duration.seconds(60)

    /// - Parameters:
    ///   - scopes: What the tokens are to be good for; none for what the server thinks right.
    ///   - now: A clock that goes on while the host is suspended, as tokens do.
    /// - Throws: `configurationInvalid` for a scope that is none (RFC 6749, section 3.3), and for a client without a
    ///   secret that has no other grant.
    public init(
        _ endpoint: TokenEndpoint, client: OAuthClient, grant: OAuthGrant = .clientCredentials, scopes: [String] = [],
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) throws(CertificateProviderError) {
        guard client.secret != nil || grant.password != nil else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The OAuth client '\(client.id.withVisibleControls)' has no secret, which the client-credentials grant needs."
            )
        }
        for scope in scopes where !Self.isScope(scope) {
            throw CertificateProviderError(
                .configurationInvalid,
                "'\(scope.withVisibleControls)' is no scope: that is one word of ASCII without quotation marks and backslashes."
            )
        }
        self.endpoint = endpoint
        self.client = client
        self.grant = grant
        self.scope = scopes.joined(separator: " ")
        self.now = now
    }

    /// Whether a text is one scope (RFC 6749, section 3.3).
    package static func isScope(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c }
    }

    /// Returns a token that is good for a while: the one at hand, or where less than a tenth of its lifetime remains, a
    /// new one. Where that cannot be had, the old one serves to its end. Suspends for at most the endpoint's timeout,
    /// and not beyond the end of the caller's task: the request goes on, since others may wait for it.
    ///
    /// - Throws: `rejected` where the server refuses the client, the password or the grant, `configurationInvalid` for
    ///   a scope it does not have, all with an ``OAuthRefusal`` as the underlying error; `unavailable`, `timedOut`,
    ///   `protocolError` as with any server; `userCancelled` where the task is cancelled. None holds a secret.
    public func token() async throws(CertificateProviderError) -> AccessToken { try await token(within: nil) }

    /// As ``token()``, for a caller that may time out before the request does.
    package func token(within timeout: Duration?) async throws(CertificateProviderError) -> AccessToken {
        if let kept, now() < kept.renewal { return kept.token }
        do throws(CertificateProviderError) { return try await newToken(within: timeout) } catch {
            guard error.code != .userCancelled, var kept, now() < kept.expiry else { throw error }
            // Not with each call: the server has trouble enough.
            kept.renewal = now() + (kept.expiry - now()) / 4
            self.kept = kept
            return kept.token
        }
    }

    /// Returns another token than one of this source that a server has refused: with the status 401 and
    /// `error="invalid_token"` (RFC 6750, section 3.1). To be called once a request: send the request again, and take
    /// what comes back.
    ///
    /// - Throws: `rejected` where that token itself has replaced a refused one less than a minute ago: the server wants
    ///   none of these. Otherwise as ``token()``.
    public func token(insteadOf refused: AccessToken) async throws(CertificateProviderError) -> AccessToken {
        try await token(insteadOf: refused, within: nil)
    }

    /// As ``token(insteadOf:)``, for a caller that may time out before the request does.
    package func token(
        insteadOf refused: AccessToken, within timeout: Duration?
    ) async throws(CertificateProviderError) -> AccessToken {
        // Another caller was sooner.
        guard let kept, kept.token.number == refused.number else { return try await token(within: timeout) }
        guard waiting == nil else { return try await newToken(within: timeout) }
        if let lastReplacement, now() < lastReplacement + Self.replacementPause {
            throw CertificateProviderError(
                .rejected,
                "A token that \(endpoint.server.authority) has just issued is refused where it is used; check its scope and "
                    + "audience.")
        }
        lastReplacement = now()
        self.kept = nil
        return try await newToken(within: timeout)
    }

    /// Waits for the request that is under way, or for a new one.
    private func newToken(within timeout: Duration?) async throws(CertificateProviderError) -> AccessToken {
        callers += 1
        let caller = callers
        let authority = endpoint.server.authority
        let timer = timeout.map { timeout in
            Task {
                try await Task.sleep(for: timeout)
                giveUp(
                    caller,
                    CertificateProviderError(
                        .timedOut,
                        "\(authority) did not issue a token in time; see whether it is overloaded, or allow more with "
                            + "'timeout'."))
            }
        }
        defer { timer?.cancel() }
        let cancelled = CertificateProviderError(.userCancelled, "The request to \(authority) was cancelled.")
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

    private func giveUp(_ caller: UInt64, _ error: CertificateProviderError) {
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
        do throws(CertificateProviderError) {
            let response = try await request()
            count += 1
            let token = AccessToken(value: response.token, scopes: response.scopes, number: count)
            kept = Kept(
                token: token, expiry: start + response.lifetime, renewal: start + response.lifetime * 9 / 10)
            // Where there is no new one, the old one stays good (section 6).
            refreshToken = response.refreshToken ?? refreshToken
            return .success(token)
        } catch {
            return .failure(error)
        }
    }

    /// By the refresh token, where there is one that is good still; else by the grant.
    private func request() async throws(CertificateProviderError) -> TokenResponse {
        var timeout = endpoint.timeout
        // While there is one that is good, that one is to be returned before it is over.
        if let kept, now() < kept.expiry { timeout = min(timeout, (kept.expiry - now()) / 2) }
        let deadline = NIODeadline.now() + TimeAmount(timeout)
        if let refreshToken {
            var request = TokenRequest(endpoint: endpoint, client: client, secrets: [refreshToken])
            request.form.append("grant_type", "refresh_token")
            request.form.append("refresh_token", refreshToken)
            do throws(CertificateProviderError) { return try await request.send(before: deadline) } catch {
                // Whatever it calls that: servers have many words for a refresh token that is old. Of the client itself
                // it would say the same again.
                guard [.rejected, .configurationInvalid].contains(error.code),
                    (error.underlying as? OAuthRefusal)?.error != "invalid_client"
                else { throw error }
                self.refreshToken = nil
            }
        }
        if let passwordRefusal { throw passwordRefusal }
        var request = TokenRequest(
            endpoint: endpoint, client: client, secrets: grant.password.map { [$0] } ?? [])
        grant.write(to: &request.form)
        if !scope.isEmpty { request.form.append("scope", scope) }
        do throws(CertificateProviderError) { return try await request.send(before: deadline) } catch {
            // Servers lock accounts.
            if grant.password != nil, (error.underlying as? OAuthRefusal)?.error == "invalid_grant" {
                passwordRefusal = error
            }
            throw error
        }
    }
}
