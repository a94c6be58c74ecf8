import CertificateProviding
import Foundation
import Testing

@testable import RelyingParty

/// Logins at an OpenID provider of Debian's python3-authlib, which other people have written.
@Suite(
    .timeLimit(.minutes(30)),
    .enabled(if: Peers.hasAuthlib, "it needs python3-authlib (Debian), in /usr/lib/python3"))
struct AuthlibTests {
    @Test("A code of authlib gets a token, and a false ID token of its none")
    func authlibsTokensAreTakenAndFalseOnesAreNot() async throws {
        let (directory, fixtures) = (try TemporaryDirectory(), try await Fixtures.shared.directory.path)
        let ports = directory.path + "/ports"
        let provider = try Program(
            [
                "/usr/bin/python3", packageDirectory + "/Tests/RelyingPartyTests/authlib-provider.py",
                "\(fixtures)/server.pem", "\(fixtures)/server.key", ports, "client", "secret",
                ScriptedServer.redirectURI,
            ], in: directory.path)
        let url = try #require(try await provider.start(until: ports)["url"] as? String)
        let configure: @Sendable (inout RelyingPartyConfiguration) -> Void = {
            ($0.issuer, $0.clientID, $0.clientSecret) = (url, "client", SecretBytes(utf8: "secret"))
        }
        try await Site.run(isRunning: true, configure: configure) { (site: Site) async throws in
            func login(_ fault: String, as user: String = Site.alice) async throws -> (Int, [String: any Sendable]) {
                let (code, state) = try await site.authorization(
                    at: "\(fixtures)/ca.pem", ["X-User: \(Site.alice)", "X-Fault: \(fault)"])
                let request: [String: any Sendable] = ["code": code, "userID": user, "state": state]
                return (try await site.post("/authtoken", request).status, request)
            }
            let (status, request) = try await login("")
            #expect(status == 200)
            #expect(try await site.post("/authtoken", request).status == 401)
            #expect(try await login("text").0 == 200)
            #expect(try await login("", as: Site.bob).0 == 401)
            for fault in ["nonce", "audience", "audiences", "issuer", "expired", "none", "hs256"] {
                #expect(try await login(fault).0 == 401, "\(fault)")
            }
            // The code of one request with the state of another.
            let one = try await site.authorization(at: "\(fixtures)/ca.pem", ["X-User: \(Site.alice)"])
            let other = try await site.authorization(at: "\(fixtures)/ca.pem", ["X-User: \(Site.alice)"])
            let mixed: [String: any Sendable] = ["code": one.code, "userID": Site.alice, "state": other.state]
            #expect(try await site.post("/authtoken", mixed).status == 401)
        }
        // Threads of the tests block other signals, and children inherit that.
        _ = try await provider.end(by: SIGKILL)
    }

    @Test func aWrongClientSecretIsNotTheUsersFault() async throws {
        let (directory, fixtures) = (try TemporaryDirectory(), try await Fixtures.shared.directory.path)
        let ports = directory.path + "/ports"
        let provider = try Program(
            [
                "/usr/bin/python3", packageDirectory + "/Tests/RelyingPartyTests/authlib-provider.py",
                "\(fixtures)/server.pem", "\(fixtures)/server.key", ports, "client", "other",
                ScriptedServer.redirectURI,
            ], in: directory.path)
        let url = try #require(try await provider.start(until: ports)["url"] as? String)
        try await Site.run(isRunning: true, configure: { ($0.issuer, $0.clientID) = (url, "client") }) {
            (site: Site) async throws in
            let (code, state) = try await site.authorization(at: "\(fixtures)/ca.pem", ["X-User: \(Site.alice)"])
            let request: [String: any Sendable] = ["code": code, "userID": Site.alice, "state": state]
            #expect(try await site.post("/authtoken", request).status == 502)
        }
        // Threads of the tests block other signals, and children inherit that.
        _ = try await provider.end(by: SIGKILL)
    }
}
