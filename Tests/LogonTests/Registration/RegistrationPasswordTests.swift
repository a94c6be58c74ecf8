import CertificateProviding
import Foundation
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// A password that the server has rejected is not sent again by itself.
@Suite(.endsHosts) struct RegistrationPasswordTests {
    private static let settings: [String: String?] = [
        "UserCreationPolicy": "automatic", "Registration.username": PlatformServer.user.0,
        "Registration.password-source": "env:PASSWORD",
    ]
    private let hello = HTTPRequest(target: "/hello")

    private func host(
        _ password: String = PlatformServer.user.1, clock: WallClock = WallClock()
    ) async throws -> RegistrationHost {
        try await RegistrationHost(settings: Self.settings, variables: ["PASSWORD": password], now: { clock.now })
    }

    private func refusals(_ host: RegistrationHost) -> Int { host.server.log.count { $0.hasSuffix("refused") } }

    @Test("A rejected password from a source is sent once")
    func ofASourceItIsSentOnce() async throws {
        let host = try await host("wrong")
        for _ in 0..<3 {
            let error = await failure { try await host.manager.register(host.person) }
            #expect(error?.code == .rejected, "\(String(describing: error))")
            #expect(refusals(host) == 1)
        }
        // Nor by another process.
        let next = await failure { try await host.restarted().register(host.person) }
        #expect(next?.message.contains("register --ask") == true && refusals(host) == 1, "\(String(describing: next))")
        // The user may always try; this password is known as wrong, too.
        host.person.answer("Password", with: "wrong as well")
        #expect(await failure { try await host.manager.register(host.person, asksForSecrets: true) }?.code == .rejected)
        #expect(await failure { try await host.manager.register(host.person, asksForSecrets: true) }?.code == .rejected)
        #expect(refusals(host) == 3)
        let other = try host.restarted(variables: ["PASSWORD": "wrong as well"])
        #expect(await failure { try await other.register(host.person) }?.code == .rejected)
        #expect(refusals(host) == 3)
        // The source is corrected.
        let corrected = try host.restarted(variables: ["PASSWORD": PlatformServer.user.1])
        _ = try await corrected.register(host.person)
        #expect(try await corrected.request(hello).status == 200 && host.server.connections.count == 1)
    }

    /// A password that was rejected before the registration may be right after it.
    @Test func whatWasRejectedBeforeTheRegistrationIsForgottenWithIt() async throws {
        let host = try await host("later")
        #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected)
        let right = try host.restarted(variables: ["PASSWORD": PlatformServer.user.1])
        _ = try await right.register(host.person)
        await right.shutdown()
        host.server.state.withLock { $0.password = "later" }
        let stale = try host.restarted(variables: ["PASSWORD": PlatformServer.user.1])
        try await stale.unlock(host.person)
        #expect(await failure { try await stale.request(hello) }?.code == .rejected)
        let next = try host.restarted(variables: ["PASSWORD": "later"])
        try await next.unlock(host.person)
        #expect(try await next.request(hello).status == 200)
    }

