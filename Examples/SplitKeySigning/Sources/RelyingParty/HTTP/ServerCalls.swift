import CertificateProviding
import CertificateTLS
import Foundation
import ProviderTransport

/// Requests to the OpenID provider and the verifier: with the configured trust, in a bounded time, with bounded answers.
struct ServerCalls: Sendable {
    let trust: ServerTrust
    let timeout: Duration
    let transport: Transport
    let now: @Sendable () -> Date

    private static let names = ServerSettingNames(
        address: "'RelyingParty.issuer' and 'RelyingParty.authority'",
        path: "'RelyingParty.issuer' and 'RelyingParty.authority'", trustAnchors: "'RelyingParty.trust-anchors'",
        timeout: "'RelyingParty.timeout'")

    /// In bytes. Receipts and key sets have some kilobytes.
    static let maximumAnswer = 256 * 1024

    /// The time for all calls of one request, or for half of it.
    func budget(_ time: Duration? = nil) -> TimeBudget { TimeBudget(time ?? timeout, transport.retryPolicy) }

    func response(
        to request: HTTPRequest, of server: ServerURL, within budget: TimeBudget
    ) async throws(ProviderError) -> HTTPResponse {
        var request = request
        request.maximumResponse = Self.maximumAnswer
        return try await session(with: server, within: budget).response(to: request)
    }

    func session(with server: ServerURL, within budget: TimeBudget) -> ServerSession {
        var security = ServerSecurity(trust: trust, now: now)
        security.settingNames = Self.names
        return ServerSession(server, security, timeBudget: budget, transport: transport)
    }

    /// Gets a JSON document.
    func document<Content: Decodable>(
        _ type: Content.Type, at server: ServerURL, within budget: TimeBudget
    ) async throws(ProviderError) -> Content {
        let response = try await response(
            to: HTTPRequest(target: server.target, isRepeatable: true), of: server, within: budget)
        guard response.status == 200 else {
            throw response.refusal(of: "the request for \(server.path)", by: server, at: now())
        }
        return try response.json(type, from: server)
    }

    /// Reads the URL of a server that secrets may go to.
    ///
    /// - Throws: `configurationInvalid`.
    static func server(_ text: String) throws(ProviderError) -> ServerURL {
        guard let server = ServerURL(text), server.isSecure else {
            throw ProviderError(
                .configurationInvalid, "\(DisplayText.visible(text)) is not an https: URL; check it.")
        }
        return server
    }

    /// Returns the URL of a path below another URL.
    static func server(_ base: String, _ path: String) throws(ProviderError) -> ServerURL {
        try server((base.hasSuffix("/") ? String(base.dropLast()) : base) + path)
    }
}
