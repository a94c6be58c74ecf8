import CertificateProviding
import Enrolment
import NIOHTTP1
import OAuth
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Enrolment with tokens of OAuth 2 in place of a password.
@Suite(.timeLimit(.minutes(20))) struct OAuthEnrolmentTests {
    private func settings(_ server: some ESTPeer, _ more: [String: String] = [:]) -> [String: String] {
        [
            "username": "", "password-source": "", "token-url": "https://localhost:\(server.port)/token",
            "client-id": "estclient", "client-secret-source": "env:SECRET",
        ].merging(more) { $1 }
    }

    private func grants(_ server: ESTServer) throws -> [String] {
        try server.requests().compactMap { $0["grant_type"] as? String }
    }

    private static let byPassword = [
        "grant": "password", "username": ESTServer.user, "password-source": "env:PASSWORD",
    ]

    @Test(arguments: [
        (["scope": "enrol  status"], "client_credentials", "estclient"),
        (["client-authentication": "body"], "client_credentials", "estclient"),
        (byPassword, "password", ESTServer.user),
        (byPassword.merging(["client-secret-source": ""]) { $1 }, "password", ESTServer.user),
    ])
    func anIdentityIsEnrolledWithAToken(more: [String: String], grant: String, user: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--scope", "enrol status")
        let provider = try server.provider(settings(server, more))
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        #expect(try grants(server) == [grant])
        let last = try #require(try server.requests().last)
        #expect(last["user"] as? String == user && last["operation"] as? String == "simpleenroll")
    }

    @Test func aTokenThatIsNoLongerGoodIsReplaced() async throws {
        // The server is asked what it wants, and then for the certificate.
        let server = try await ESTServer.start("--auth", "oauth", "--token-uses", "1", "--authenticate-csrattrs")
        _ = try await server.provider(settings(server)).getCertificate(NoUserInteraction())
        #expect(server.issued == 1)
        #expect(try grants(server).count == 2)
        let statuses = try server.requests().filter { $0["operation"] as? String == "simpleenroll" }
            .compactMap { $0["status"] as? Int }
        #expect(statuses == [401, 200])
    }

    @Test(arguments: ["fault-status-401", "fault-status-403"])
    func aServerThatRefusesEachTokenGetsTwoAtMost(label: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let provider = try server.provider(label: label, settings(server))
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        #expect(try grants(server).count == (label.contains("401") ? 2 : 1))
        #expect(server.issued == 0)
    }

    /// The client asks for the server's attributes first.
    @Test(arguments: [true, false]) func aTokenThatIsRefusedIsNotShownAgain(isOfOAuth: Bool) async throws {
        let server = try await ESTServer.start("--auth", isOfOAuth ? "oauth" : "bearer")
        let bearer = ["username": "", "password-source": "", "bearer-source": "env:TOKEN"]
        let provider = try server.provider(
            label: "fault-csrattrs-status-401", isOfOAuth ? settings(server) : bearer)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        let operations = try server.requests().compactMap { $0["operation"] as? String }
        #expect(operations.filter { $0 == "csrattrs" }.count == (isOfOAuth ? 2 : 1))
        #expect(!operations.contains("simpleenroll"))
    }

    /// RFC 6750, section 3: the other errors are none that another token would mend.
    @Test(arguments: [
        (nil, true), ("Bearer", true), ("Bearer realm=\"x\", error=\"invalid_token\"", true),
        ("Basic realm=\"x\"", true), ("bearer error=invalid_token, Basic realm=\"x\"", true),
        ("Bearer error=\"insufficient_scope\"", false), ("Basic realm=\"x\", Bearer error=\"invalid_request\"", false),
    ])
    func aChallengeTellsWhetherTheTokenIsRefused(challenge: String?, isRefused: Bool) {
        let response = HTTPResponse(
            status: 401, headers: challenge.map { ["WWW-Authenticate": $0] } ?? [:], body: [])
        #expect(AuthenticatingSession.isRefused(token: response) == isRefused)
    }

    @Test("The error passes on the refusal of the token endpoint")
    func whatTheTokenEndpointSaysIsPassedOn() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--client-secret", "another")
        let provider = try server.provider(settings(server))
        var failure: ProviderError?
        do { _ = try await provider.getCertificate(NoUserInteraction()) } catch { failure = error }
        #expect(failure?.code == .rejected && failure?.provider == RemoteMDMProvider.id)
        #expect((failure?.underlying as? OAuthRefusal)?.error == "invalid_client")
        #expect(failure?.message.contains("estsecret") == false)
        // The server has seen no request for a certificate, nor any other without a token.
        #expect(try server.requests().allSatisfy { $0["operation"] as? String == "token" })
    }

    /// By another name it is another origin, which the anchors for the server do not speak for.
    @Test("The token endpoint is verified with its own trust anchors and pins")
    func theTokenEndpointIsKnownByItself() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let elsewhere = ["token-url": "https://127.0.0.1:\(server.port)/token"]
        let anchors = ["token-trust-anchors": server.directory["ca.pem"]]
        let pin = ["token-pin": "sha256/" + String(repeating: "A", count: 43) + "="]
        func failure(_ more: [String: String]...) async throws -> ProviderError.Code? {
            let all = more.reduce(settings(server)) { $0.merging($1) { $1 } }
            let provider = try server.provider(all)
            return await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        }
        #expect(try await failure(elsewhere) == .serverNotTrusted)
        #expect(try await failure(elsewhere, anchors, pin) == .serverNotTrusted)
        #expect(try await failure(anchors, pin) == .serverNotTrusted)
        #expect(try await failure(pin) == .serverNotTrusted)
        let stranger = ["token-trust-anchors": server.directory["stranger-ca.pem"]]
        #expect(try await failure(stranger) == .serverNotTrusted)
        #expect(try grants(server).isEmpty)
        #expect(try await failure(elsewhere, anchors) == nil)
        let rightPin = ["token-pin": server.directory["server.pem"]]
        #expect(try await failure(elsewhere, anchors, rightPin) == nil)
        // On the server's own origin its anchors go on to hold beside a pin.
        #expect(try await failure(rightPin) == nil)
        #expect(try grants(server).count == 3)
        let alone = ["token-pin-mode": "pin-only"]
        #expect(try await failure(elsewhere, pin, alone) == .serverNotTrusted)
        #expect(try await failure(elsewhere, rightPin) == .serverNotTrusted)
        #expect(try await failure(elsewhere, rightPin, alone) == nil)
        #expect(try grants(server).count == 4)
    }

    @Test("The user is asked for the client secret if no source is configured")
    func aPersonIsAskedForTheSecret() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let provider = try server.provider(settings(server, ["client-secret-source": ""]))
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .interactionRequired)
        let person = Person("estsecret")
        _ = try await provider.getCertificate(person)
        #expect(server.issued == 1 && person.questions.allSatisfy { $0.contains("estclient") })
    }

    @Test func parametersThatDoNotFitAreRefused() async throws {
        let server = try ESTResponder()
        let bad: [[String: String]] = [
            ["token-url": ""], ["token-url": "http://localhost/token"], ["token-url": "token"],
            ["client-id": ""], ["grant": "implicit"], ["client-authentication": "jwt"],
            ["grant": "password"], ["username": "somebody"], ["scope": "a\"b"],
            ["client-secret-source": "estsecret"], ["bearer-source": "env:TOKEN"],
            ["protocol": "scep", "url": "http://localhost/scep", "key-type": "rsa2048"],
        ]
        for more in bad {
            let code = await code { _ = try server.provider(settings(server, more)) }
            #expect(code == .configurationInvalid, "\(more)")
        }
        let plain = [
            "protocol": "scep", "url": "http://localhost/scep", "key-type": "rsa2048", "username": "",
            "password-source": "", "bearer-source": "env:TOKEN",
        ]
        #expect(await code { _ = try server.provider(plain) } == .configurationInvalid)
        _ = try server.provider(settings(server))
    }
}