    @Test func anotherActivationCodeIsAnotherAttempt() async throws {
        let more: [String: String?] = [
            "UserCreationPolicy": "manual", "Registration.activation-code-source": "env:CODE",
        ]
        let host = try await RegistrationHost(
            settings: Self.settings.merging(more) { $1 }, variables: ["PASSWORD": "wrong", "CODE": "one"])
        for _ in 0..<2 { #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected) }
        let next = try host.restarted(variables: ["CODE": "two"])
        for _ in 0..<2 { #expect(await failure { try await next.register(host.person) }?.code == .rejected) }
        #expect(refusals(host) == 2)
    }

    @Test("A 403, or a 401 without a challenge, does not mark the password as rejected")
    func aRefusalOfTheUserIsNotOneOfThePassword() async throws {
        let host = try await host()
        // A 401 without a challenge is of a proxy that has not asked for a password.
        for fault in [PlatformServer.Fault.page(403, PlatformServer.error), .status(401)] {
            host.server.fail("POST", fault)
            #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected)
        }
        _ = try await host.manager.register(host.person)
    }

    @Test func anEmptyPasswordIsNotSent() async throws {
        let host = try await host("")
        #expect(await failure { try await host.manager.register(host.person) }?.code == .configurationInvalid)
        #expect(host.server.log.isEmpty)
        let next = try host.restarted(variables: ["PASSWORD": PlatformServer.user.1])
        _ = try await next.register(host.person)
        let error = await failure { try await next.changePassword(to: SecretBytes(utf8: "")) }
        #expect(error?.code == .configurationInvalid && refusals(host) == 0)
        #expect(try await next.request(hello).status == 200)
    }

    @Test func aPasswordThatWasChangedAtTheServerIsSentOnce() async throws {
        let host = try await host()
        _ = try await host.manager.register(host.person)
        host.server.state.withLock { $0.password = "changed" }
        await host.manager.shutdown()  // Its connections know the former one.
        for _ in 0..<3 {
            let error = await failure { try await host.manager.request(hello) }
            #expect(error?.code == .rejected, "\(String(describing: error)) \(host.server.log)")
            #expect(refusals(host) == 1)
        }
        let next = try host.restarted()
        try await next.unlock(host.person)
        let error = await failure { try await next.request(hello) }
        #expect(error?.message.contains("certprov password") == true, "\(String(describing: error))")
        #expect(await failure { try await next.unregister(host.person) }?.code == .rejected)
        #expect(refusals(host) == 1)

        // A new one must be right.
        #expect(await failure { try await next.changePassword(to: SecretBytes(utf8: "x")) }?.code == .rejected)
        #expect(refusals(host) == 2)
        #expect(await failure { try await next.request(hello) }?.code == .rejected)
        #expect(refusals(host) == 2)
        try await next.changePassword(to: SecretBytes(utf8: "changed"))
        #expect(try await next.request(hello).status == 200)
        #expect(try await host.manager.request(hello).status == 200, "Also in the other process.")
        // A wrong new one, while the former one works, changes nothing.
        #expect(await failure { try await next.changePassword(to: SecretBytes(utf8: "x")) }?.code == .rejected)
        #expect(try await next.request(hello).status == 200)
        try await next.unregister(host.person)
        #expect(host.server.connections.isEmpty)
    }

    @Test func aNewPasswordInTheSourceIsTaken() async throws {
        let host = try await host()
        _ = try await host.manager.register(host.person)
        host.server.state.withLock { $0.password = "changed" }
        await host.manager.shutdown()
        #expect(await failure { try await host.manager.request(hello) }?.code == .rejected)
        // Wrong again, for many requests at once.
        let wrong = try host.restarted(variables: ["PASSWORD": "wrong"])
        try await wrong.unlock(host.person)
        await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<8 { tasks.addTask { await failure { try await wrong.request(hello) }?.code } }
            for await code in tasks { #expect(code == .rejected || code == .operationNotAllowed) }
        }
        #expect(await failure { try await wrong.request(hello) }?.code == .rejected)
        #expect(refusals(host) == 2)
        // The former one is known to be wrong.
        let former = try host.restarted()
        try await former.unlock(host.person)
        #expect(await failure { try await former.request(hello) }?.code == .rejected)
        #expect(refusals(host) == 2)
        let right = try host.restarted(variables: ["PASSWORD": "changed"])
        try await right.unlock(host.person)
        #expect(try await right.request(hello).status == 200)
        #expect(refusals(host) == 2)
    }

    @Test("A registration by certificate has no password to change")
    func aCertificateHasNoPassword() async throws {
        let host = try await RegistrationHost()
        #expect(await failure { try await host.manager.changePassword(to: SecretBytes(utf8: "x")) }?.code == .notFound)
        _ = try await host.register()
        let error = await failure { try await host.manager.changePassword(to: SecretBytes(utf8: "x")) }
        #expect(error?.code == .operationNotAllowed && error?.message.contains("certificate") == true)
    }

    /// In no file as it is.
    @Test func thePasswordIsInTheVaultOnly() async throws {
        let host = try await host("a password to search for")
        host.server.state.withLock { $0.password = "a password to search for" }
        _ = try await host.manager.register(host.person)
        var files = 0
        for file in host.directory.contents() where !file.hasSuffix("properties") {
            guard FileStatus(host.directory[file])?.isRegular == true else { continue }
            let data = try Data(contentsOf: URL(filePath: host.directory[file]))
            #expect(data.range(of: Data("search for".utf8)) == nil, "\(file)")
            files += 1
        }
        #expect(files >= 3, "\(host.directory.contents())")
    }

    @Test("Another server than that of the registration gets no password")
    func anotherPlaceGetsNoPassword() async throws {
        let host = try await host()
        _ = try await host.manager.register(host.person)
        let before = host.server.log
        let moved = try host.restarted(["URLSuffix": "/elsewhere"])
        try await moved.unlock(host.person)
        for error in [
            await failure { try await moved.request(hello) },
            await failure { try await moved.changePassword(to: SecretBytes(utf8: "x")) },
        ] {
            #expect(error?.code == .configurationInvalid && error?.message.contains("/elsewhere") == true)
        }
        #expect(host.server.log == before)
        let back = try host.restarted()
        try await back.unlock(host.person)
        #expect(try await back.request(hello).status == 200)
    }

    // MARK: - Without an answer

    @Test(
        "A password that gets no answer is sent twice at once, then after an hour, then once a day",
        arguments: [
            PlatformServer.Fault.ignored, .status(503), .status(401), .status(403), .status(404),
            .page(400, "<html></html>"),
        ])
    func withoutAnAnswerItIsSentAFewTimes(fault: PlatformServer.Fault) async throws {
        let clock = WallClock()
        let host = try await host("wrong", clock: clock)
        host.server.state.withLock { $0.faults["refused"] = [fault] }
        func runs() async throws -> [ProviderError.Code?] {
            var codes: [ProviderError.Code?] = []
            for _ in 0..<4 {
                // Each by another process.
                let manager = try host.restarted()
                codes.append(await failure { try await manager.register(host.person) }?.code)
                await manager.shutdown()
            }
            return codes
        }
        let code: ProviderError.Code =
            switch fault {
            case .status(401), .status(403), .page: .rejected
            case .status(404): .configurationInvalid
            default: .unavailable
            }
        #expect(try await runs() == [code, code, .operationNotAllowed, .operationNotAllowed])
        #expect(refusals(host) == 2)
        let waiting = await failure { try await host.manager.register(host.person) }
        #expect(waiting?.message.contains("2 times") == true && waiting?.message.contains("--ask") == true)
        #expect(waiting?.retryAfter == .seconds(3600))
        clock.pass(3600)
        #expect(try await runs() == [code, .operationNotAllowed, .operationNotAllowed, .operationNotAllowed])
        clock.pass(3600)
        #expect(try await runs().allSatisfy { $0 == .operationNotAllowed } && refusals(host) == 3)
        clock.pass(82800)
        #expect(try await runs().first == code && refusals(host) == 4)
        // A clock that was set back begins the pause anew.
        clock.pass(-80000)
        #expect(try await runs().allSatisfy { $0 == .operationNotAllowed } && refusals(host) == 4)
        clock.pass(86400)
        #expect(try await runs().first == code && refusals(host) == 5)

        // Another one begins anew, and so does one that a user types.
        let other = try host.restarted(variables: ["PASSWORD": "wrong as well"])
        #expect(await failure { try await other.register(host.person) }?.code == code)
        host.person.answer("Password", with: "wrong")
        #expect(await failure { try await other.register(host.person, asksForSecrets: true) }?.code == code)
        #expect(refusals(host) == 7)
    }

    @Test("A right password comes back by itself after an outage")
    func afterAnOutageTheRightOneComesBack() async throws {
        let clock = WallClock()
        let host = try await host(clock: clock)
        host.server.fail("POST", .ignored, .status(503))
        for _ in 0..<2 {
            #expect(await failure { try await host.restarted().register(host.person) }?.code == .unavailable)
        }
        #expect(await failure { try await host.restarted().register(host.person) }?.code == .operationNotAllowed)
        #expect(host.server.log.count == 2)
        clock.pass(3600)
        _ = try await host.manager.register(host.person)
        #expect(try await host.manager.request(hello).status == 200)
    }

    @Test("Passwords that get no answer are not sent more often by turns", arguments: [2, 4, 6])
    func byTurnsTheyAreSentAFewTimes(passwords: Int) async throws {
        let clock = WallClock()
        let host = try await host("wrong", clock: clock)
        host.server.state.withLock { $0.faults["refused"] = [.ignored] }
        func rounds(_ count: Int) async throws {
            for round in 0..<(count * passwords) {
                let next = try host.restarted(variables: ["PASSWORD": "wrong \(round % passwords)"])
                _ = await failure { try await next.register(host.person) }
                await next.shutdown()
            }
        }
        try await rounds(4)
        let places = min(passwords, 4)
        #expect(refusals(host) == 2 * places)
        clock.pass(3600)
        try await rounds(2)
        #expect(refusals(host) == 3 * places)
        clock.pass(86400)
        try await rounds(2)
        #expect(refusals(host) == 4 * places)
    }

    @Test("A rejected password forgets no tries of another one")
    func aRejectedOneForgetsNoTriesOfAnother() async throws {
        let host = try await host("wrong")
        host.server.state.withLock { $0.faults["refused"] = [.ignored] }
        for _ in 0..<2 { #expect(await failure { try await host.manager.register(host.person) }?.code == .unavailable) }
        host.server.state.withLock { $0.faults = [:] }
        let other = try host.restarted(variables: ["PASSWORD": "wrong as well"])
        #expect(await failure { try await other.register(host.person) }?.code == .rejected)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .operationNotAllowed)
        #expect(refusals(host) == 3)
    }

    @Test("An error message of the server is an answer, and accepts no rejected password")
    func anErrorMessageIsAnAnswer() async throws {
        let host = try await host("wrong")
        host.server.state.withLock { $0.faults["refused"] = [.page(403, PlatformServer.error)] }
        for _ in 0..<4 { #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected) }
        #expect(refusals(host) == 4)
        host.server.state.withLock { $0.faults = [:] }
        #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected)
        // A user types it.
        host.person.answer("Password", with: "wrong")
        host.server.state.withLock { $0.faults["refused"] = [.page(403, PlatformServer.error)] }
        #expect(await failure { try await host.manager.register(host.person, asksForSecrets: true) }?.code == .rejected)
        #expect(refusals(host) == 6)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected)
        #expect(refusals(host) == 6)
    }

    @Test("An answer to a request without the password forgets no try")
    func anAnswerWithoutThePasswordForgetsNothing() async throws {
        let host = try await host("wrong")
        host.server.state.withLock { $0.faults["refused"] = [.ignored] }
        for _ in 0..<2 {
            #expect(await failure { try await host.restarted().register(host.person) }?.code == .unavailable)
            // A gateway that does not ask for a password.
            host.server.state.withLock { $0.faults["challenge"] = [.status(404)] }
            #expect(await failure { try await host.restarted().register(host.person) }?.code == .configurationInvalid)
            host.server.state.withLock { $0.faults["challenge"] = [] }
        }
        #expect(await failure { try await host.restarted().register(host.person) }?.code == .operationNotAllowed)
        #expect(refusals(host) == 2)
    }

    /// So that a kill before the answer counts.
    @Test func itIsWrittenDownBeforeItIsSent() async throws {
        let host = try await host("wrong")
        let record = host.directory["applications/com.example.app/store/records/registration_/rejected-secrets"]
        let seen = Mutex<[Bool]>([])
        host.server.state.withLock {
            $0.whenAsked = { _ in seen.withLock { $0.append(FileManager.default.fileExists(atPath: record)) } }
        }
        #expect(await failure { try await host.manager.register(host.person) }?.code == .rejected)
        #expect(seen.withLock(\.self) == [true])
    }

    @Test("A new password of a source obeys the same rules")
    func aNewPasswordOfASourceObeysTheSameRules() async throws {
        let clock = WallClock()
        let host = try await host(clock: clock)
        _ = try await host.manager.register(host.person)
        func change(_ password: String, isAutomatic: Bool = true) async -> ProviderError? {
            await failure {
                try await host.manager.changePassword(to: SecretBytes(utf8: password), isAutomatic: isAutomatic)
            }
        }
        for _ in 0..<3 { #expect(await change("wrong")?.code == .rejected) }
        #expect(refusals(host) == 1)
        #expect(await change("wrong")?.message.contains("certprov password") == true)
        host.server.state.withLock { $0.faults["refused"] = [.ignored] }
        for code in [ProviderError.Code.unavailable, .unavailable, .operationNotAllowed] {
            #expect(await change("wrong as well")?.code == code)
        }
        #expect(refusals(host) == 3)
        // The former one works all the time.
        #expect(try await host.manager.request(hello).status == 200)
        // A typed password is always sent. Right by now, it may come from a source again.
        host.server.state.withLock { ($0.password, $0.faults) = ("wrong", [:]) }
        try await host.manager.changePassword(to: SecretBytes(utf8: "wrong"))
        try await host.manager.changePassword(to: SecretBytes(utf8: "wrong"), isAutomatic: true)
    }

    @Test func aPasswordOfASourceThatReplacesARejectedOneObeysThem() async throws {
        let host = try await host()
        _ = try await host.manager.register(host.person)
        host.server.state.withLock { $0.password = "changed" }
        await host.manager.shutdown()
        #expect(await failure { try await host.manager.request(hello) }?.code == .rejected)
        host.server.state.withLock { $0.faults["refused"] = [.ignored] }
        let wrong = try host.restarted(variables: ["PASSWORD": "wrong"])
        try await wrong.unlock(host.person)
        for code in [ProviderError.Code.unavailable, .unavailable, .operationNotAllowed] {
            #expect(await failure { try await wrong.request(hello) }?.code == code)
        }
        #expect(refusals(host) == 3)
    }

    /// The id of the attempt before stays: the server may know it.
    @Test func theLastAttemptsPolicyIsThatOfTheRegistration() async throws {
        let host = try await host()
        host.server.fail("POST", .noAnswer)
        #expect(await failure { try await host.manager.register(host.person) }?.code == .unavailable)
        let next = try host.restarted(["UserCreationPolicy": "manual"])
        let id = try await next.register(host.person).id
        #expect(host.server.connections.keys.sorted() == [id.description])
        #expect(try await next.request(hello).status == 200)
        try await next.unregister(host.person)
        #expect(host.server.connections.isEmpty)
    }
}

/// The time of day, which a test sets.
private final class WallClock: Sendable {
    private let time = Mutex(Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down)))

    var now: Date { time.withLock(\.self) }
    func pass(_ seconds: TimeInterval) { time.withLock { $0 += seconds } }
}
