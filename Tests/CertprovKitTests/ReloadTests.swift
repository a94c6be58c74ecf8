import CertprovComposition
import CertprovKit
import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import ProviderTransport
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct ReloadTests {
    @Test("A reload takes a changed property file and ignores one without changes", arguments: FileForm.allCases)
    func aChangedFileIsTaken(form: FileForm) async throws {
        let host = try await ReloadHost(form)
        let before = host.logon.manager
        #expect(try await !host.logon.reload() && host.logon.manager === before)
        try host.configure(["Host": "platform.example", "Passcode.lock-timeout": "60", "TrustAnchors": nil])
        #expect(try await host.logon.reload())
        #expect(host.logon.manager !== before && host.logon.manager.configuration.host == "platform.example")
        #expect(before.configuration.host == "127.0.0.1")
        if case .system = host.logon.trust.anchors {} else { Issue.record("the trust anchors are the old ones") }
        // Another order of the same settings, or the same file once more, is not a change.
        try host.configure(["Host": "platform.example", "Passcode.lock-timeout": " 60 ", "TrustAnchors": nil])
        #expect(try await !host.logon.reload())
        #expect(host.maker.state.withLock(\.made) == ["a"] && host.maker.takeCalls().isEmpty)
        await host.end()
    }

    @Test(arguments: FileForm.allCases) func aMistakeChangesNothing(form: FileForm) async throws {
        let host = try await ReloadHost(form)
        let credentials = try await host.logon.credentials()
        let before = host.logon.manager
        _ = host.maker.takeCalls()
        for (key, value) in [
            ("Port", "http"), ("CertificateProvider", "test, nowhere"), ("CertificateProvider.test.pth", "a"),
            ("UserCreationPolicy", "perhaps"), ("Passcode.lock-timeout", "-1"), ("Passcode.sorce", "x"),
            // The provider is made, and refuses.
            ("CertificateProvider.test.path", "broken"),
        ] {
            try host.configure([key: value])
            let error = await failure { try await host.logon.reload() }
            #expect(error?.code == .configurationInvalid, "\(key): \(String(describing: error))")
            #expect(try error?.message.hasPrefix(host.place(of: key)) == true, "\(String(describing: error))")
        }
        let whole = try Data(contentsOf: URL(filePath: host.path))
        try whole.write(to: URL(filePath: host.path))
        for text in [
            String(decoding: whole, as: UTF8.self) + "CertificateProvider", "CertificateProvider=test\nHost=\\u12",
        ] {
            try text.write(toFile: host.path, atomically: false, encoding: .utf8)
            #expect(await failure { try await host.logon.reload() } != nil)
        }
        try FileManager.default.removeItem(atPath: host.path)
        #expect(await failure { try await host.logon.reload() }?.code == .configurationMissing)
        #expect(host.logon.manager === before && host.maker.takeCalls().isEmpty)
        #expect(try await host.logon.credentials() === credentials)
        try host.configure(["Passcode.lock-timeout": "60"])
        #expect(try await host.logon.reload())
        await host.end()
    }

    @Test func aFileThatChangesWhileItIsReadIsReadAgain() async throws {
        let directory = try TemporaryDirectory()
        let write: @Sendable (Int) throws -> String = { number in
            let lines = "CertificateProvider = pem\nCertificateProvider.pem.certificate = /\(number).pem\n"
            return try directory.write(lines.utf8, to: "a.properties")
        }
        let path = try write(0)
        let reads = Mutex(0)
        let composition = try Composition(
            BuiltIns.all, store: IdentityStore(path: directory["state"]), executor: .threads(), logger: TestLog().logger
        )
        let logon = try CertprovLogon(
            configuredBy: path, composition,
            validate: { _ throws(ProviderError) in
                let count = reads.withLock { reads in
                    reads += 1
                    return reads
                }
                if count == 2 { _ = try? write(count) }
            })
        _ = try write(1)
        // A service that reads the file tries again.
        #expect(await failure { try await logon.reload() }?.reason == .busy)
        #expect(try await logon.reload() && reads.withLock(\.self) == 3)
        await logon.manager.shutdown()
    }

    // MARK: - While registered

    @Test(
        "While registered, a reload refuses changes to the settings of the registration",
        arguments: FileForm.allCases)
    func theRegistrationsSettingsStay(form: FileForm) async throws {
        let host = try await ReloadHost(form)
        try await host.logon.manager.register(host.person)
        let before = host.logon.manager
        _ = host.maker.takeCalls()
        for (key, value) in [
            ("UserCreationPolicy", "automatic"), ("CertificateProvider", "other"), ("Host", "platform.example"),
            ("Port", "4443"), ("HTTPS", "false"), ("URLSuffix", "/elsewhere"), ("FarmID", "7"),
            ("ApplicationId", "com.example.other"), ("Passcode.max-attempts", "3"), ("Passcode.digits", "true"),
            ("Passcode.min-length", "12"), ("Passcode.default-allowed", "true"),
        ] {
            var settings: [String: String?] = [key: value]
            // Parameters of a provider that is not listed are another matter.
            if key == "CertificateProvider" { settings["CertificateProvider.test.path"] = .some(nil) }
            try host.configure(settings)
            let error = await failure { try await host.logon.reload() }
            #expect(error?.code == .configurationInvalid, "\(key): \(String(describing: error))")
            let place =
                try ["Port", "URLSuffix", "FarmID"].contains(key)
                ? host.place(of: "Host") : host.place(of: key)
            #expect(error?.message.hasPrefix(place) == true, "\(String(describing: error))")
        }
        #expect(host.logon.manager === before && host.maker.takeCalls().isEmpty)
        for settings: [String: String?] in [
            ["CertificateProvider": "other, test"], ["Passcode.source": "env:PASSCODE"],
            ["Passcode.lock-timeout": "60"],
            ["SecurityConfiguration": "Cert02"], ["CertificateProvider.test.path": "b"], [:],
        ] {
            try host.configure(settings)
            #expect(try await host.logon.reload(), "\(settings)")
        }
        // The vault is still open, and requests go on.
        #expect(try await host.logon.manager.request(HTTPRequest(target: "/hello")).status == 200)
        await host.end()
    }

    /// The vault knows which provider registered.
    @Test("A reload needs the unlocked vault only if a provider is removed")
    func aLockedVaultIsAskedOnlyIfNecessary() async throws {
        let host = try await ReloadHost(.properties, ["CertificateProvider": "other, test"])
        try await host.logon.manager.register(host.person)
        try await host.logon.manager.lock()
        try host.configure(["CertificateProvider": "test"])
        #expect(await failure { try await host.logon.reload() }?.code == .vaultLocked)
        try host.configure(["CertificateProvider": "test, other", "CertificateProvider.other.path": "b"])
        #expect(try await host.logon.reload())
        #expect(try await host.logon.manager.registrationState() == .registeredLocked)
        try await host.logon.manager.unlock(host.person)
        try host.configure(["CertificateProvider": "test"])
        #expect(try await host.logon.reload())
        await host.end()
    }

    /// Locked by the timer, and a new source of the passcode in the same file.
    @Test("A passcode source that a reload adds opens the locked vault")
    func theNewSourceOpensTheVault() async throws {
        let host = try await ReloadHost(.properties, ["CertificateProvider": "other, test"])
        try await host.logon.manager.register(host.person)
        try host.configure(["CertificateProvider": "other, test", "Passcode.lock-timeout": "60"])
        #expect(try await host.logon.reload())
        try await eventually {
            host.time.pass(.seconds(61))
            return try await host.logon.manager.registrationState() == .registeredLocked
        }
        try host.configure(["Passcode.source": "env:PASSCODE"])
        #expect(try await host.logon.reload())
        #expect(try await host.logon.manager.request(HTTPRequest(target: "/hello")).status == 200)
        await host.end()
    }

    @Test("The managers before and after a reload share the vault")
    func theVaultIsSharedByBothManagers() async throws {
        let host = try await ReloadHost(.properties, ["Passcode.lock-timeout": "600"])
        let old = host.logon.manager
        let states = try old.registrationStates()
        try await old.register(host.person)
        try host.configure(["Passcode.lock-timeout": "60"])
        #expect(try await host.logon.reload())
        let new = host.logon.manager
        #expect(try await new.registrationState() == .registeredUnlocked)
        try await new.lock()
        #expect(try await old.registrationState() == .registeredLocked)
        try await new.unlock(host.person)
        // The new timeout, and without another use.
        try host.configure(["Passcode.lock-timeout": "30"])
        #expect(try await host.logon.reload())
        try await eventually { host.time.sleeps(of: .seconds(30)) > 0 }
        host.time.pass(.seconds(31))
        var seen: [LogonState] = []
        for await state in states {
            seen.append(state)
            if seen.count == 5 { break }
        }
        #expect(
            seen == [.notRegistered, .registeredUnlocked, .registeredLocked, .registeredUnlocked, .registeredLocked])
        await host.end()
    }

    // MARK: - Operations in progress

    @Test("The managers before and after a reload run one operation at a time")
    func oneOperationAtATimeInBothManagers() async throws {
        let host = try await ReloadHost()
        let old = host.logon.manager
        try await old.register(host.person)
        try host.configure(["Passcode.lock-timeout": "60"])
        #expect(try await host.logon.reload())
        let gate = AsyncStream<Void>.makeStream()
        host.maker.state.withLock { $0.gate = gate.stream }
        _ = host.maker.takeCalls()
        async let update = old.updateCertificate(host.person)
        try await eventually { host.maker.state.withLock { $0.calls.contains("get a") } }
        let new = host.logon.manager
        try host.configure()
        #expect(await failure { try await new.updateCertificate(host.person) }?.code == .operationNotAllowed)
        #expect(await failure { try await new.request(HTTPRequest(target: "/hello")) }?.code == .operationNotAllowed)
        #expect(await failure { try await host.logon.reload() }?.code == .operationNotAllowed)
        gate.continuation.finish()
        _ = try await update
        #expect(try await host.logon.reload())
        await host.end()
    }

    /// A request that obtains an identity changes state, so that no provider is replaced until it ends.
    @Test func aRequestEndsWithTheProviderThatItBeganWith() async throws {
        let host = try await ReloadHost()
        try await host.logon.manager.register(host.person)
        let gate = AsyncStream<Void>.makeStream()
        host.maker.state.withLock { state in
            (state.stored, state.calls) = ([], [])
            state.gate = gate.stream
        }
        let request = Task { [logon = host.logon] in try await logon.manager.request(HTTPRequest(target: "/hello")) }
        try await eventually { host.maker.state.withLock { $0.calls.suffix(1) == ["get a"] } }
        try host.configure(["CertificateProvider.test.path": "c"])
        #expect(await failure { try await host.logon.reload() }?.code == .operationNotAllowed)
        #expect(host.maker.state.withLock(\.ended).isEmpty)
        gate.continuation.finish()
        #expect(try await request.value.status == 200)
        #expect(try await host.logon.reload())
        try await eventually { host.time.sleeps(of: CertprovLogon.gracePeriod) == 1 }
        host.time.pass(.seconds(3600))
        try await eventually { host.maker.state.withLock(\.ended) == ["a"] }
        await host.end()
    }

    // MARK: - Credentials

    @Test("A reload with the same provider asks the provider for nothing")
    func theSameProviderIsAskedForNothing() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let credentials = try await host.logon.credentials()
        let identity = credentials.current.identity
        _ = host.maker.takeCalls()
        try host.configure(["ApplicationId": nil, "Host": "platform.example"])
        #expect(try await host.logon.reload())
        #expect(host.maker.takeCalls().isEmpty && host.maker.state.withLock(\.made) == ["a"])
        #expect(credentials.current.identity.certificate == identity.certificate)
        await host.end()
    }

    @Test func anotherProvidersIdentityComesIntoTheSameCredentials() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let credentials = try await host.logon.credentials()
        let renewal = try await host.logon.renewingIdentity()
        let first = credentials.current.identity.certificate
        func isInUse(_ certificate: X509Certificate?) async throws -> Bool {
            credentials.current.identity.certificate == certificate && renewal.current.certificate == certificate
        }
        // It has no identity, or one that is over: the old one stays, with its provider.
        let expired = try host.authority.issue(
            "old", notBefore: Date(timeIntervalSinceNow: -7200), notAfter: Date(timeIntervalSinceNow: -3600))
        host.maker.state.withLock { $0.identities["expired"] = expired }
        func other(_ path: String) -> [String: String?] {
            [
                "ApplicationId": nil, "CertificateProvider": "other", "CertificateProvider.test.path": nil,
                "CertificateProvider.other.path": path,
            ]
        }
        for path in ["nothing", "expired"] {
            let before = host.logon.manager
            try host.configure(other(path))
            #expect(await failure { try await host.logon.reload() } != nil)
            #expect(try await isInUse(first) && host.logon.manager === before)
        }
        try host.configure(other("b"))
        #expect(try await host.logon.reload())
        let second = host.maker.state.withLock { $0.identities["b"]?.certificate }
        #expect(try await isInUse(second))
        #expect(try await host.logon.credentials() === credentials)
        // The renewal asks the new one.
        let renewed = try host.authority.issue("another")
        host.maker.state.withLock { $0.identities["b"] = renewed }
        _ = host.maker.takeCalls()
        try await renewal.renew()
        #expect(host.maker.takeCalls() == ["get b"])
        #expect(try await isInUse(renewed.certificate))
        // And the old one ends when handshakes do not need it any more.
        #expect(host.maker.state.withLock(\.ended).isEmpty)
        try await eventually {
            host.time.pass(CertprovLogon.gracePeriod)
            return host.maker.state.withLock(\.ended) == ["a"]
        }
        await host.end()
    }

    @Test("The key of a new identity signs one probe before it is in use")
    func aNewKeySignsOnce() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let renewal = try await host.logon.renewingIdentity()
        let signatures = BlockingMutex(0)
        let issued = try host.authority.issue("next")
        let next = try issued.with(
            TestKey(issued.key) { message, scheme throws(ProviderError) in
                signatures.withLock { $0 += 1 }
                return try await issued.key.signature(for: message, using: scheme)
            })
        host.maker.state.withLock { $0.identities["a"] = next }
        try await renewal.renew()
        #expect(try await host.logon.credentials().current.identity.certificate == next.certificate)
        #expect(signatures.withLock(\.self) == 1)
        await host.end()
    }

    @Test("Files for other programs follow the configuration and the identity at once")
    func filesFollowAtOnce() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let renewal = try await host.logon.renewingIdentity()
        let service = Task { try await host.logon.renewal.run() }
        func written() -> X509Certificate? {
            try? CertificateFile.read(host.directory["files/current/certificate.pem"]).first
        }
        try host.configure(["ApplicationId": nil, "Files.directory": host.directory["files"]])
        #expect(try await host.logon.reload())
        try await eventually { written() == renewal.current.certificate }
        let next = try host.authority.issue("next")
        host.maker.state.withLock { $0.identities["a"] = next }
        try await renewal.renew()
        try await eventually { written() == next.certificate }
        service.cancel()
        try await service.value
        await host.server.close()
    }

    /// The announcements of the provider that counts now, and the end of all of them with the service.
    @Test func theRenewalFollowsTheNewProvider() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let group = ServiceGroup(services: [host.logon.renewal], logger: .init(label: "test"))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            let renewal = try await host.logon.renewingIdentity()
            try await eventually { host.maker.state.withLock { $0.announcements["a"] != nil } }
            try host.configure(["ApplicationId": nil, "CertificateProvider.test.path": "b"])
            #expect(try await host.logon.reload())
            try await eventually { host.maker.state.withLock { $0.announcements["b"] != nil } }
            let next = try host.authority.issue("next")
            host.maker.state.withLock { state in
                state.identities["b"] = next
                state.announcements["b"]?.yield()
            }
            try await eventually { renewal.current.certificate == next.certificate }
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
        #expect(host.maker.state.withLock { $0.ended.sorted() } == ["a", "b"])
        try host.configure(["ApplicationId": nil])
        #expect(await failure { try await host.logon.reload() }?.code == .operationNotAllowed)
        await host.server.close()
    }

    /// A service in whose handshakes the file changes back and forth.
    @Test("TLS handshakes succeed while the property file is reloaded")
    func handshakesGoOnMeanwhile() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil])
        let credentials = try await host.logon.credentials()
        let configuration = try TLSConfiguration.makeClientConfiguration(
            presenting: credentials, trusting: host.logon.trust.anchors)
        let context = try NIOSSLContext(configuration: configuration)
        let isOver = Flag()
        try await withThrowingTaskGroup(of: Int.self) { tasks in
            for _ in 0..<3 {
                tasks.addTask {
                    var count = 0
                    while !isOver.isSet.withLock(\.self) {
                        try await handshake(with: host.server.port, context)
                        count += 1
                    }
                    return count
                }
            }
            for round in 1...100 {
                try host.configure([
                    "ApplicationId": nil, "CertificateProvider.test.path": round.isMultiple(of: 2) ? "a" : "b",
                ])
                #expect(try await host.logon.reload())
                let certificate = host.maker.state.withLock {
                    $0.identities[round.isMultiple(of: 2) ? "a" : "b"]?.certificate
                }
                #expect(credentials.current.identity.certificate == certificate)
                if round.isMultiple(of: 10) {
                    let before = host.server.log.count
                    try await eventually { host.server.log.count > before }
                }
            }
            isOver.isSet.withLock { $0 = true }
            var count = 0
            for try await one in tasks { count += one }
            #expect(count == host.server.log.count)
        }
        #expect(Set(host.server.log) == ["GET \(PlatformServer.client)", "GET CN=another,O=certprov tests"])
        // Each was obtained once, and all but the last provider end.
        #expect(host.maker.takeCalls().filter { $0.hasPrefix("get") } == ["get a", "get b"])
        try await eventually {
            host.time.pass(CertprovLogon.gracePeriod)
            return host.maker.state.withLock(\.ended).count == 100
        }
        #expect(host.maker.state.withLock(\.made).count == 101)
        await host.end()
    }

    /// Reloads, first credentials, requests, renewals and writes in place, all at once.
    @Test("Reloads, renewals and requests at the same time give no unexpected error")
    func manyThingsAtOnce() async throws {
        let host = try await ReloadHost()
        try await host.logon.manager.register(host.person)
        let settings: [[String: String?]] = [
            ["CertificateProvider.test.path": "a"], ["CertificateProvider.test.path": "b"],
            ["CertificateProvider": "test, other"], ["Passcode.lock-timeout": "60"],
            ["CertificateProvider.test.path": "broken"],
        ]
        // The server knows the user by one name.
        host.maker.state.withLock { $0.identities["b"] = $0.identities["a"] }
        let allowed: Set<ProviderError.Code> = [
            .operationNotAllowed, .configurationInvalid, .configurationMissing, .noCertificateProvider, .pending,
        ]
        @Sendable func attempt(_ body: () async throws -> Void) async throws {
            do { try await body() } catch let error as ProviderError {
                #expect(allowed.contains(error.code), "\(error)")
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for number in 0..<6 {
                tasks.addTask {
                    for round in 0..<40 {
                        switch number {
                        case 0: try host.configure(settings[round % settings.count], inPlace: true)
                        case 1, 2: try await attempt { try await host.logon.reload() }
                        case 3: try await attempt { try await host.logon.renewingIdentity().renew() }
                        default:
                            try await attempt {
                                let answer = try await host.logon.manager.request(HTTPRequest(target: "/hello"))
                                #expect(answer.status == 200)
                            }
                        }
                    }
                }
            }
            try await tasks.waitForAll()
        }
        try host.configure(["CertificateProvider.test.path": "b", "SecurityConfiguration": "Cert02"])
        #expect(try await host.logon.reload())
        let certificate = host.maker.state.withLock { $0.identities["b"]?.certificate }
        #expect(try await host.logon.credentials().current.identity.certificate == certificate)
        #expect(try await host.logon.manager.request(HTTPRequest(target: "/hello")).status == 200)
        await host.end()
    }

    // MARK: - The service that looks at the file

    @Test("A change of Peers.allow is in force within ten seconds, or when the operation in progress ends")
    func peersAreReloadedWithinTenSeconds() async throws {
        let host = try await ReloadHost(.properties, ["ApplicationId": nil, "Peers.allow": "cn:one"])
        let group = ServiceGroup(services: [host.logon.reloading()], logger: .init(label: "test"))
        let peer = try #require(TLSPeer(chain: [try TestAuthority.leaf("one")]))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            var looks = 1
            func passNineSeconds() async throws {
                for _ in 0..<3 {
                    try await eventually { host.time.sleeps(of: .seconds(3)) >= looks }
                    host.time.pass(.seconds(3))
                    looks += 1
                    try await eventually { host.time.sleeps(of: .seconds(3)) >= looks }
                }
            }
            #expect(host.logon.trust.peers.admits(peer))
            try host.configure(["ApplicationId": nil, "Peers.allow": "cn:other"])
            try await passNineSeconds()
            #expect(!host.logon.trust.peers.admits(peer))
            let gate = AsyncStream<Void>.makeStream()
            host.maker.state.withLock { $0.gate = gate.stream }
            async let obtained = host.logon.manager.obtainIdentity(NoUserInteraction())
            try await eventually { host.maker.state.withLock { $0.calls.contains("get a") } }
            try host.configure(["ApplicationId": nil, "Peers.allow": "cn:one"])
            for _ in 0..<5 { try await passNineSeconds() }
            #expect(!host.logon.trust.peers.admits(peer) && host.errors.isEmpty)
            gate.continuation.finish()
            _ = try await obtained
            try await passNineSeconds()
            #expect(host.logon.trust.peers.admits(peer))
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
        await host.end()
    }

    @Test("The reload service takes a file that is stable for two looks, and reports a mistake once")
    func aChangedFileIsFound() async throws {
        let host = try await ReloadHost()
        let group = ServiceGroup(
            services: [host.logon.reloading(every: .seconds(5))], logger: .init(label: "test"))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            func look() async throws {
                let before = host.time.sleeps(of: .seconds(5))
                try await eventually { host.time.sleeps(of: .seconds(5)) >= max(before, 1) }
                host.time.pass(.seconds(5))
                try await eventually { host.time.sleeps(of: .seconds(5)) > max(before, 1) }
            }
            func name() -> String? { host.logon.manager.configuration.host }
            try await look()
            // Half of it, which would be valid: not taken before two looks have seen the same.
            try "CertificateProvider=test\nApplicationId=com.example.app\n".write(
                toFile: host.path, atomically: false, encoding: .utf8)
            try await look()
            try host.configure(["Host": "one.example"], inPlace: true)
            try await look()
            #expect(name() == "127.0.0.1")
            try await look()
            #expect(name() == "one.example")
            // A mistake is reported once, and the next looks go on.
            try host.configure(["Host": "two.example", "Port": "http"])
            for _ in 0..<10 { try await look() }
            #expect(name() == "one.example")
            let place = try host.place(of: "Port")
            let errors = host.errors
            #expect(errors.count == 1 && errors[0].contains(place), "\(errors)")
            try FileManager.default.removeItem(atPath: host.path)
            for _ in 0..<5 { try await look() }
            #expect(host.errors.count == 2 && name() == "one.example")
            try host.configure(["Host": "three.example"])
            for _ in 0..<2 { try await look() }
            #expect(name() == "three.example")
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
        await host.end()
    }
}

private final class Flag: Sendable { let isSet = Mutex(false) }

/// A handshake, and a request, whose response shows that the server has accepted the certificate.
private func handshake(with port: Int, _ context: NIOSSLContext) async throws {
    let done = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: Void.self)
    let connecting = ClientBootstrap(group: done.futureResult.eventLoop)
        .connectTimeout(.minutes(10))
        .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandlers([
                    NIOSSLClientHandler(context: context, serverHostname: nil), FirstBytes(done),
                ])
            }
        }
        .connect(host: "127.0.0.1", port: port)
    connecting.whenFailure { done.fail($0) }
    let channel = try await connecting.get()
    try await channel.writeAndFlush(ByteBuffer(string: "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"))
    try await done.futureResult.get()
    try? await channel.close()
}

private final class FirstBytes: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let done: EventLoopPromise<Void>
    init(_ done: EventLoopPromise<Void>) { self.done = done }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) { done.succeed() }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { done.fail(error) }
    func channelInactive(context: ChannelHandlerContext) { done.fail(ChannelError.eof) }
}
