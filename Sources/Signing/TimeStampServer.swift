public import CertificateProviding
public import CertificateTLS
import Crypto
public import FoundationEssentials
import NIOHTTP1
import OpenSSLSupport
public import ProviderTransport

/// A server that stamps signatures with the time (RFC 3161), over HTTP (section 3.4).
///
/// A stamp counts only if it is about the signature, has the nonce of the request and the policy that was asked for, is signed by a
/// certificate for time stamps alone that leads to the anchors, and is within five minutes of this host's clock.
public struct TimeStampServer: Sendable {
    /// The server's URL.
    public let server: ServerURL
    /// The policy to ask for, an object identifier in dotted form; `nil` for the server's own choice.
    public var policy: String?
    /// How to authenticate an `https:` server; the system trust store by default. A stamp is verified by itself.
    public var trust = ServerTrust(trustAnchors: .system)
    /// The proxy to connect through; by default none.
    public var proxy = ProxyChoice.direct
    /// The network, and the delays between attempts.
    public var transport = Transport()
    /// The time for a stamp, with all attempts.
    public var timeout = Duration.seconds(10)
    /// This host's clock.
    public var now: @Sendable () -> Date = { Date() }
    /// Draws the nonce.
    var nonce: @Sendable () -> UInt64 = { .random(in: .min ... .max) }
    let anchors: [X509Certificate]
    private var login: TimeStampLogin?

