import CertificateProviding
import FoundationEssentials
import NIOCore
import ServerTransport

/// A session with one server that retries requests if that is harmless, within the time budget of the run.
///
/// Connecting is retried, since nothing was sent yet. A request that was sent is retried only if it is marked as
/// repeatable: a server that got a certificate request and failed to answer may have issued.
struct RetryingSession: Sendable {
    let session: AuthenticatingSession
    /// For all requests of the run, including retries.
    let timeBudget: TimeBudget
    let retryPolicy: RetryPolicy
    let now: @Sendable () -> Date

    var server: ServerURL { session.server }

    /// Connects, and verifies the server.
    ///
    /// - Throws: As ``ServerConnection/open(_:_:through:deadline:)``.
    func connect() async throws(CertificateProviderError) {
        try await timeBudget.spend { end throws(CertificateProviderError) in try await connect(until: end) }
    }

    /// Sends a request, as ``AuthenticatingSession/response(to:before:body:)`` does.
    func response(
        to request: HTTPRequest,
        body bind: (@Sendable (ServerConnection) async throws(CertificateProviderError) -> [UInt8])? = nil
    ) async throws(CertificateProviderError) -> HTTPResponse {
        // An optional request must leave time for the requests after it.
        try await timeBudget.spend(oneOf: request.isOptional ? 4 : 1) { end throws(CertificateProviderError) in
            try await response(to: request, until: end, body: bind)
        }
    }

    private func response(
        to request: HTTPRequest, until end: ContinuousClock.Instant,
        body bind: (@Sendable (ServerConnection) async throws(CertificateProviderError) -> [UInt8])?
    ) async throws(CertificateProviderError) -> HTTPResponse {
        guard request.isRepeatable else {
            try await connect(until: end)
            try await session.authenticate(before: deadline(end))
            return try await session.response(to: request, before: deadline(end), body: bind)
        }
        // Not with each repetition: secrets are sent for it.
        try await session.authenticate(before: deadline(end))
        return try await repeating(until: end) { deadline throws(CertificateProviderError) in
            try await session.response(to: request, before: deadline, body: bind)
        } isTemporary: { response in
            response.isTemporaryFailure ? .temporary(retryAfter: response.retryAfter(now: now())) : .final
        }
    }

    private func connect(until end: ContinuousClock.Instant) async throws(CertificateProviderError) {
        try await repeating(until: end) { deadline throws(CertificateProviderError) in
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
        _ ask: (NIODeadline) async throws(CertificateProviderError) -> Answer, isTemporary judge: (Answer) -> Verdict
    ) async throws(CertificateProviderError) -> Answer {
        var attempt = 1
        while true {
            let outcome: Result<Answer, CertificateProviderError>
            let verdict: Verdict
            do throws(CertificateProviderError) {
                let answer = try await ask(deadline(end))
                (outcome, verdict) = (.success(answer), judge(answer))
            } catch {
                (outcome, verdict) = (
                    .failure(error), error.code == .unavailable ? .temporary(retryAfter: nil) : .final
                )
            }
            guard case .temporary(let told) = verdict, attempt < RetryPolicy.maximumAttempts else {
                return try outcome.get()
            }
            let delay = told.map(retryPolicy.delay(afterBeingTold:)) ?? retryPolicy.delay(after: attempt)
            // A server that is to be asked later than that is not asked sooner either.
            guard retryPolicy.now() + delay < end else { return try outcome.get() }
            do { try await retryPolicy.sleep(delay) } catch {
                throw CertificateProviderError(.userCancelled, "The request to \(server.authority) was cancelled.")
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
