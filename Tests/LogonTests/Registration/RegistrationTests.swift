import CertificateProviding
import CertificateTLS
import Foundation
import IdentityStore
import Logging
import NIOCore
import NIOHTTP1
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// Cases outside the state table, against a server and a provider that record the requests.
@Suite(.endsHosts) struct RegistrationTests {
    private let host: RegistrationHost

    init() async throws { host = try await RegistrationHost() }

    /// Only the page of a proxy that misses the certificate is a rejection.
    @Test func otherAnswersAreTheApplications() async throws {
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        host.server.fail("GET", .page(400, "<center>No required SSL certificate was sent</center>"))
        #expect(await failure { try await host.manager.request(HTTPRequest(target: "/hello")) }?.code == .rejected)
        for status in [400, 404, 500] {
            host.server.fail("GET", .status(status))
            #expect(try await host.manager.request(HTTPRequest(target: "/hello")).status == status)
        }
    }

    @Test func theProvidersErrorIsUnchanged() async throws {
        host.provider.get { _ throws(ProviderError) in
            throw ProviderError(.pinIncorrect, "As told.", nativeCode: 17)
        }
        let error = await failure { try await host.manager.register(host.person) }
        #expect(error?.code == .pinIncorrect && error?.message == "As told." && error?.nativeCode == 17)
    }

    @Test(
        "A refusal by the server leaves the application unregistered until the next attempt",
        arguments: [
            (401, ProviderError.Code.rejected), (403, .rejected), (404, .configurationInvalid),
            (400, .rejected), (503, .unavailable), (418, .rejected), (302, .protocolError),
        ])
    func aServerThatRefuses(status: Int, code: ProviderError.Code) async throws {
        host.server.fail("POST", .status(status), .status(status), .status(status))
        let error = await failure { try await host.manager.register(host.person) }  // 8, 9
        #expect(error?.code == code && error?.message.hasSuffix(".") == true, "\(String(describing: error))")
        #expect(host.provider.takeCalls() == ["get"])
        #expect(try await host.manager.registrationState() == .notRegistered)
        // The certificate stays with the provider, and the next attempt asks for the same connection.
        let asked = Set(host.server.log)
        host.server.state.withLock { $0.faults = [:] }
        _ = try await host.manager.register(host.person)
        #expect(Set(host.server.log) == asked && host.server.connections.count == 1)
    }

