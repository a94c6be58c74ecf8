import CertificateProviding
import CertificateTLS
import Crypto
import Enrolment
import FoundationEssentials
import Logging
import NIOHTTP1
import ProviderTransport
import SwiftASN1
import Synchronization
import X509

/// The requests of one run to an ACME server, with nonces and signatures (RFC 8555, section 6).
final class ACMEClient: Sendable {
    let settings: ACMESettings
    let environment: ProviderEnvironment
    private let security: ServerSecurity
    private let proxies: ProxyChoice
    private let timeBudget: TimeBudget
    private let timeout: Duration

    private struct State {
        /// By origin: a directory may name other hosts of the CA.
        var sessions: [String: ServerSession] = [:]
        var nonces: [String] = []
        var directory: ACMEDirectory?
        /// The pauses of this run before requests that are sent again.
        var paused = Duration.zero
    }
    private let state = Mutex(State())

    /// A request is sent so often without a pause.
    private static let noncesAtOnce = 4
    private static let maximumRefusedNonces = 28
    private static let maximumAttempts = 3
    static let timeForRenewalInformation = Duration.seconds(15)

    var serverName: String { settings.directory.authority }
    var retryPolicy: RetryPolicy { environment.transport.retryPolicy }

    /// Reads the files of trust anchors and pins, and asks for a proxy's password. Sends nothing.
    init(
        _ settings: ACMESettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction,
        timeout: Duration? = nil
    ) async throws(ProviderError) {
        (self.settings, self.environment) = (settings, environment)
        proxies = try await settings.proxy.choice(environment, interaction)
        let trust = try await environment.executor.run { () throws(ProviderError) in
            try settings.serverTrust()
        }
        var security = ServerSecurity(trust: trust, now: environment.now, executor: environment.executor)
        security.settingNames = ServerSettingNames(address: "'directory'", path: "'directory'")
        self.security = security
        let limit = timeout ?? settings.plan.timeout
        self.timeout = limit
        timeBudget = TimeBudget(limit, environment.transport.retryPolicy)
    }

    /// A password that the proxy has rejected is not sent again by itself.
    func noteOutcome(_ error: ProviderError?) async {
        await settings.proxy.noteOutcome(error, through: proxies, environment)
    }

    /// Returns the directory. It is asked for once in a run.
    func directory() async throws(ProviderError) -> ACMEDirectory {
        if let known = state.withLock(\.directory) { return known }
        let response = try await send(HTTPRequest(target: "", isRepeatable: true), to: url(of: settings.directory))
        guard response.status == 200 else {
            throw response.refusal(
                of: "the request for its directory", by: settings.directory, advice: "check 'directory'",
                now: environment.now())
        }
        let directory = try response.json(ACMEDirectory.self, from: settings.directory)
        state.withLock { $0.directory = directory }
        return directory
    }

    // MARK: - Requests

    private func url(of server: ServerURL) -> String { server.origin + server.target }

    /// Sends a request to a URL that the server has named.
    private func send(_ request: HTTPRequest, to text: String) async throws(ProviderError) -> HTTPResponse {
        // The configuration's demands on the directory hold for the rest.
        guard let url = ServerURL(text), url.isSecure || !settings.directory.isSecure && url.isLoopback else {
            throw ProviderError(
                .protocolError,
                "\(serverName) names the address '\(DisplayText.visible(String(text.prefix(200))))', which is not a valid "
                    + "https: URL; look for the reason in the server's configuration.")
        }
        let session = try session(for: url)
        var request = request
        request.target = url.target
        let response = try await session.response(to: request)
        if let nonce = response.headers.first(name: "Replay-Nonce"), nonce.isBase64URL {
            state.withLock { $0.nonces = ($0.nonces + [nonce]).suffix(4) }
        }
        return response
    }

    private func session(for url: ServerURL) throws(ProviderError) -> ServerSession {
        let origin = url.origin.lowercased()
        if let known = state.withLock({ $0.sessions[origin] }) { return known }
        let new = ServerSession(
            url, security, through: try proxies.proxy(for: url), timeBudget: timeBudget,
            transport: environment.transport)
        state.withLock { $0.sessions[origin] = new }
        return new
    }

    private func nonce() async throws(ProviderError) -> String {
        if let nonce = state.withLock({ $0.nonces.popLast() }) { return nonce }
        let response = try await send(HTTPRequest(target: "", isRepeatable: true), to: try await directory().newNonce)
        if let nonce = state.withLock({ $0.nonces.popLast() }) { return nonce }
        guard (200...299).contains(response.status) else {
            throw response.refusal(of: "the request for a nonce", by: settings.directory, now: environment.now())
        }
        throw ProviderError(
            .protocolError, "\(serverName) answers the request for a nonce without one; check 'directory'.")
    }

