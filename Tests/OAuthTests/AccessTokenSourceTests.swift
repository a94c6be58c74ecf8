import CertificateProviding
import OAuth
import TestSupport
import Testing

/// Against the tests' token endpoint, which Python's `oauthlib` gets tokens from as well.
@Suite(.timeLimit(.minutes(20))) struct AccessTokenSourceTests {
    private let clock = Clock()

    @Test(arguments: [OAuthClient.Authentication.basic, .body])
    func aClientGetsATokenThatIsGood(authentication: OAuthClient.Authentication) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--scope", "enrol status other")
        let tokens = try server.tokens(authentication: authentication, scopes: ["enrol", "status"])
        let token = try await tokens.token()
        #expect(token.scopes == ["enrol", "status"])
        #expect(try server.takes(token))
        #expect(!"\(token)".contains(token.authorization.dropFirst("Bearer ".count)))
        let request = try #require(try server.requests().first)
        #expect((request["authorization"] as? String == "Basic") == (authentication == .basic))
    }

    /// RFC 6749, section 2.3.1: form-encoded before they become Basic's, which has no place for a colon.
    @Test(
        "A client ID and secret with special characters arrive unchanged",
        arguments: [OAuthClient.Authentication.basic, .body])
    func anySecretIsSentAsItIs(authentication: OAuthClient.Authentication) async throws {
        let (id, secret) = ("my: client&=+ü", "100%: a+b=c/d&e \u{20ac}*~")
        let server = try await ESTServer.start("--auth", "oauth", "--client-id", id, "--client-secret", secret)
        let client = try OAuthClient(id, secret: SecretBytes(utf8: secret), authentication: authentication)
        _ = try await AccessTokenSource(server.endpoint(), client: client).token()
        #expect(try server.grants() == ["client_credentials granted"])
    }

    @Test(arguments: [nil, ESTServer.secret]) func aPasswordGetsATokenToo(secret: SecretBytes?) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--password", "p&ss=w%rd +")
        let grant = OAuthGrant.legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: "p&ss=w%rd +"))
        let client = try OAuthClient(ESTServer.clientID, secret: secret)
        let token = try await AccessTokenSource(server.endpoint(), client: client, grant: grant).token()
        #expect(try server.takes(token))
        #expect(try server.grants() == ["password granted"])
    }

    @Test func aTokenIsKeptUntilATenthOfItsLifetimeIsLeft() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--token-lifetime", "1000")
        let tokens = try server.tokens(clock: clock)
        let first = try await tokens.token()
        clock.advance(.seconds(899))
        #expect(try await tokens.token().value == first.value)
        clock.advance(.seconds(2))
        #expect(try await tokens.token().value != first.value)
        #expect(try server.grants().count == 2)
    }

    /// A token is used for nine tenths of its lifetime. A new one is asked for when the first is over: before, a server on a
    /// busy host may need longer than the rest of the time, and the first is still the right answer.
    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: [
            ("absent", 270), ("word", 270), ("null", 270), ("list", 270), ("text", 1620), ("-5", 0), ("0", 0),
            ("huge", 77_760), ("1000000", 77_760), ("100.7", 90),
        ])
    func aLifetimeIsBounded(expires: String, seconds: Int) async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens(fault: "expires-\(expires)", clock: clock)
        let first = try await tokens.token()
        if seconds > 0 {
            clock.advance(.seconds(seconds - 1))
            #expect(try await tokens.token().value == first.value)
            clock.advance(.seconds(seconds / 9 + 2))
        }
        #expect(try await tokens.token().value != first.value)
    }

    @Test func callersShareARequest() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens(fault: "slow-body-300")
        let values = try await withThrowingTaskGroup(of: SecretBytes.self) { group in
            for _ in 0..<50 { group.addTask { try await tokens.token().value } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(values.count == 50 && values.allSatisfy { $0 == values[0] })
        #expect(try server.grants().count == 1)
    }

    @Test func aCallerThatIsCancelledWaitsNoLonger() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens(fault: "hang")
        let callers = (0..<2).map { _ in Task { _ = try await tokens.token() } }
        while try server.grants().isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        #expect(await failure { _ = try await tokens.token(within: .milliseconds(1)) }?.code == .timedOut)
        for caller in callers {
            caller.cancel()
            #expect(await failure { try await caller.value }?.code == .userCancelled)
        }
        #expect(try server.grants().count == 1)
    }

    @Test(
        "If one caller is cancelled, the other one still gets the shared token",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func theOthersWaitOnForTheSharedRequest() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens(fault: "slow-body-1000")
        let patient = Task { try await tokens.token() }
        let cancelled = Task { _ = try await tokens.token() }
        while try server.grants().isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        cancelled.cancel()
        _ = await failure { try await cancelled.value }
        let token = try await patient.value
        #expect(try await tokens.token().value == token.value)
        #expect(try server.grants().count == 1)
    }

    @Test func aTaskThatIsCancelledAlreadyGetsNothing() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens()
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            _ = try await tokens.token()
        }
        #expect(await failure { try await task.value }?.code == .userCancelled)
    }

    @Test func theOldTokenServesWhileThereIsNoNewOne() async throws {
        let (tokens, first) = try await {
            let server = try await ESTServer.start("--auth", "oauth", "--token-lifetime", "1000")
            let tokens = try server.tokens(clock: clock)
            return (tokens, try await tokens.token())
        }()
        // The server is gone.
        clock.advance(.seconds(950))
        #expect(try await tokens.token().value == first.value)
        clock.advance(.seconds(51))
        #expect(await failure { _ = try await tokens.token() } != nil)
    }

    @Test func aRefusedTokenServesNobodyWhileThereIsNoNewOne() async throws {
        let (tokens, first) = try await {
            let server = try await ESTServer.start("--auth", "oauth")
            let tokens = try server.tokens()
            return (tokens, try await tokens.token())
        }()
        #expect(await failure { _ = try await tokens.token(insteadOf: first) } != nil)
        #expect(await failure { _ = try await tokens.token() } != nil)
    }

    @Test(arguments: ["keep", "rotate"]) func aRefreshTokenIsUsed(kind: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", kind)
        let password = OAuthGrant.legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: ESTServer.password))
        let tokens = try server.tokens(grant: password, clock: clock)
        for _ in 0..<3 {
            #expect(try server.takes(try await tokens.token()))
            clock.advance(.seconds(3500))
        }
        #expect(try server.grants() == ["password granted", "refresh_token granted", "refresh_token granted"])
    }

    @Test(
        "Another source goes on with the refresh token of a token, until the server refuses it",
        arguments: ["keep", "rotate"])
    func aRefreshTokenOfAnotherSource(kind: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", kind)
        let password = OAuthGrant.legacyPassword(user: ESTServer.user, password: SecretBytes(utf8: ESTServer.password))
        let first = try #require(try await server.tokens(grant: password).token().refreshToken)
        let token = try await server.tokens(grant: .refreshToken(first)).token()
        #expect(try server.takes(token))
        #expect((token.refreshToken == first) == (kind == "keep"))
        let tokens = try server.tokens(grant: .refreshToken(SecretBytes(utf8: "another")))
        for _ in 0..<2 {
            let refusal = await failure { _ = try await tokens.token() }
            #expect(refusal?.reason == .rejectedGrant && refusal?.message.contains("ask the user to log in") == true)
        }
        #expect(
            try server.grants() == ["password granted", "refresh_token granted", "refresh_token invalid_grant"])
    }

    @Test func whereTheRefreshTokenIsRefusedTheGrantIsAskedAgain() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", "refuse")
        let tokens = try server.tokens(clock: clock)
        _ = try await tokens.token()
        clock.advance(.seconds(3500))
        #expect(try server.takes(try await tokens.token()))
        #expect(
            try server.grants() == [
                "client_credentials granted", "refresh_token invalid_grant", "client_credentials granted",
            ])
    }

    /// Not all servers say `invalid_grant`.
    @Test(arguments: ["invalid_token", "invalid_request", "access_denied"])
    func aRefreshTokenThatIsRefusedInOtherWordsIsGivenUp(word: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", "keep")
        let tokens = try server.tokens(fault: "refresh-error-" + word, clock: clock)
        _ = try await tokens.token()
        clock.advance(.seconds(3500))
        #expect(try server.takes(try await tokens.token()))
        #expect(
            try server.grants() == [
                "client_credentials granted", "refresh_token " + word, "client_credentials granted",
            ])
    }

    @Test(
        "A client's secret that the server refuses with a refresh token is not sent again",
        arguments: ["unauthorized_client-401", "unknown_word-401", "invalid_client"])
    func aRefusedClientIsNotSentAgain(fault: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--refresh-tokens", "keep")
        let tokens = try server.tokens(fault: "refresh-error-" + fault, clock: clock)
        _ = try await tokens.token()
        clock.advance(.seconds(3700))
        for _ in 0..<3 { #expect(await failure { _ = try await tokens.token() }?.code == .rejected) }
        let word = try #require(fault.split(separator: "-").first)
        #expect(try server.grants() == ["client_credentials granted", "refresh_token \(word)"])
    }

    /// A server that cannot answer now is not sent the secret with each call.
    @Test func aServerInTroubleIsNotAskedWithEachCall() async throws {
        let server = try await ESTServer.start(
            "--auth", "oauth", "--refresh-tokens", "keep", "--token-lifetime", "1000")
        let tokens = try server.tokens(fault: "refresh-error-temporarily_unavailable", clock: clock)
        let first = try await tokens.token()
        clock.advance(.seconds(900))
        // A quarter of the hundred seconds that are left, and then one of the rest.
        for (pause, count) in [(0, 2), (24, 2), (2, 3), (15, 3), (4, 4)] {
            clock.advance(.seconds(pause))
            for _ in 0..<3 { #expect(try await tokens.token().value == first.value) }
            #expect(try server.grants().count == count, "\(pause)")
        }
        #expect(try Set(server.grants().dropFirst()) == ["refresh_token temporarily_unavailable"])
        clock.advance(.seconds(60))
        #expect(await failure { _ = try await tokens.token() }?.code == .unavailable)
    }

    // MARK: - Tokens that are refused where they are used

    @Test func aRefusedTokenIsReplacedOnceForAllCallers() async throws {
        let server = try await ESTServer.start("--auth", "oauth", "--token-uses", "1")
        let tokens = try server.tokens()
        let first = try await tokens.token()
        #expect(try server.takes(first))
        #expect(try !server.takes(first))
        let values = try await withThrowingTaskGroup(of: SecretBytes.self) { group in
            for _ in 0..<20 { group.addTask { try await tokens.token(insteadOf: first).value } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(values.allSatisfy { $0 == values[0] && $0 != first.value })
        #expect(try server.grants().count == 2)
        #expect(try await tokens.token().value == values[0])
    }

    @Test("A replacement token that is refused within a minute is not replaced again")
    func replacementsGoRoundInNoLoop() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let tokens = try server.tokens(clock: clock)
        var token = try await tokens.token()
        token = try await tokens.token(insteadOf: token)
        for _ in 0..<5 {
            #expect(await failure { _ = try await tokens.token(insteadOf: token) }?.code == .rejected)
        }
        #expect(try server.grants().count == 2)
        // A server may well forget its tokens another time.
        clock.advance(.seconds(61))
        #expect(try await tokens.token(insteadOf: token).value != token.value)
        #expect(try server.grants().count == 3)
    }
}
