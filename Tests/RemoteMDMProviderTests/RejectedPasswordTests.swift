import CertificateProviding
import Enrolment
import CertificateTLS
import Foundation
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// A password that the server has rejected is not sent again by itself: servers lock accounts.
@Suite(.timeLimit(.minutes(20))) struct RejectedPasswordTests {
    private func failure(
        _ provider: EnrollingProvider, _ interaction: any UserInteraction = NoUserInteraction()
    ) async -> ProviderError? {
        do { _ = try await provider.getCertificate(interaction) } catch { return error }
        return nil
    }

    private static let typed = ["password-source": "prompt"]

    @Test(arguments: [ESTAuthentication.basic, .digest])
    func aRejectedPasswordIsSentOnce(scheme: ESTAuthentication) async throws {
        let server = try ESTResponder(scheme, .init(password: "another"))
        let storage = InMemoryStorage()
        #expect(await failure(try server.provider(storage: storage))?.message.contains("with the status 401") == true)
        let sent = server.requests.count { $0.authorization != nil }
        #expect(sent > 0)
        // In another run, and in another process.
        for storage in [storage, storage.afterCrash()] {
            let error = await failure(try server.provider(storage: storage))
            #expect(error?.code == .rejected)
            #expect(error?.message.contains("has rejected this password of '\(ESTServer.user)' before") == true)
            #expect(error?.message.contains("'password-source'") == true)
            #expect(error.map { "\($0)".contains(ESTServer.password) } == false)
        }
        #expect(server.requests.count { $0.authorization != nil } == sent)
        // The right one, as soon as it is there.
        let right = try server.provider(storage: storage, variables: ["PASSWORD": "another"])
        #expect(await failure(right) == nil)
    }

    @Test("A listing says that a configured password was rejected, until another one is there")
    func aListingSaysIt() async throws {
        let server = try ESTResponder(.basic, .init(password: "another"))
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage)
        #expect(await provider.listIdentities().choice == nil)
        #expect(await failure(provider)?.code == .rejected)
        let sent = server.requests.count
        guard case .failure(let error)? = await provider.listIdentities().choice else {
            Issue.record("The listing does not say it.")
            return
        }
        #expect(error.code == .rejected && error.reason == .rejectedBefore && error.provider == provider.id)
        let right = try server.provider(storage: storage, variables: ["PASSWORD": "another"])
        #expect(await right.listIdentities().choice == nil && server.requests.count == sent)
    }

    /// Its status is what rejects the password.
    @Test(
        "A rejection counts although the answer is cut off, endless or hangs",
        arguments: ["cut-120", "chunked+cut-120", "no-length+cut-999-raw", "endless", "endless-length", "hang-body"],
        ["", "csrattrs-"])
    func aRejectionNeedsNoBody(fault: String, operation: String) async throws {
        let server = try ESTResponder(.basic, .init(authenticatesWishes: !operation.isEmpty))
        let storage = InMemoryStorage()
        let faults = ["status-401"] + fault.split(separator: "+").map(String.init)
        let label = "fault-" + faults.map { operation + $0 }.joined(separator: "+")
        let timeout = fault == "hang-body" ? "8" : "600"
        let error = await failure(try server.provider(storage: storage, label: label, ["timeout": timeout]))
        #expect(error?.code == .rejected && error?.nativeCode == 401, "\(String(describing: error))")
        #expect(error?.reason == .rejectedPassword)
        // It may end in the middle of a secret.
        #expect(error?.message.contains("out of order") == false)
        #expect(server.requests.count { $0.authorization != nil } == 1)
        #expect(await failure(try server.provider(storage: storage))?.reason == .rejectedBefore)
        #expect(server.requests.count { $0.authorization != nil } == 1)
    }

    /// A token takes seconds for that, and the process may be killed until then.
    @Test("A rejection is recorded before the key of the request is destroyed")
    func aRejectionIsWrittenFirst() async throws {
        let server = try ESTResponder(.basic, .init(password: "another"))
        let names = Mutex<[String]>([])
        let storage = HookedStorage { call, name in
            if case .updatedRecord(isChanged: true) = call { names.withLock { $0.append(name) } }
        }
        let provider = try server.provider(storage: storage)
        #expect(await failure(provider)?.code == .rejected)
        #expect(try await provider.keys.store.list().isEmpty)
        let written = names.withLock(\.self)
        let noted = try #require(written.firstIndex(of: RejectedSecrets.recordName))
        let destroyed = try #require(written.lastIndex { $0.hasPrefix("keys-") })
        #expect(noted < destroyed, "\(written)")
    }

    @Test("A proxy's rejection counts although its answer is cut off")
    func aRejectionOfTheProxyNeedsNoBody() async throws {
        let network = InMemoryNetwork()
        network.listen(on: "proxy", port: 3128, group: network.eventLoopGroup) { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(CutOffProxy()) }
        }
        let session = ServerSession(
            try #require(ServerURL("http://est.example/")),
            ServerSecurity(trust: ServerTrust(trustAnchors: .system), credentials: nil, now: { Date() }),
            through: HTTPProxy("http://proxy:3128", user: "u", password: SecretBytes(utf8: "wrong")),
            timeBudget: TimeBudget(.seconds(600), TurnedClock().retryPolicy),
            transport: Transport(network: network, retryPolicy: TurnedClock().retryPolicy))
        let error = await #expect(throws: ProviderError.self) {
            try await session.response(to: HTTPRequest(target: "/", isRepeatable: true))
        }
        #expect(error?.reason == .rejectedProxyPassword)
        #expect(error?.message.hasPrefix("The proxy proxy:3128 ") == true)
        #expect(network.connectionCount == 1)
    }

    /// RFC 7616, section 3.3. The server may give the first nonce too little time, or each one.
    @Test("A nonce that is too old is no rejection of the password", arguments: [1, 99])
    func aStaleNonceIsAnsweredOnceMore(count: Int) async throws {
        let server = try ESTResponder(.digest, .init(staleAnswers: count))
        let storage = InMemoryStorage()
        let error = await failure(try server.provider(storage: storage))
        #expect((error == nil) == (count == 1), "\(String(describing: error))")
        let enrolments = server.requests.filter { $0.operation == .simpleenroll }
        #expect(enrolments.map(\.status) == [401, 401, count == 1 ? 200 : 401])
        #expect(enrolments.map { $0.authorization != nil } == [false, true, true])
        guard let error else { return }
        #expect(error.code == .rejected && error.underlying == nil)
        // It may be right, and the next run sends it.
        _ = await failure(try server.provider(storage: storage))
        #expect(server.requests.count { $0.authorization != nil } == 4)
    }

    /// The server was wrong, or the account was locked for a while.
    @Test("A rejected password that works when typed is used from its source again")
    func aPasswordThatIsRightAgainComesBackByHand() async throws {
        let storage = InMemoryStorage()
        let server = try ESTResponder(.basic)
        try storage.updateRejectedSecrets {
            $0.insert(
                SecretBytes(utf8: ESTServer.password), for: "password \(ESTServer.user)@localhost:\(server.port)")
        }
        #expect(await failure(try server.provider(storage: storage))?.code == .rejected)
        #expect(server.requests.allSatisfy { $0.authorization == nil })
        let user = Person(ESTServer.password)
        #expect(await failure(try server.provider(storage: storage, Self.typed), user) == nil)
        #expect(user.timesAsked == 1)
        // It counts for the configured one from now on.
        let other = try server.provider(storage: storage, ["subject": "CN=other,O=Example"])
        #expect(await failure(other) == nil)
    }

    @Test func aPasswordThatWasTypedWrongIsNotSentFromAFile() async throws {
        let server = try ESTResponder(.basic, .init(password: "another"))
        let storage = InMemoryStorage()
        let user = Person(ESTServer.password)
        for _ in 0..<2 {
            #expect(await failure(try server.provider(storage: storage, Self.typed), user)?.code == .rejected)
        }
        // A user may type it again.
        let sent = server.requests.count { $0.authorization != nil }
        #expect(user.timesAsked == 2 && sent > 1)
        #expect(await failure(try server.provider(storage: storage))?.code == .rejected)
        #expect(server.requests.count { $0.authorization != nil } == sent)
    }

    /// The current certificate speaks for a renewal, and the password for nothing else.
    @Test func aRenewalGoesWithoutARejectedPassword() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        #expect(await failure(try server.provider(storage: storage)) == nil)
        try storage.updateRejectedSecrets {
            $0.insert(
                SecretBytes(utf8: ESTServer.password), for: "password \(ESTServer.user)@localhost:\(server.port)")
        }
        let log = TestLog()
        #expect(await failure(try server.provider(storage: storage, log: log)) == nil)
        let last = try #require(server.requests.last)
        #expect(last.operation == .simplereenroll && last.authorization == nil)
        #expect(log.warnings.contains { $0.contains("renewing with the current certificate only") })
    }

    /// It authenticates by the current certificate, and the server asks for nothing else.
    @Test("A typed password that a renewal does not send stays rejected")
    func aPasswordThatIsNotSentIsNotAccepted() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        #expect(await failure(try server.provider(storage: storage)) == nil)
        try storage.updateRejectedSecrets {
            $0.insert(
                SecretBytes(utf8: ESTServer.password), for: "password \(ESTServer.user)@localhost:\(server.port)")
        }
        let user = Person(ESTServer.password)
        #expect(await failure(try server.provider(storage: storage, Self.typed), user) == nil)
        #expect(user.timesAsked == 1 && server.requests.last?.authorization == nil)
        let other = try server.provider(storage: storage, ["subject": "CN=other,O=Example"])
        #expect(await failure(other)?.reason == .rejectedBefore)
    }

    @Test func aRenewalThatNeedsARejectedPasswordSaysSo() async throws {
        let server = try ESTResponder([.basic, .certificate])
        let storage = InMemoryStorage()
        chmod(server.directory["manufacturer.key"], 0o600)
        let device = [
            "client-certificate": server.directory["manufacturer.pem"],
            "client-key-source": "file:\(server.directory["manufacturer.key"])",
        ]
        #expect(await failure(try server.provider(storage: storage, device)) == nil)
        try storage.updateRejectedSecrets {
            $0.insert(
                SecretBytes(utf8: ESTServer.password), for: "password \(ESTServer.user)@localhost:\(server.port)")
        }
        let error = await failure(try server.provider(storage: storage, device))
        #expect(error?.code == .rejected && error?.message.contains("with the status 401") == true)
        #expect(error?.message.contains("has rejected this password of '\(ESTServer.user)' before") == true)
    }

    /// The answer says nothing about the password.
    @Test(
        "A failure with 403, 404 or 500 does not mark the password as rejected",
        arguments: ["fault-status-403", "fault-status-500", "fault-status-404"])
    func anotherFailureIsNoRejection(label: String) async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        #expect(await failure(try server.provider(storage: storage, label: label)) != nil)
        #expect(await failure(try server.provider(storage: storage)) == nil)
    }

    @Test func aSecretThatTheTokenEndpointRejectsIsSentOnce() async throws {
        let oauth = [
            "username": "", "password-source": "", "client-id": "estclient", "client-secret-source": "env:SECRET",
        ]
        let byPassword = ["grant": "password", "username": ESTServer.user, "password-source": "env:PASSWORD"]
        for (flags, settings, variables, right, named) in [
            (["--client-secret", "another"], oauth, [:], ["SECRET": "another"], "'client-secret-source'"),
            ([], oauth.merging(byPassword) { $1 }, ["PASSWORD": "wrong"], [:], "'password-source'"),
        ] as [([String], [String: String], [String: String], [String: String], String)] {
            let server = try await ESTServer.start(["--auth", "oauth"] + flags)
            let storage = InMemoryStorage()
            var settings = settings
            settings["token-url"] = "https://localhost:\(server.port)/token"
            #expect(
                await failure(try server.provider(storage: storage, settings, variables: variables))?.code == .rejected)
            let asked = try server.requests().count { $0["operation"] as? String == "token" }
            #expect(asked == 1)
            let error = await failure(try server.provider(storage: storage, settings, variables: variables))
            #expect(error?.code == .rejected && error?.message.contains(named) == true)
            #expect(try server.requests().count { $0["operation"] as? String == "token" } == asked)
            #expect(await failure(try server.provider(storage: storage, settings, variables: right)) == nil)
        }
    }

    /// Keycloak calls a wrong secret `unauthorized_client`.
    @Test(
        "A secret that the token endpoint answers with 401 is sent once, whatever it calls the error",
        arguments: ["unauthorized_client", "unauthorized"], [true, false])
    func anyRejectionByTheTokenEndpointCounts(name: String, hasSecret: Bool) async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let storage = InMemoryStorage()
        var settings = ["client-id": "estclient", "token-url": "https://localhost:\(server.port)/token"]
        if hasSecret {
            settings.merge(["username": "", "password-source": "", "client-secret-source": "env:SECRET"]) { $1 }
        } else {
            settings["grant"] = "password"
        }
        var failing = settings
        failing["token-url"]? += "/fault-token-error-\(name)-401"
        #expect(await failure(try server.provider(storage: storage, failing))?.code == .rejected)
        let error = await failure(try server.provider(storage: storage, settings))
        #expect(error?.reason == .rejectedBefore)
        #expect(error?.message.contains(hasSecret ? "'client-secret-source'" : "'password-source'") == true)
        #expect(try server.requests().count { $0["operation"] as? String == "token" } == 1)
    }

    @Test func aPasswordThatTheProxyRejectsIsSentOnce() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let proxy = try ProxyServer(["--user", ProxyServer.user, "--password", ProxyServer.password])
        let storage = InMemoryStorage()
        func attempt(_ password: String, _ source: String = "env:PROXY") async throws -> ProviderError? {
            let provider = try server.provider(
                storage: storage,
                ["proxy": proxy.url, "proxy-username": ProxyServer.user, "proxy-password-source": source],
                variables: ["PROXY": password])
            return await failure(provider, Person(password))
        }
        #expect(try await attempt("wrong")?.nativeCode == 407)
        let error = try await attempt("wrong")
        #expect(error?.code == .rejected && error?.message.contains("'proxy-password-source'") == true)
        #expect(try proxy.requests().count == 1)
        #expect(try await attempt(ProxyServer.password) == nil)
        // By hand, a rejected one is sent, and comes back if the proxy accepts it.
        let account = "proxy \(ProxyServer.user)@127.0.0.1:\(proxy.port)"
        try storage.updateRejectedSecrets { $0.insert(SecretBytes(utf8: ProxyServer.password), for: account) }
        #expect(try await attempt(ProxyServer.password)?.code == .rejected)
        #expect(try await attempt(ProxyServer.password, "prompt") == nil)
        #expect(try await attempt(ProxyServer.password) == nil)
    }

    @Test("No password is sent if the record of rejected secrets cannot be read")
    func nothingIsSentWhereTheRecordCannotBeRead() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        try storage.updateRecord(named: RejectedSecrets.recordName) { _ in SecretBytes(copying: [2, 0, 0]) }
        let error = await failure(try server.provider(storage: storage))
        #expect(error?.code == .storeReadFailed && error?.message.contains("rejected secrets is damaged") == true)
        #expect(server.requests.allSatisfy { $0.authorization == nil })
    }
}

private final class CutOffProxy: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 100\r\n\r\nThe password"
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: answer)), promise: nil)
        context.close(promise: nil)
    }
}