    /// Sends a signed request, and returns the response of any status. One that says `badNonce` was not processed: the request is
    /// repeated with another nonce, at once and up to three times, and then after a pause.
    ///
    /// - Parameters:
    ///   - payload: JSON; empty to read.
    ///   - isRepeatable: Whether it may be sent again after it was lost, or after a temporary failure of the server.
    ///   - isOptional: Whether the caller can do without the response.
    func post(
        _ payload: [UInt8] = [], to url: String, by signer: RequestSigner, accepting type: String? = nil,
        isRepeatable: Bool = false, isOptional: Bool = false
    ) async throws(ProviderError) -> HTTPResponse {
        var (refusedNonces, attempt) = (0, 1)
        while true {
            let body = try await signer.body(payload, to: url, nonce: try await nonce())
            var headers: HTTPHeaders = ["Content-Type": "application/jose+json"]
            if let type { headers.add(name: "Accept", value: type) }
            let request = HTTPRequest(
                method: .post, target: "", headers: headers, body: body, isOptional: isOptional)
            let outcome: Result<HTTPResponse, ProviderError>
            let pause: Duration
            do throws(ProviderError) {
                let response = try await send(request, to: url)
                outcome = .success(response)
                if [400, 401].contains(response.status), response.problem?.kind == "badNonce" {
                    refusedNonces += 1
                    guard refusedNonces < Self.maximumRefusedNonces else { return response }
                    if !refusedNonces.isMultiple(of: Self.noncesAtOnce) { continue }
                    pause = .seconds(1 << min(refusedNonces / Self.noncesAtOnce - 1, 3))
                } else {
                    guard isRepeatable, attempt < Self.maximumAttempts,
                        [408, 500, 502, 503, 504].contains(response.status)
                    else { return response }
                    let told = retryAfter(response)
                    pause = retryPolicy.delay(beforePoll: attempt, retryAfter: told)
                    attempt += 1
                }
            } catch {
                guard isRepeatable, attempt < Self.maximumAttempts, error.code == .unavailable else { throw error }
                outcome = .failure(error)
                pause = retryPolicy.delay(beforePoll: attempt, retryAfter: nil)
                attempt += 1
            }
            guard try await wait(pause) else { return try outcome.get() }
        }
    }

    /// Waits, within the time of the run: a port that is open for a challenge must not stay so for a day.
    ///
    /// - Returns: Whether there is time. A server that is to be asked later is not asked sooner either.
    private func wait(_ pause: Duration) async throws(ProviderError) -> Bool {
        let isInTime = state.withLock { state in
            guard state.paused + pause < timeout else { return false }
            state.paused += pause
            return true
        }
        guard isInTime else { return false }
        do { try await retryPolicy.sleep(pause) } catch {
            throw ProviderError(.userCancelled, "The request to \(serverName) was cancelled.")
        }
        return true
    }

    /// Reads an object by a signed request (section 6.3).
    ///
    /// - Returns: The object, and the delay that the server asks for.
    func read<Object: Decodable>(
        _ type: Object.Type, from url: String, by signer: RequestSigner, _ purpose: String
    ) async throws(ProviderError) -> (Object, retryAfter: Duration?) {
        let response = try await post(to: url, by: signer, isRepeatable: true)
        guard response.status == 200 else { throw refusal(response, of: purpose) }
        return (try response.json(type, from: settings.directory), retryAfter(response))
    }

    func retryAfter(_ response: HTTPResponse) -> Duration? { response.retryAfter(now: environment.now()) }

    func refusal(_ response: HTTPResponse, of purpose: String, advice: String? = nil) -> ProviderError {
        response.refusal(of: purpose, by: settings.directory, advice: advice, now: environment.now())
    }

    // MARK: - Renewal information

    /// Asks when to renew a certificate (RFC 9773, section 4.1).
    ///
    /// - Returns: `nil` from a server that does not say.
    func renewalInformation(
        on certificate: X509Certificate
    ) async throws(ProviderError) -> RenewalInformation? {
        guard let base = try await directory().renewalInfo, let id = Self.renewalID(of: certificate) else { return nil }
        let response = try await send(
            HTTPRequest(target: "", isRepeatable: true, isOptional: true),
            to: (base.hasSuffix("/") ? base : base + "/") + id)
        guard response.status == 200 else {
            throw refusal(response, of: "the request for renewal information")
        }
        let information = try response.json(ACMERenewalInfo.self, from: settings.directory)
        guard let start = Self.date(information.suggestedWindow.start),
            let end = Self.date(information.suggestedWindow.end), start < end
        else {
            throw ProviderError(
                .protocolError, "\(serverName) names no valid window for the renewal; it is not used.")
        }
        environment.logger.debug(
            "renewal information",
            metadata: [
                "start": "\(start.formatted(.iso8601))", "end": "\(end.formatted(.iso8601))",
                "explanation": "\(DisplayText.visible(information.explanationURL ?? ""))",
            ])
        return RenewalInformation(
            advice: RenewalAdvice(window: start...end), retryAfter: retryAfter(response))
    }

    /// The certificate's name there: issuer's key and serial number (RFC 9773, section 4.1). `nil` without the former.
    static func renewalID(of certificate: X509Certificate) -> String? {
        guard let parsed = try? Certificate(derEncoded: certificate.derRepresentation),
            let issuer = try? parsed.extensions.authorityKeyIdentifier?.keyIdentifier
        else { return nil }
        // As DER has it: a number with the highest bit begins with a zero.
        let serial = Array(parsed.serialNumber.bytes)
        return ByteText.base64URL(issuer) + "." + ByteText.base64URL((serial.first ?? 0) < 0x80 ? serial : [0] + serial)
    }

    /// RFC 3339, with or without fractions of a second.
    private static func date(_ text: String) -> Date? {
        (try? Date(text, strategy: Date.ISO8601FormatStyle()))
            ?? (try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: true)))
    }
}
