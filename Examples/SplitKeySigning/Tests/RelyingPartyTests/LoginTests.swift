import CertificateProviding
import Foundation
import Testing

@testable import RelyingParty

/// `/authzurl` and `/authtoken`, with the scripted OpenID provider.
@Suite(.timeLimit(.minutes(30))) struct LoginTests {
    @Test("The code flow ends with a token of the relying party")
    func aCodeGetsAToken() async throws {
        try await Site.run { (site: Site) async throws in
            let url = try #require(try await site.post("/authzurl").json["authorizeURL"] as? String)
            let query = try #require(URLComponents(string: url.replacing("+", with: "%20"))?.queryItems)
            func value(_ name: String) -> String? { query.first { $0.name == name }?.value }
            #expect(url.hasPrefix("\(site.server.url)/authorize?x=1&") && value("response_type") == "code")
            #expect(
                value("client_id") == ScriptedServer.clientID && value("redirect_uri") == ScriptedServer.redirectURI)
            #expect(value("scope") == "openid profile email" && value("code_challenge_method") == "S256")
            let (code, _) = try site.server.authorize(url)
            // Without a state, the only one is meant.
            let (status, json) = try await site.post("/authtoken", ["code": code, "userID": Site.alice])
            #expect(status == 200 && json["token_type"] as? String == "Bearer" && json["expires_in"] as? Int == 3600)
            #expect((json["access_token"] as? String)?.count == 43)
        }
    }

    @Test func aStateIsNeededOfSeveral() async throws {
        try await Site.run { (site: Site) async throws in
            let one = try await site.authorization(), other = try await site.authorization()
            let (status, json) = try await site.post("/authtoken", ["code": one.code, "userID": Site.alice])
            #expect(status == 400 && (json["message"] as? String)?.contains("state") == true)
            // A code of another request does not fit: its verifier and its nonce are others.
            #expect(
                try await site.post(
                    "/authtoken", ["code": other.code, "userID": Site.alice, "state": one.state]
                ).status == 401)
            // That has used both up.
            for (code, state) in [one, other] {
                let known: [String: any Sendable] = ["code": code, "userID": Site.alice, "state": state]
                #expect(try await site.post("/authtoken", known).status == 401)
            }
        }
    }

    @Test("A state and its nonce are good once, and for ten minutes")
    func aStateIsGoodOnce() async throws {
        try await Site.run { (site: Site) async throws in
            let used = try await site.authorization()
            let body: [String: any Sendable] = ["code": used.code, "userID": Site.alice, "state": used.state]
            #expect(try await site.post("/authtoken", body).status == 200)
            #expect(try await site.post("/authtoken", body).status == 401)
            let old = try await site.authorization()
            site.clock.advance(601)
            let over: [String: any Sendable] = ["code": old.code, "userID": Site.alice, "state": old.state]
            #expect(try await site.post("/authtoken", over).status == 401)
            #expect(site.server.paths.count { $0 == "/token" } == 1)
        }
    }

    @Test("Of too many logins the oldest goes")
    func tooManyLoginsEndTheOldest() async throws {
        try await Site.run(configure: { $0.logins = 2 }) { (site: Site) async throws in
            let begun = [
                try await site.authorization(), try await site.authorization(), try await site.authorization(),
            ]
            for ((code, state), status) in zip(begun, [401, 200, 200]) {
                let body: [String: any Sendable] = ["code": code, "userID": Site.alice, "state": state]
                #expect(try await site.post("/authtoken", body).status == status)
            }
        }
    }

    @Test("A stranger who knows no state ends nobody's login")
    func aStrangerEndsNothing() async throws {
        try await Site.run { (site: Site) async throws in
            let begun = try await site.authorization()
            #expect(try await site.post("/authtoken", ["code": "wrong", "userID": Site.alice]).status == 401)
            let body: [String: any Sendable] = ["code": begun.code, "userID": Site.alice]
            #expect(try await site.post("/authtoken", body).status == 200)
            #expect(try await site.post("/authtoken", body).status == 401)
        }
    }

    @Test("A wrong code is 401, and what is malformed 400")
    func aWrongCodeIsRefused() async throws {
        try await Site.run { (site: Site) async throws in
            let (_, state) = try await site.authorization()
            let wrong: [String: any Sendable] = ["code": "wrong", "userID": Site.alice, "state": state]
            #expect(try await site.post("/authtoken", wrong).status == 401)
            #expect(try await site.post("/authtoken", ["code": "wrong", "userID": Site.alice]).status == 401)
            for body in [
                "", "{}", "[]", #"{"code":1,"userID":"a"}"#, #"{"code":"","userID":"a"}"#, #"{"code":"a"}"#, "\u{ff}",
            ] {
                let (status, json) = try await site.send("/authtoken", Data(body.utf8))
                #expect(status == 400 && json["message"] is String, "\(body)")
            }
            #expect(try await site.send("/authtoken", Data(count: 70_000)).status == 413)
        }
    }

    static let claims: [(String, @Sendable (inout TokenMaker.Claims) -> Void)] = [
        ("nonce", { $0["nonce"] = "another" }), ("no nonce", { $0["nonce"] = nil }),
        ("audience", { $0["aud"] = "another" }), ("no audience", { $0["aud"] = [String]() }),
        ("audiences", { $0["aud"] = [ScriptedServer.clientID, "another"] }),
        ("audiences and party", { ($0["aud"], $0["azp"]) = ([ScriptedServer.clientID, "another"], "another") }),
        ("party", { $0["azp"] = "another" }), ("issuer", { $0["iss"] = "https://localhost" }),
        ("user", { $0["sub"] = Site.bob }), ("no user", { $0["sub"] = nil }),
        ("expired", { $0["exp"] = ($0["iat"] as? Int ?? 0) - 1 }), ("no expiry", { $0["exp"] = nil }),
        ("old", { $0["iat"] = ($0["iat"] as? Int ?? 0) - 700 }), ("new", { $0["iat"] = ($0["iat"] as? Int ?? 0) + 90 }),
        ("not yet", { $0["nbf"] = ($0["iat"] as? Int ?? 0) + 90 }),
    ]

    @Test("An ID token with a wrong claim is refused", arguments: claims.map(\.0))
    func aWrongClaimIsRefused(name: String) async throws {
        try await Site.run { (site: Site) async throws in
            let change = try #require(Self.claims.first { $0.0 == name }).1
            site.server.tell { $0.idToken = change }
            #expect(try await site.login().status == 401)
            site.server.tell { $0.idToken = { _ in } }
            #expect(try await site.login().status == 200)
        }
    }

    @Test("An ID token of another time has the clock of the relying party named", arguments: [-1201, 1200])
    func aClockIsNamed(seconds: Int) async throws {
        try await Site.run { (site: Site) async throws in
            site.server.tell {
                $0.idToken = { claims in
                    for name in ["iat", "exp"] { claims[name] = (claims[name] as? Int ?? 0) + seconds }
                }
            }
            let (code, state) = try await site.authorization()
            let question: [String: any Sendable] = ["code": code, "userID": Site.alice, "state": state]
            let (status, json) = try await site.post("/authtoken", question)
            #expect(status == 401)
            #expect((json["message"] as? String)?.contains("check the clock of the relying party") == true)
            #expect(site.log.all.contains("check the clock of the relying party"))
        }
    }

    @Test func anotherUserIsRefused() async throws {
        try await Site.run { (site: Site) async throws in
            #expect(try await site.login(Site.bob, as: Site.alice).status == 401)
            // The same text for Swift, and another user.
            #expect(try await site.login("ame\u{301}lie", as: "am\u{e9}lie").status == 401)
        }
    }

    @Test("The audience may be an array, with this client as the authorized party")
    func anAudienceMayBeAnArray() async throws {
        try await Site.run { (site: Site) async throws in
            site.server.tell { $0.idToken = { $0["aud"] = [ScriptedServer.clientID] } }
            #expect(try await site.login().status == 200)
            site.server.tell {
                $0.idToken = {
                    ($0["aud"], $0["azp"]) = (["another", ScriptedServer.clientID], ScriptedServer.clientID)
                }
            }
            #expect(try await site.login().status == 200)
        }
    }

    @Test("Only RS256 by the named key of the provider is a signature", arguments: TokenMaker.Signature.allCases)
    func onlyRS256IsTaken(signature: TokenMaker.Signature) async throws {
        try await Site.run { (site: Site) async throws in
            site.server.tell { $0.idTokenSignature = signature }
            #expect(try await site.login().status == (signature == .right ? 200 : 401))
            // With one key that signs, a token need not name it.
            site.server.tell { ($0.idTokenSignature, $0.idTokenKey) = (signature, nil) }
            #expect(try await site.login().status == ([.right].contains(signature) ? 200 : 401))
        }
    }

    @Test("Two keys of one name are none, and a name that is not there is looked for every five seconds")
    func aKeyHasOneName() async throws {
        try await Site.run { (site: Site) async throws in
            let keys = site.server.tokens.keySet
            let twice = keys.replacing(#""encryption","use":"enc""#, with: #""one","use":"sig""#)
            site.server.tell { $0.keySet = twice }
            #expect(twice != keys)
            #expect(try await site.login().status == 401)
            site.server.tell { ($0.keySet, $0.idTokenKey) = (nil, "new") }
            for requests in [1, 2] {
                for _ in 0..<5 { #expect(try await site.login().status == 401) }
                #expect(site.server.paths.count { $0 == "/jwks" } == requests)
                site.clock.advance(5)
            }
            // The provider has changed its key.
            site.server.tell { $0.keySet = keys.replacing(#""one""#, with: #""new""#) }
            #expect(try await site.login().status == 200)
        }
    }

    @Test func aProviderOfAnotherIssuerIsNotUsed() async throws {
        try await Site.run { (site: Site) async throws in
            site.server.tell { $0.issuer = "https://login.example.com" }
            let (status, json) = try await site.post("/authzurl")
            #expect(status == 502 && json["message"] is String)
        }
    }

    @Test("The client's secret, codes and tokens are in no log")
    func nothingSecretIsLogged() async throws {
        try await Site.run { (site: Site) async throws in
            let (code, state) = try await site.authorization()
            let token = try await site.post("/authtoken", ["code": code, "userID": Site.alice, "state": state])
            let bearer = try #require(token.json["access_token"] as? String)
            let document = try await site.document(bearer)
            _ = try await site.verify(.signature(document.hash), document.timestamp, bearer: bearer)
            site.server.tell { $0.verify = { _, _ in (500, ScriptedServer.clientSecret) } }
            _ = try await site.verify(.signature(document.hash), document.timestamp, bearer: bearer)
            let next = try await site.authorization()
            _ = try await site.post("/authtoken", ["code": "wr0ng", "userID": Site.alice, "state": next.state])
            let log = site.log.all
            #expect(log.contains("/authtoken"))
            for secret in [
                code, bearer, ScriptedServer.clientSecret, "pr0vider-t0ken", "wr0ng", state, document.authToken,
            ] {
                #expect(!log.contains(secret), "\(secret)")
            }
        }
    }
}