    /// The user of a registration has no `url` and no `timeout`.
    @Test func messagesNameTheKeysOfARegistration() async throws {
        for (fault, advice) in [
            (PlatformServer.Fault.status(404), "; check ApplicationId, URLSuffix and FarmID."),
            (.redirection("https://other.example/"), " put its target into Host, Port, HTTPS, URLSuffix and FarmID."),
        ] {
            host.server.fail("POST", fault)
            let error = await failure { try await host.manager.register(host.person) }
            #expect(error?.code == .configurationInvalid && error?.message.hasSuffix(advice) == true, "\(error as Any)")
        }
        // Each look at the clock is a minute later.
        let time = Elapsed()
        let start = ContinuousClock.now
        let slow = RetryPolicy(now: { start + time.next(.seconds(61)) }, sleep: { _ in })
        let late = try host.restarted(retryPolicy: slow)
        let error = await failure { try await late.register(host.person) }
        #expect(
            error?.code == .timedOut
                && error?.message.hasSuffix("; check whether it is overloaded, or try again later.") == true,
            "\(error as Any)")
    }

    /// With TLS 1.3, the alert arrives after the handshake: before the request or after it.
    @Test("A certificate refused in the TLS handshake is rejected without a second attempt")
    func aCertificateThatIsRefusedInTheHandshake() async throws {
        host.provider.stored(.success(host.identity))
        host.server.state.withLock { $0.refusesCertificates = true }
        for _ in 0..<10 {
            let error = await failure { try await host.manager.register(host.person) }
            #expect(error?.code == .rejected && error?.nativeCode == 46, "\(String(describing: error))")
        }
        // None was repeated.
        #expect(host.server.state.withLock(\.accepted) == 10 && host.server.log.isEmpty)
        #expect(try await host.manager.registrationState() == .notRegistered)
        host.server.state.withLock { $0.refusesCertificates = false }
        let id = try await host.manager.register(host.person).id

        host.server.state.withLock { $0.refusesCertificates = true }
        let next = try host.restarted()
        try await next.unlock(host.person)
        #expect(await failure { try await next.unregister(host.person) }?.code == .rejected)
        #expect(await failure { try await next.request(HTTPRequest(target: "/hello")) }?.code == .rejected)
        #expect(try await next.registeredConnection() == id)
        host.server.state.withLock { $0.refusesCertificates = false }
        try await next.unregister(host.person)
        #expect(host.server.connections.isEmpty)
    }

    @Test("A TLS alert before the request is reported as the rejection of the certificate")
    func anAlertBeforeTheRequestIsTheReason() async throws {
        host.server.state.withLock { $0.refusesCertificates = true }
        let server = try #require(ServerURL("https://127.0.0.1:\(host.server.port)"))
        let security = ServerSecurity(
            trust: ServerTrust(trustAnchors: .pemFile(host.directory["anchors.pem"])),
            credentials: try TLSCredentials(host.identity), now: { Date() })
        // Many other tests share the threads of tasks.
        let deadline = NIODeadline.now() + .minutes(30)
        let connection = try await ServerConnection.open(server, security, deadline: deadline)
        while connection.isOpen { try await Task.sleep(for: .milliseconds(2)) }
        let error = await failure {
            try await connection.response(to: HTTPRequest(target: "/"), limit: 100, deadline: deadline)
        }
        #expect(error?.code == .rejected && error?.reason == .rejectedCertificate, "\(String(describing: error))")
    }

    @Test func anAnswerThatIsLostMakesNoSecondConnection() async throws {
        host.server.fail("POST", .noAnswer, .noAnswer, .noAnswer)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .unavailable)
        // As after a kill: another process with the same files.
        let id = try await host.restarted().register(host.person).id
        #expect(host.server.connections == [id.description: PlatformServer.client])
    }

    @Test func aServerWithoutAnIDIsNotBelieved() async throws {
        host.server.state.withLock { $0.tells = [] }
        #expect(await failure { try await host.manager.register(host.person) }?.code == .protocolError)
        #expect(try await host.manager.registrationState() == .notRegistered)
    }

    /// nginx with `ssl_verify_client on`, which has done the handshake by then.
    @Test(
        "A proxy's page about a missing client certificate is reported as a rejection",
        arguments: [
            "<center>No required SSL certificate was sent</center>", "<center>The SSL certificate error</center>",
        ])
    func aProxyThatMissesTheCertificate(page: String) async throws {
        let password = try host.restarted(
            [
                "UserCreationPolicy": "automatic", "Registration.username": PlatformServer.user.0,
                "Registration.password-source": "env:PASSWORD",
            ], variables: ["PASSWORD": PlatformServer.user.1])
        for (manager, advice) in [(host.manager, "the certificate of '"), (password, "requires a client certificate")] {
            host.server.fail("POST", .page(400, page))
            let error = await failure { try await manager.register(host.person) }
            #expect(error?.code == .rejected && error?.message.contains(advice) == true, "\(String(describing: error))")
            #expect(try await manager.registrationState() == .notRegistered)
        }
    }

    /// A password needs TLS, unless the server is on this host.
    @Test("Without TLS, a password registers only at a server on the same host")
    func withoutTLSOnlyWithinTheHost() async throws {
        let plain = try await PlatformServer(TestAuthority(), isSecure: false)
        let host = try await RegistrationHost(
            settings: [
                "UserCreationPolicy": "automatic", "Registration.username": PlatformServer.user.0, "HTTPS": "false",
                "Port": "\(plain.port)",
            ])
        host.person.answer("Password", with: PlatformServer.user.1)
        let id = try await host.manager.register(host.person).id
        #expect(plain.connections == [id.description: "alice"])
        let elsewhere = try host.restarted(["Host": "platform.example", "ApplicationId": "com.example.other"])
        let error = failure { try elsewhere.configuration.checkRegistration() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("in the clear") == true)
        await plain.close()
    }

    @Test func withoutARegistrationThereIsNothingToLeave() async throws {
        try await host.manager.unregister(host.person)
        try await host.manager.unregisterByForce(host.person)
        #expect(host.provider.calls.isEmpty && host.server.log.isEmpty)
    }

    @Test("An unregistration that was killed in the middle of the vault is completed by the next")
    func theRestOfAVaultGoesWithTheNextUnregistration() async throws {
        _ = try await host.register()
        let files = "applications/com.example.app"
        // Once the key is gone, this file shows that the rest is to go, too.
        try Data().write(to: URL(filePath: host.directory["\(files)/vault/.incomplete"]))
        #expect(unlink(host.directory["\(files)/vault/key"]) == 0)
        let manager = try host.restarted()
        #expect(try await manager.registrationState() == .notRegistered)
        try await manager.unregister(host.person)
        #expect(host.directory.contents().filter { $0.hasPrefix("\(files)/") && !$0.contains("/.") } == [])
    }

    @Test("An unregistration of nothing keeps the id of a registration that had no answer")
    func whatARegistrationHasLeftStays() async throws {
        let host = try await RegistrationHost(
            settings: [
                "UserCreationPolicy": "automatic", "Registration.username": PlatformServer.user.0,
                "Registration.password-source": "env:PASSWORD",
            ], variables: ["PASSWORD": PlatformServer.user.1])
        host.server.fail("POST", .noAnswer)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .unavailable)
        try await host.manager.unregister(host.person)
        let before = host.server.connections
        _ = try await host.manager.register(host.person)
        #expect(!before.isEmpty && host.server.connections.keys.sorted() == before.keys.sorted())
    }

    /// Data of another place about the connection does not count.
    @Test("unregister is refused if the settings name another server or path")
    func onlyTheServerThatRegisteredIsAskedToForget() async throws {
        let id = try await host.register()
        host.provider.stored(.success(host.identity))
        let moved = try host.restarted(["URLSuffix": "/elsewhere"])
        try await moved.unlock(host.person)
        let error = await failure { try await moved.unregister(host.person) }
        #expect(error?.code == .configurationInvalid && error?.message.contains("/elsewhere") == true)
        #expect(try await moved.registeredConnection() == id && host.server.connections.count == 1)
    }

    /// An id belongs to the user whom it was chosen for: another one's attempt asks for another id.
    @Test func anotherUserGetsAnotherConnection() async throws {
        host.server.fail("POST", .noAnswer, .noAnswer, .noAnswer)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .unavailable)
        host.provider.obtain(try host.server.authority.issue("another"))
        let id = try await host.manager.register(host.person).id
        #expect(
            host.server.connections.count == 2 && host.server.connections[id.description]?.contains("another") == true)
    }

    /// A vault whose key is damaged can be destroyed, and what an attempt has left.
    @Test func forceDestroysADamagedVault() async throws {
        _ = try await host.register()
        try Data("x".utf8).write(to: URL(filePath: host.directory["applications/com.example.app/vault/key"]))
        let manager = try host.restarted()
        #expect(await failure { try await manager.unregister(host.person) }?.code == .storeReadFailed)
        try await manager.unregisterByForce(host.person)
        #expect(try await manager.registrationState() == .notRegistered)
        host.server.fail("POST", .noAnswer, .noAnswer, .noAnswer)
        #expect(await failure { try await manager.register(host.person) }?.code == .unavailable)
        try await manager.unregisterByForce(host.person)
        let before = host.server.connections
        _ = try await manager.register(host.person)
        #expect(host.server.connections.count == before.count + 1)
    }

    /// It is not said to be another configuration.
    @Test("An unreadable registration record is an error that advises a forced unregistration")
    func aRecordThatCannotBeReadIsNamed() async throws {
        _ = try await host.register()
        try host.vault.storage(for: ProviderID("registration_")).updateRecord(named: "connection") { _ in
            SecretBytes(utf8: "{}")
        }
        let manager = try host.restarted()
        try await manager.unlock(host.person)
        for error in [
            await failure { try await manager.register(host.person) },
            await failure { try await manager.request(HTTPRequest(target: "/hello")) },
            await failure { try await manager.unregister(host.person) },
        ] {
            #expect(error?.code == .storeReadFailed, "\(String(describing: error))")
            #expect(error?.message.contains("certprov unregister --force") == true, "\(String(describing: error))")
        }
        try await manager.unregisterByForce(host.person)
    }

    /// Mistakes in the trust are found before a certificate is obtained.
    @Test func wrongTrustIsFoundBeforeTheProviderIsAsked() async throws {
        for settings in [["Registration.pin": "sha256/short"], ["TrustAnchors": "/nonexistent.pem"]] {
            let manager = try host.restarted(settings)
            #expect(await failure { try await manager.register(host.person) } != nil)
        }
        #expect(host.provider.calls.isEmpty)
    }

    /// A process that had the vault unlocked registers again after another one has destroyed it.
    @Test func aVaultThatAnotherProcessDestroysIsNoHindrance() async throws {
        _ = try await host.register()
        try await host.restarted().unregisterByForce(host.person)
        #expect(try await host.manager.registrationState() == .notRegistered)
        #expect(try await host.manager.register(host.person).isNew)
    }

    @Test("With a missing or wrong configuration, neither provider nor server is asked")
    func aMissingOrWrongFileAsksNobody() async throws {
        #expect(
            failure { try LogonConfiguration.load(path: "/nonexistent", registry: try registry()) }?.code
                == .configurationMissing)  // 1
        for (key, value) in [("ApplicationId", "a/b"), ("Passcode.digits", "perhaps"), ("Passcode.sorce", "x")] {
            let error = failure { try host.restarted([key: value]) }
            #expect(error?.code == .configurationInvalid && error?.message.contains("'\(key)'") == true)
        }
        for (key, value) in [
            ("Host", nil), ("Port", nil), ("SecurityConfiguration", nil), ("URLSuffix", "a b"), ("FarmID", "ä"),
        ] {
            let manager = try host.restarted([key: value])
            let error = await failure { try await manager.register(host.person) }
            #expect(error?.code == .configurationInvalid, "\(key): \(String(describing: error))")
        }
        #expect(host.provider.calls.isEmpty && host.server.log.isEmpty)
    }

    @Test("A second changing operation is refused while the first one runs")
    func oneOperationAtATime() async throws {
        let (started, release) = (AsyncStream<Void>.makeStream(), AsyncStream<Void>.makeStream())
        let identity = host.identity
        host.provider.get { _ throws(ProviderError) in
            started.continuation.yield()
            for await _ in release.stream { break }
            return identity
        }
        let other = try host.restarted()
        async let registration = host.manager.register(host.person)
        for await _ in started.stream { break }
        for manager in [host.manager, other] {
            #expect(await failure { try await manager.register(host.person) }?.code == .operationNotAllowed)
        }
        #expect(
            await failure { try await host.manager.request(HTTPRequest(target: "/")) }?.code == .operationNotAllowed)
        release.continuation.yield()
        _ = try await registration
        #expect(host.server.log.count == 1)
    }

    @Test("Each request names the security configuration and the domain")
    func eachRequestNamesTheSecurityConfiguration() async throws {
        let host = try await RegistrationHost(settings: ["SecurityConfiguration": "Cert02", "Domain": "default"])
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        var request = HTTPRequest(target: "/hello")
        request.headers.add(name: "X-SUP-SC", value: "another")
        _ = try await host.manager.request(request)
        let without = try host.restarted(["SecurityConfiguration": "SSO", "Domain": nil])
        try await without.unlock(host.person)
        _ = try await without.request(request)
        try await host.manager.unregister(host.person)
        #expect(
            host.server.state.withLock(\.securityFields)
                == ["Cert02|default", "Cert02|default", "SSO|", "Cert02|default"])
        let unsafe = try host.restarted(["SecurityConfiguration": "é"])
        let error = failure { try unsafe.configuration.checkRegistration() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("SecurityConfiguration") == true)
    }

    @Test("An operation beside another process's says whose it is")
    func anotherProcessIsNamed() async throws {
        let lease = try host.restartedVault().leaseOperation()
        let error = await failure { try await host.manager.register(host.person) }
        #expect(error?.code == .operationNotAllowed && error?.reason == .busy)
        #expect(error?.message.contains("of this process") == true, "\(String(describing: error))")
        withExtendedLifetime(lease) {}
    }

    @Test func requestsKeepTheirConnections() async throws {
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        let before = host.server.state.withLock(\.accepted)
        for _ in 0..<TestLength.rounds(50, soak: 1000) {
            _ = try await host.manager.request(HTTPRequest(target: "/hello"))
        }
        #expect(host.server.state.withLock(\.accepted) == before)
        // They overlap, and each is answered.
        try await withThrowingTaskGroup(of: Int.self) { tasks in
            for _ in 0..<40 { tasks.addTask { try await host.manager.request(HTTPRequest(target: "/hello")).status } }
            for try await status in tasks { #expect(status == 200) }
        }
    }

    @Test("While registered, only the provider that registered is asked")
    func onlyTheProviderThatRegisteredCounts() async throws {
        let host = try await RegistrationHost(settings: ["CertificateProvider": "other, test"])
        _ = try await host.manager.register(host.person)
        // The first in the order has nothing, and is not asked any more.
        _ = host.provider.takeCalls()
        host.provider.stored(.success(nil))
        _ = try await host.manager.identity(host.person)
        #expect(host.provider.takeCalls() == ["stored", "get"])
        #expect(host.manager.decisions.map(\.provider) == [ProviderID("test"), ProviderID("test")])
    }

    @Test("The stream of registration states shows each change")
    func theStatesAreFollowed() async throws {
        let states = try host.manager.registrationStates()
        _ = try await host.register()
        try await host.manager.lock()
        try await host.manager.unregisterByForce(host.person)
        var seen: [LogonState] = []
        for await state in states {
            seen.append(state)
            if seen.count == 4 { break }
        }
        #expect(seen == [.notRegistered, .registeredUnlocked, .registeredLocked, .notRegistered])
    }
}
