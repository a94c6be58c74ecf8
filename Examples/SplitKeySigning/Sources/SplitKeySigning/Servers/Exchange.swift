public import CertificateProviding
public import CertificateTLS
public import FoundationEssentials
public import Logging
public import ProviderTransport

/// Sends requests to the servers of the settings.
public protocol Exchange: Sendable {
    /// Returns the response of any status. A request that may be sent twice is sent again, twice at most, if its answer is lost.
    ///
    /// - Parameter token: Is sent as bearer token.
    /// - Throws: `unavailable`, `timedOut`, `serverNotTrusted` and other errors of the connection, with the reason `nothingSent` if it
    ///   could not be opened.
    func response(
        to request: HTTPRequest, at server: ServerURL, token: SecretBytes?
    ) async throws(ProviderError) -> HTTPResponse
}

extension ProviderError.Reason {
    /// Nothing has reached the verifier: the connection could not be opened, or the relying party says that it has not asked.
    static let nothingSent = Self(rawValue: "nothingSent")
    /// An answer was lost before this error: the verifier may have counted the signature.
    static let mayBeCounted = Self(rawValue: "mayBeCounted")
}

/// The network.
public struct NetworkExchange: Exchange {
    private let trust: ServerTrust
    private let timeout: Duration
    private let transport: Transport
    private let now: @Sendable () -> Date
    private let logger: Logger

    /// - Parameters:
    ///   - timeout: For each request, with its repetitions.
    ///   - logger: Gets the requests, from `debug`: without queries, headers and bodies, which may have secrets.
    public init(
        trusting trust: ServerTrust, timeout: Duration, transport: Transport = Transport(),
        logger: Logger = Logger(label: "splitkey"), now: @escaping @Sendable () -> Date = { Date() }
    ) {
        (self.trust, self.timeout, self.transport, self.now) = (trust, timeout, transport, now)
        self.logger = logger
    }

    public func response(
        to request: HTTPRequest, at server: ServerURL, token: SecretBytes?
    ) async throws(ProviderError) -> HTTPResponse {
        var values: Logger.Metadata = [
            "method": "\(request.method.rawValue)", "host": "\(server.authority)",
            "path": "\(DisplayText.visible(String(request.target.prefix { $0 != "?" })))",
        ]
        do throws(ProviderError) {
            let response = try await answer(to: request, at: server, token: token)
            values["status"] = "\(response.status)"
            logger.debug("request", metadata: values)
            return response
        } catch {
            values["error"] = "\(error.code)"
            logger.debug("request failed", metadata: values)
            throw error
        }
    }

    private func answer(
        to request: HTTPRequest, at server: ServerURL, token: SecretBytes?
    ) async throws(ProviderError) -> HTTPResponse {
        var security = ServerSecurity(trust: trust, now: now)
        security.settingNames = SplitKeySettings.names
        security.permitsPlaintextToLoopback = true
        let credentials = try token.map { token throws(ProviderError) in
            try ServerCredentials.bearer(token, from: "the session")
        }
        let session = ServerSession(
            server, security, credentials ?? .none, timeBudget: TimeBudget(timeout, transport.retryPolicy),
            transport: transport)
        do throws(ProviderError) { try await session.connect() } catch {
            var error = error
            error.reason = error.reason ?? .nothingSent
            throw error
        }
        return try await session.response(to: request)
    }
}

/// One server, and how it is asked with JSON.
struct JSONServer: Sendable {
    let server: ServerURL
    private let exchange: any Exchange

    init(_ server: ServerURL, _ exchange: any Exchange) { (self.server, self.exchange) = (server, exchange) }

    func post(
        _ path: String, _ content: some Encodable, isRepeatable: Bool, token: SecretBytes? = nil
    ) async throws(ProviderError) -> HTTPResponse {
        let request = try HTTPRequest(target: target(path), json: content, isRepeatable: isRepeatable)
        return try await exchange.response(to: request, at: server, token: token)
    }

    func send(
        _ request: HTTPRequest, token: SecretBytes? = nil
    ) async throws(ProviderError) -> HTTPResponse {
        try await exchange.response(to: request, at: server, token: token)
    }

    /// A path below that of the server's URL, which may have a slash too many.
    func target(_ path: String) -> String { server.path.split(separator: "/").map { "/" + $0 }.joined() + path }

    /// Distinguishes the server from others, however its URL is written.
    var url: String { server.origin.lowercased() + target("") }

    /// Returns a token that the server has answered with.
    ///
    /// - Throws: `protocolError` for a malformed token (RFC 6750, section 2.1).
    func token(_ text: String, of purpose: String) throws(ProviderError) -> SecretBytes {
        let token = SecretBytes(utf8: text)
        guard token.count <= 4096, (try? ServerCredentials.bearer(token, from: "")) != nil else {
            throw ProviderError(
                .protocolError,
                "\(server.authority) answers \(purpose) with what is no access token; look for the reason in its log.")
        }
        return token
    }

    private struct Message: Decodable { let message: String }

    /// The error for a status that the request does not expect.
    ///
    /// - Parameter codes: What certain statuses mean here, as the end of a sentence about the server.
    func refusal(
        _ response: HTTPResponse, of purpose: String,
        _ codes: [Int: (code: ProviderError.Code, text: String)] = [:]
    ) -> ProviderError {
        let said = (try? response.json(Message.self, from: server))?.message
        guard let (code, text) = codes[response.status] else {
            // A server that fails or is overloaded says itself what to do.
            let isTrouble = response.status == 429 || response.status >= 500
            let advice = isTrouble ? said.map { "it says: \(shown($0, response))" } : nil
            return response.refusal(
                of: purpose, by: server, reason: advice == nil ? said : nil, advice: advice, at: Date())
        }
        let reason = said.map { " It says: \(shown($0, response))." } ?? ""
        return ProviderError(code, "\(text).\(reason)", nativeCode: response.status)
    }

    /// A server's sentence without its full stop.
    private func shown(_ text: String, _ response: HTTPResponse) -> String {
        let text = response.excerpt(of: text, limit: 200)
        return text.hasSuffix(".") ? String(text.dropLast()) : text
    }
}
