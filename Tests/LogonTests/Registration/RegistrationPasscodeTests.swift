import CertificateProviding
import Foundation
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// The passcode of a registration, and when its vault is locked.
@Suite(.endsHosts) struct RegistrationPasscodeTests {
    @Test func theLastWrongPasscodeDestroysTheVault() async throws {
        let host = try await RegistrationHost(settings: [
            "Passcode.max-attempts": "2", "CertificateProvider.test.path": "keys:token=hsm",
        ])
        _ = try await host.register()
        try await host.manager.lock()
        _ = host.provider.takeCalls()
        for code in [ProviderError.Code.wrongPassword, .vaultDestroyed] {  // 22, 23
            let error = await failure { try await host.manager.unlock(passcode: SecretBytes(utf8: "wrong one")) }
            #expect(error?.code == code)
            if code == .vaultDestroyed { #expect(error?.message.contains("keys:token=hsm") == true) }
        }
        #expect(try await host.manager.registrationState() == .notRegistered)
        #expect(host.provider.takeCalls() == ["delete"] && host.server.log.count == 1)
    }

    @Test("The provider is told that the vault is gone, and its failure is a remark")
    func theProviderIsToldAfterTheDestruction() async throws {
        let host = try await RegistrationHost(settings: ["Passcode.max-attempts": "2"])
        _ = try await host.register()
        _ = host.provider.takeCalls()
        let key = host.directory["applications/com.example.app/vault/key"]
        host.provider.whenCalled { _ in
            #expect(!FileManager.default.fileExists(atPath: key), "The vault is gone first.")
        }
        host.provider.deletion(.failure(ProviderError(.deleteFailed, "It is stuck.")))
        let (wrong, new) = (SecretBytes(utf8: "wrong one"), SecretBytes(utf8: "another passcode"))
        // Also for a change, while the vault is unlocked.
        for code in [ProviderError.Code.wrongPassword, .vaultDestroyed] {
            let error = await failure { try await host.manager.changePasscode(from: wrong, to: new) }
            #expect(error?.code == code)
            #expect(
                (error?.message.contains("'test'") == true && error?.message.contains("stuck") == true)
                    == (code == .vaultDestroyed))
        }
        #expect(host.provider.takeCalls() == ["delete"])
    }

    @Test("What a deletion would destroy outside this host's store stays when the vault is gone")
    func whatIsOutsideStays() async throws {
        let host = try await RegistrationHost(settings: ["Passcode.max-attempts": "2"])
        _ = try await host.register()
        _ = host.provider.takeCalls()
        host.provider.announce(.success(["The key 'web' on the token is destroyed."]))
        let (wrong, new) = (SecretBytes(utf8: "wrong one"), SecretBytes(utf8: "another passcode"))
        _ = await failure { try await host.manager.changePasscode(from: wrong, to: new) }
        let error = await failure { try await host.manager.changePasscode(from: wrong, to: new) }
        #expect(error?.code == .vaultDestroyed && error?.message.contains("The key 'web' on the token") == true)
        #expect(host.provider.takeCalls().isEmpty)
    }