    /// Creates a server. Nothing is sent yet.
    ///
    /// - Parameters:
    ///   - url: `http:` or `https:`, without a user or a fragment.
    ///   - anchors: The CA certificates that the server's own certificate must lead to, at least one. There is no default.
    /// - Throws: `configurationInvalid` for another URL, and without an anchor.
    public init(_ url: String, anchors: [X509Certificate]) throws(ProviderError) {
        guard let server = ServerURL(url) else {
            throw ProviderError(
                .configurationInvalid,
                "The URL of the time-stamp server is not valid: expected http:// or https:// with a host, without a user or a fragment."
            )
        }
        guard !anchors.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "No trust anchor for the time stamps of \(server.authority) is given; name its CA certificates.")
        }
        (self.server, self.anchors) = (server, anchors)
    }

    /// Has each request authenticated by a user name and a password (HTTP Digest or Basic), once the server demands it. Nothing is read or
    /// sent yet.
    ///
    /// - Parameters:
    ///   - source: Read for each stamp, so that a service takes a password that was corrected.
    ///   - environment: Its storage remembers a password that the server has rejected, which is not sent again by itself.
    /// - Throws: `configurationInvalid` for a user name with a colon or a control character, for the source `prompt`, and for an `http:`
    ///   server on another host.
    public mutating func logIn(
        as user: String, passwordFrom source: SecretSource, _ environment: ProviderEnvironment
    ) throws(ProviderError) {
        login = try TimeStampLogin(user, source, at: server, environment)
    }

    private static let maximumSize = 64 << 10
    /// The maximum distance of a stamp from this host's clock, in seconds.
    private static let maximumSkew: TimeInterval = 300

    /// Returns a time stamp of a signature. Suspends for at most ``timeout``.
    ///
    /// A connection that fails is tried up to three times; an answer that is wrong is not asked for again.
    ///
    /// - Parameter signature: The value of the signature.
    /// - Returns: The TimeStampToken, DER, verified.
    /// - Throws: `unavailable`, `timedOut`, `rejected` if the server refuses, `protocolError` for an answer that is wrong,
    ///   `serverNotTrusted` if its signer is not trusted, and errors of the connection: all with the reason `timeStamp`.
    public func token(for signature: [UInt8]) async throws(ProviderError) -> [UInt8] {
        do throws(ProviderError) { return try await stamp(of: signature) } catch {
            var error = error
            error.reason = .timeStamp
            throw error
        }
    }

    private func stamp(of signature: [UInt8]) async throws(ProviderError) -> [UInt8] {
        let library = OpenSSLLibrary()
        let query: TimeStampQuery
        let body: [UInt8]
        do throws(OpenSSLError) {
            query = try TimeStampQuery(
                sha256: Array(SHA256.hash(data: signature)), nonce: nonce(), policy: policy, in: library)
            body = try query.derRepresentation()
        } catch {
            throw ProviderError(
                .configurationInvalid,
                "A request for \(server.authority) cannot be written; check the policy of the time stamps.",
                underlying: error)
        }
        return try verified(try await answer(to: body), query, library)
    }

    private func answer(to body: [UInt8]) async throws(ProviderError) -> [UInt8] {
        var security = ServerSecurity(trust: trust, now: now)
        security.settingNames = ServerSettingNames(
            address: "the URL of the time-stamp server", path: "the URL of the time-stamp server",
            trustAnchors: "how it is authenticated", timeout: nil)
        security.permitsPlaintextToLoopback = true
        let password = try await login?.password()
        let credentials: ServerCredentials =
            if let login, let password { .password(user: login.user, password) } else { .none }
        let session = ServerSession(
            server, security, credentials, through: try proxy.proxy(for: server),
            timeBudget: TimeBudget(timeout, transport.retryPolicy), transport: transport)
        let response = try await session.response(
            to: HTTPRequest(
                method: .post, target: server.target,
                headers: ["Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"],
                body: body, isRepeatable: true))
        if let password, response.hasRefusedPassword || response.status == 200, await session.hasSentPassword {
            await login?.noteOutcome(of: password, isRejected: response.hasRefusedPassword)
        }
        guard response.status == 200 else {
            let demandsUser = response.status == 401 && login == nil
            throw response.refusal(
                of: "the request for a time stamp", by: server,
                advice: demandsUser ? "give it a user: --time-stamp-user or Signing.time-stamp-user" : nil, at: now())
        }
        guard response.body.count <= Self.maximumSize else {
            throw wrong("it has \(response.body.count) bytes, and at most \(Self.maximumSize) are read")
        }
        return response.body
    }

    private func verified(
        _ answer: [UInt8], _ query: TimeStampQuery, _ library: OpenSSLLibrary
    ) throws(ProviderError) -> [UInt8] {
        let reply: TimeStampReply
        do throws(OpenSSLError) { reply = try TimeStampReply(answer, in: library) } catch {
            throw wrong("it is damaged, or not an answer of a time-stamp server", error)
        }
        let status = reply.status
        guard status == 0 || status == 1 else {
            let text = reply.statusText
            throw ProviderError(
                .rejected,
                "The time-stamp server \(server.authority) refuses (status \(status))"
                    + (text.isEmpty ? "." : ": \(text.withVisibleControls)"),
                nativeCode: status)
        }
        let token: (der: [UInt8], time: Date)
        do throws(OpenSSLError) {
            token = try reply.token(for: query, anchors: anchors.map(\.derRepresentation), at: now())
        } catch {
            let reason = error.entries.map(\.text).last ?? error.function
            guard error.refusesTimeStampSigner else { throw wrong(reason, error) }
            throw ProviderError(
                .serverNotTrusted,
                "The signer of the time stamp from \(server.authority) is not trusted: \(error.detail?.replacing("Verify error:", with: "") ?? reason). "
                    + "Check the trust anchors for time stamps.",
                underlying: error)
        }
        let distance = token.time.timeIntervalSince(now())
        guard abs(distance) <= Self.maximumSkew else {
            throw wrong(
                "its time is \(token.time.formatted(.iso8601)), \(Int(abs(distance))) seconds \(distance < 0 ? "behind" : "ahead of") "
                    + "this host's clock; check the clock")
        }
        return token.der
    }

    private func wrong(_ reason: String, _ error: OpenSSLError? = nil) -> ProviderError {
        ProviderError(
            .protocolError, "The answer of the time-stamp server \(server.authority) is not accepted: \(reason).",
            underlying: error)
    }
}

extension ProviderError.Reason {
    /// The signature was made; its time stamp did not come, or is wrong.
    public static let timeStamp = Self(rawValue: "timeStamp")
}
