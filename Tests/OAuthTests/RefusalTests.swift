import CertificateProviding
import OAuth
import TestSupport
import Testing

/// The answers of a token endpoint that issues no token.
@Suite(.timeLimit(.minutes(20))) struct RefusalTests {
    private let server: ESTServer

    init() async throws { server = try await ESTServer.start("--auth", "oauth") }

    private typealias Code = ProviderError.Code

    @Test("The error passes on the code and description of the token endpoint")
    func whatTheServerSaysIsPassedOn() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--scope", "enrol")
        let wrong = SecretBytes(utf8: "not-this-one")
        let cases: [(AccessTokenSource, Code, String, String, Int)] = [
            (
                try server.tokens(secret: wrong), .rejected, "invalid_client",
                "The client is unknown or its secret is wrong.", 401
            ),
            (
                try server.tokens(scopes: ["other"]), .configurationInvalid, "invalid_scope",
                "The scopes here are: enrol.", 400
            ),
            (
                try server.tokens(grant: .legacyPassword(user: ESTServer.user, password: wrong)), .rejected,
                "invalid_grant", "The user name or the password is wrong.", 400
            ),
            (
                try server.tokens(fault: "error-temporarily_unavailable"), .unavailable, "temporarily_unavailable",
                "It is told to.", 400
            ),
        ]
        for (tokens, code, name, description, status) in cases {
            let error = await failure { _ = try await tokens.token() }
            #expect(error?.code == code)
            let reasons = ["invalid_client": ProviderError.Reason.rejectedClient, "invalid_grant": .rejectedGrant]
            #expect(error?.reason == reasons[name])
            let refusal = try #require(error?.underlying as? OAuthRefusal)
            #expect(refusal.error == name && refusal.errorDescription == description)
            #expect(refusal.status == status && refusal.errorURI == nil)
            #expect(error?.message.contains("\(name) (\(description))") == true)
            #expect(!"\(String(describing: error))".contains("not-this-one"))
        }
    }

    @Test func aRefusedPasswordIsNotSentAgain() async throws {
        let tokens = try server.tokens(
            grant: .legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: "wrong")))
        for _ in 0..<3 { #expect(await failure { _ = try await tokens.token() }?.code == .rejected) }
        #expect(try server.grants() == ["password invalid_grant"])
    }

    /// RFC 6749 has the status for the client alone, but some servers say it of the user too.
    @Test(
        "A 401 refuses the secrets, whatever the token endpoint calls it",
        arguments: ["error-unauthorized_client-401", "error-unauthorized-401", "error-server_error-401", "status-401"])
    func aRefusalIsKnownByItsStatus(fault: String) async throws {
        let tokens = try server.tokens(
            fault: fault, grant: .legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: "wrong")))
        for _ in 0..<2 {
            let error = await failure { _ = try await tokens.token() }
            #expect(error?.code == .rejected && error?.nativeCode == 401)
            #expect(error?.message.contains("check the client's identifier and secret") == true)
        }
        #expect(try server.grants().count == 1)
    }

    @Test("Control characters in the token endpoint's error are escaped")
    func itsTextCanSteerNoTerminal() async throws {
        let error = await failure { _ = try await server.tokens(fault: "loud-error").token() }
        let refusal = try #require(error?.underlying as? OAuthRefusal)
        #expect(refusal.error == "invalid_request\\1b[2J")
        #expect(refusal.errorDescription?.hasPrefix("a\\0d\\0ab\\e280aeccc") == true)
        #expect(refusal.errorURI?.hasPrefix("https://example.com/\\07ddd") == true)
        let message = try #require(error?.message)
        #expect(message.utf8.count < 2000 && message.unicodeScalars.allSatisfy { $0.value >= 0x20 })
    }

    @Test(arguments: ["header", "body"], [OAuthClient.Authentication.basic, .body])
    func aSecretThatTheServerRepeatsIsNotShown(
        part: String, authentication: OAuthClient.Authentication
    ) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--client-secret", "top&secret")
        let password = OAuthGrant.legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: "p?ss"))
        let tokens = try server.tokens(
            fault: "echo-\(part)", secret: SecretBytes(utf8: "top&secret"), authentication: authentication,
            grant: password)
        let error = try #require(await failure { _ = try await tokens.token() })
        #expect(error.message.contains("What is this:"))
        let text = "\(error) \(String(describing: error.underlying))".lowercased()
        for secret in ["top&secret", "top%26secret", "p?ss", "p%3Fss", "ZXN0Y2xpZW50OnRvcCUyNnNlY3JldA=="] {
            #expect(!text.contains(secret.lowercased()), "\(secret)")
        }
    }

    @Test(
        "An unusable answer of the token endpoint gives the expected error code",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: [
            ("type-mac", Code.protocolError), ("type-absent", .protocolError), ("type-BEARER", nil),
            ("split-token", .protocolError), ("not-json", .protocolError), ("array", .protocolError),
            ("deep-7", nil), ("deep-8", .protocolError), ("deep-20000", .protocolError), ("large-60000", nil),
            ("large-70000", .protocolError), ("endless", .protocolError), ("endless-length", .protocolError),
            ("headers-endless", .protocolError), ("wrong-type", .protocolError), ("cut-40", .protocolError),
            ("close-after-request", .unavailable), ("half-close", .unavailable), ("status-500", .unavailable),
            ("status-429-retry-5", .unavailable), ("status-404", .configurationInvalid), ("status-403", .rejected),
            ("status-204", .protocolError), ("slow-body", nil), ("chunked", nil), ("no-length", nil),
        ])
    func whatCannotBeUsedIsATypedError(fault: String, code: ProviderError.Code?) async throws {
        let error = await failure { _ = try await server.tokens(fault: fault).token() }
        #expect(error?.code == code, "\(String(describing: error))")
        if fault.hasSuffix("retry-5") {
            #expect(error?.retryAfter == .seconds(5) && error?.message.contains("; try again after 20") == true)
        }
    }

    @Test(
        "A token request that takes too long fails with a timeout",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: ["hang", "drip", "hang-body"])
    func whatTakesTooLongIsGivenUp(fault: String) async throws {
        let tokens = try server.tokens(fault: fault, timeout: .seconds(2))
        // Without the deadline it never ends.
        #expect(await failure { _ = try await tokens.token() }?.code == .timedOut)
    }
}