    @Test("Without a terminal and Passcode.source, register names the setting")
    func registerNamesTheSettings() async throws {
        let host = try await RegistrationHost()
        let error = await failure { try await host.manager.register(NoUserInteraction()) }
        #expect(error?.code == .interactionRequired && error?.message.contains("set Passcode.source") == true)
        let password = try host.restarted(
            ["UserCreationPolicy": "automatic", "Registration.username": "alice", "Passcode.source": "env:PASSCODE"],
            variables: ["PASSCODE": RegistrationHost.passcode])
        let missing = await failure { try await password.register(NoUserInteraction()) }
        #expect(missing?.message.contains("set Registration.password-source") == true, "\(String(describing: missing))")
        let nothing = try host.restarted(["Host": nil, "Port": nil, "SecurityConfiguration": nil])
        let three = failure { try nothing.configuration.checkRegistration() }
        #expect(
            three?.message.contains("'Host', 'Port' and 'SecurityConfiguration'; set them.") == true,
            "\(String(describing: three))")
        #expect(host.provider.calls.isEmpty && host.server.log.isEmpty)
    }

    /// After the wait for the user's passcode, the vault is gone.
    @Test func aVaultThatGoesMeanwhileIsNoReasonToRegister() async throws {
        let host = try await RegistrationHost()
        _ = try await host.register()
        let (next, vault) = (try host.restarted(), try host.restartedVault())
        let destroyer = Person { _ throws(ProviderError) in
            try vault.destroy()
            return RegistrationHost.passcode
        }
        let error = await failure { try await next.unlock(destroyer) }
        #expect(error?.code == .notFound && error?.message.contains("is not registered") == true)
    }

    /// Wrong passcodes that no user has typed cost one attempt each, and never the last one: also two in turn, and for a change.
    @Test("Wrong passcodes from a source never use up the last attempt")
    func noSourceDestroysTheVault() async throws {
        let host = try await RegistrationHost(
            settings: ["Passcode.source": "env:PASSCODE", "Passcode.max-attempts": "5"],
            variables: ["PASSCODE": RegistrationHost.passcode])
        _ = try await host.register()
        let (one, two) = (SecretBytes(utf8: "wrong number one"), SecretBytes(utf8: "wrong number two"))
        for wrong in [one, two, one, two, one, two] {
            let manager = try host.restarted()
            let error = await failure {
                try await manager.changePasscode(
                    from: wrong, to: SecretBytes(utf8: "a new passcode"), isAutomatic: true)
            }
            #expect(error?.code == .wrongPassword)
        }
        #expect(try host.vault.attemptsLeft() == 3)
        for number in 0..<6 {
            let manager = try host.restarted([:], variables: ["PASSCODE": "wrong \(number) again"])
            #expect(await failure { try await manager.unlock(NoUserInteraction()) }?.code == .wrongPassword)
        }
        #expect(try host.vault.attemptsLeft() == 1)
        // The right one is not tried as the last one either, but by a user.
        let manager = try host.restarted()
        let error = await failure { try await manager.unlock(NoUserInteraction()) }
        #expect(error?.code == .wrongPassword && error?.message.contains("unlock --ask") == true)
        try await manager.unlock(passcode: SecretBytes(utf8: RegistrationHost.passcode))
        #expect(try host.vault.attemptsLeft() == 5)
        let single = try host.restarted(["Passcode.max-attempts": "1"])
        #expect(failure { try single.configuration.checkRegistration() }?.code == .configurationInvalid)
    }

    @Test func aWeakPasscodeIsRefusedBeforeAnythingIsDone() async throws {
        let host = try await RegistrationHost(settings: ["Passcode.digits": "true"])
        let error = await failure { try await host.manager.register(host.person) }
        #expect(error?.code == .configurationInvalid && error?.message.contains("a digit") == true)
        #expect(host.provider.calls.isEmpty && host.server.log.isEmpty)
    }

    @Test func thePasscodeIsChanged() async throws {
        let host = try await RegistrationHost()
        _ = try await host.register()
        let (old, new) = (SecretBytes(utf8: RegistrationHost.passcode), SecretBytes(utf8: "tr0ub4dor & 3"))
        #expect(await failure { try await host.manager.changePasscode(from: new, to: old) }?.code == .wrongPassword)
        #expect(
            await failure { try await host.manager.changePasscode(from: old, to: SecretBytes(utf8: "x")) }?.code
                == .configurationInvalid)
        try await host.manager.changePasscode(from: old, to: new)
        let next = try host.restarted()
        #expect(await failure { try await next.unlock(passcode: old) }?.code == .wrongPassword)
        try await next.unlock(passcode: new)
    }

    @Test func anUnusedVaultIsLocked() async throws {
        let time = Elapsed()
        let host = try await RegistrationHost(settings: ["Passcode.lock-timeout": "60"], retryPolicy: time.policy)
        let states = try host.manager.registrationStates()
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        // A request puts it off.
        time.pass(.seconds(40))
        _ = try await host.manager.request(HTTPRequest(target: "/hello"))
        time.pass(.seconds(40))
        _ = try await host.manager.request(HTTPRequest(target: "/hello"))
        #expect(try await host.manager.registrationState() == .registeredUnlocked)
        try await time.pass(until: .registeredLocked, of: host.manager)
        // The next use begins anew.
        try await host.manager.unlock(host.person)
        try await time.pass(until: .registeredLocked, of: host.manager)
        var seen: [LogonState] = []
        for await state in states {
            seen.append(state)
            if seen.count == 5 { break }
        }
        #expect(
            seen == [.notRegistered, .registeredUnlocked, .registeredLocked, .registeredUnlocked, .registeredLocked])
    }

    /// However long an operation takes, the vault is not locked under it.
    @Test func anOperationKeepsTheVaultUnlocked() async throws {
        let time = Elapsed()
        let host = try await RegistrationHost(settings: ["Passcode.lock-timeout": "60"], retryPolicy: time.policy)
        _ = try await host.register()
        let (vault, identity) = (host.vault, host.identity)
        host.provider.get { _ throws(ProviderError) in
            // The user takes longer than the lock timeout.
            time.pass(.seconds(600))
            for _ in 0..<20 { try? await Task.sleep(for: .milliseconds(5)) }
            try vault.storage(for: ProviderID("test")).updateRecord(named: "kept") { _ in SecretBytes(utf8: "x") }
            return identity
        }
        _ = try await host.manager.updateCertificate(host.person)
    }

    @Test("A service reopens a vault after the lock timeout, but not after an explicit lock")
    func aServiceUnlocksByItselfUnlessItHasLocked() async throws {
        let time = Elapsed()
        let host = try await RegistrationHost(
            settings: ["Passcode.source": "env:PASSCODE", "Passcode.lock-timeout": "60"],
            variables: ["PASSCODE": RegistrationHost.passcode], retryPolicy: time.policy)
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        let next = try host.restarted(["Passcode.lock-timeout": "0"])
        #expect(try await next.request(HTTPRequest(target: "/hello")).status == 200)
        _ = try await host.manager.request(HTTPRequest(target: "/hello"))
        try await time.pass(until: .registeredLocked, of: host.manager)
        #expect(try await host.manager.request(HTTPRequest(target: "/hello")).status == 200)
        #expect(try await host.manager.storedIdentity() != nil)
        try await host.manager.lock()
        #expect(await failure { try await host.manager.request(HTTPRequest(target: "/hello")) }?.code == .vaultLocked)
        try await host.manager.unlock(NoUserInteraction())
        #expect(try await host.manager.request(HTTPRequest(target: "/hello")).status == 200)
    }

    /// A signature may need a login, whose record is in the vault: no operation of the manager is about it.
    @Test("A provider's own use unlocks the vault after the lock timeout, but not after an explicit lock")
    func aProvidersUseUnlocksTheVault() async throws {
        let time = Elapsed()
        let host = try await RegistrationHost(
            settings: ["Passcode.source": "env:PASSCODE", "Passcode.lock-timeout": "60"],
            variables: ["PASSCODE": RegistrationHost.passcode], retryPolicy: time.policy)
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        let part = try #require(host.provider.storage)
        for number in 0..<2 {
            try await time.pass(until: .registeredLocked, of: host.manager)
            try part.updateRecord(named: "login") { _ in SecretBytes(utf8: "\(number)") }
            #expect(try await host.manager.registrationState() == .registeredUnlocked)
        }
        try await time.pass(until: .registeredLocked, of: host.manager)
        #expect(try await host.manager.explain().chosen == host.provider.id)
        try await time.pass(until: .registeredLocked, of: host.manager)
        #expect(try await host.manager.announcedDeletions().isEmpty)
        try await host.manager.lock()
        #expect(failure { try part.record(named: "login") }?.code == .vaultLocked)
        #expect(await failure { try await host.manager.explain() }?.code == .vaultLocked)
        // A lock ends with the vault that it was for.
        try await host.manager.unregisterByForce(host.person)
        _ = try await host.register()
        try await time.pass(until: .registeredLocked, of: host.manager)
        #expect(try part.record(named: "login") == nil)
    }

    @Test("The server's shorter lock timeout counts from the registration on")
    func aShorterLockTimeoutReplacesTheLonger() async throws {
        let delays = Mutex<[Duration]>([])
        let policy = RetryPolicy(now: { .now }) { delay in
            delays.withLock { $0.append(delay) }
            try await Task.sleep(for: .seconds(delay < .seconds(20) ? 0 : 600))
        }
        let host = try await RegistrationHost(settings: ["Passcode.lock-timeout": "300"], retryPolicy: policy)
        host.server.state.withLock {
            $0.properties = [("PasswordPolicyEnabled", "true"), ("PasswordPolicyLockTimeout", "60")]
        }
        _ = try await host.manager.storedIdentity()
        _ = try await host.register()
        let end = ContinuousClock.now + .seconds(600)
        while !delays.withLock({ $0.contains(.seconds(60)) }), .now < end {
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(delays.withLock { $0.filter { $0 >= .seconds(20) } } == [.seconds(300), .seconds(60)])
    }
}
