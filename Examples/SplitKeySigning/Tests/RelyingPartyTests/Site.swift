import CertificateProviding
import CertificateTLS
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Logging
import NIOCore
import ProviderTransport
import Testing

@testable import RelyingParty

/// A relying party in this process, with the scripted server.
struct Site: Sendable {
    static let (alice, bob) = ("alice@example.com", "bob@example.com")

    let server: ScriptedServer
    let clock: TestClock
    let log: TestLog
    let directory: TemporaryDirectory
    let client: any TestClientProtocol

    /// - Parameters:
    ///   - isRunning: Whether the clock runs, for servers with clocks of their own.
    ///   - configure: Names other servers than the scripted one.
    static func run(
        timeout: Duration = .seconds(600), isRunning: Bool = false, in directory: TemporaryDirectory? = nil,
        configure: @Sendable (inout RelyingPartyConfiguration) -> Void = { _ in },
        _ body: @Sendable (Site) async throws -> Void
    ) async throws {
        // Certificates that are made after the clock would not be valid yet.
        _ = try await Fixtures.shared
        let (clock, log) = (TestClock(isRunning: isRunning), TestLog())
        let directory = try directory ?? TemporaryDirectory()
        try await ScriptedServer.run(clock) { server in
            var configuration = RelyingPartyConfiguration(
                clientID: ScriptedServer.clientID, clientSecret: SecretBytes(utf8: ScriptedServer.clientSecret),
                redirectURI: ScriptedServer.redirectURI, issuer: server.url, authority: server.url,
                state: directory.path,
                trust: ServerTrust(trustAnchors: .pemFile(try await Fixtures.shared.directory.path + "/ca.pem")))
            configuration.timeout = timeout
            configure(&configuration)
            // No pauses before another attempt.
            let transport = Transport(retryPolicy: RetryPolicy(sleep: { _ in }))
            let relyingParty = try RelyingParty(
                configuration, logger: log.logger, transport: transport, now: clock.now)
            try await Application(router: relyingParty.router(), logger: log.logger).test(.router) { client in
                try await body(Site(server: server, clock: clock, log: log, directory: directory, client: client))
            }
        }
    }

    func post(
        _ uri: String, _ json: [String: any Sendable]? = nil, bearer: String? = nil
    ) async throws -> (status: Int, json: [String: Any]) {
        try await send(uri, try json.map { try JSONSerialization.data(withJSONObject: $0) }, bearer: bearer)
    }

    func send(
        _ uri: String, _ body: Data?, bearer: String? = nil, method: HTTPTypes.HTTPRequest.Method = .post
    ) async throws -> (status: Int, json: [String: Any]) {
        let response = try await response(uri, body, bearer: bearer, method: method)
        let json = try JSONSerialization.jsonObject(with: Data(response.body.readableBytesView))
        return (response.status.code, try #require(json as? [String: Any]))
    }

    func response(
        _ uri: String, _ body: Data?, bearer: String? = nil, method: HTTPTypes.HTTPRequest.Method = .post
    ) async throws -> TestResponse {
        var headers: HTTPFields = [:]
        if let bearer { headers[.authorization] = "Bearer \(bearer)" }
        return try await client.execute(
            uri: uri, method: method, headers: headers, body: body.map { ByteBuffer(bytes: $0) })
    }

    /// Begins a login, and returns what the browser comes back with.
    func authorization(of user: String = alice) async throws -> (code: String, state: String) {
        let (status, json) = try await post("/authzurl")
        #expect(status == 200)
        server.logIn(user)
        return try server.authorize(try #require(json["authorizeURL"] as? String))
    }

    /// Begins a login at another server than the scripted one, with curl as the browser.
    ///
    /// - Parameter fields: What the browser sends of the user.
    func authorization(at ca: String, _ fields: [String]) async throws -> (code: String, state: String) {
        let json = try await post("/authzurl").json
        let url = try #require(json["authorizeURL"] as? String)
        let place = try await Program.run(
            [
                "curl", "--silent", "--show-error", "--cacert", ca, "--noproxy", "*", "--output", "/dev/null",
                "--write-out",
                "%{redirect_url}",
            ] + fields.flatMap { ["--header", $0] } + [url], in: directory.path)
        let items = URLComponents(string: place)?.queryItems ?? []
        return (
            try #require(items.first { $0.name == "code" }?.value),
            try #require(items.first { $0.name == "state" }?.value)
        )
    }

    /// The status of a login, and its token.
    func login(_ user: String = alice, as claimed: String? = nil) async throws -> (status: Int, token: String) {
        let (code, state) = try await authorization(of: user)
        let (status, json) = try await post("/authtoken", ["code": code, "userID": claimed ?? user, "state": state])
        return (status, json["access_token"] as? String ?? "")
    }

    func bearer(_ user: String = alice) async throws -> String {
        let (status, token) = try await login(user)
        #expect(status == 200)
        return token
    }

    /// The answer of `/document` to who has an access token.
    func document(
        _ bearer: String, _ document: String = "a document"
    ) async throws -> (hash: String, timestamp: Int, authToken: String) {
        let (status, json) = try await send("/document", Data(document.utf8), bearer: bearer)
        #expect(status == 200)
        return (
            try #require(json["hash"] as? String), try #require(json["timestamp"] as? Int),
            try #require(json["authToken"] as? String)
        )
    }

    func verify(
        _ signature: [String: String], _ timestamp: Int, bearer: String?, authToken: String? = nil
    ) async throws -> (status: Int, verdict: String?, verified: Bool?) {
        var question: [String: any Sendable] = ["verificationData": signature, "timestamp": timestamp]
        question["authToken"] = authToken
        let (status, json) = try await post("/verify-signature", question, bearer: bearer)
        return (status, json["status"] as? String, json["verified"] as? Bool)
    }
}

extension [String: String] {
    /// A signature of the right form.
    static func signature(_ hash: String, of user: String = Site.alice, key: Character = "a") -> [String: String] {
        let identity =
            #"{"iat":1,"userID":"\#(user)","cID":"COMPANY","salt":"00","v":5,"scope":["dvs-auth"],"dtas":["dta1","dta2"],"vt":"pv"}"#
        return [
            "hash": hash, "mpinId": DisplayText.hexadecimal(identity.utf8),
            "u": "04" + String(repeating: "1b", count: 96),
            "v": "04" + String(repeating: "2c", count: 96), "publicKey": String(repeating: key, count: 384),
            "dtas": Data(#"["dta1","dta2"]"#.utf8).base64EncodedString(),
        ]
    }

    func with(_ name: String, _ value: String?) -> [String: String] {
        var copy = self
        copy[name] = value
        return copy
    }
}
