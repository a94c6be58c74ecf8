import CertificateProviding
import Foundation
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// The server's policy of passcodes, a key store's key that the vault needs, and an unregistration that is interrupted.
@Suite(.endsHosts) struct RegistrationVaultTests {
    private let hello = HTTPRequest(target: "/hello")

    // MARK: - The server's policy

    @Test("The server's passcode policy can be stricter than the configuration")
    func theServerMayDemandMore() async throws {
        let host = try await RegistrationHost(retryPolicy: RetryPolicy())
        host.server.state.withLock {
            $0.properties = [
                ("PasswordPolicyEnabled", "true"), ("PasswordPolicyMinLength", "30"), ("PasswordPolicyRetryLimit", "1"),
                ("PasswordPolicyLockTimeout", "60"), ("PasswordPolicyDigitRequired", ""),
            ]
        }
        // The first one is too short for the server, so that the user is asked again.
        let long = "a passcode of more than thirty characters"
        let asked = Person(inTurn: ["too short for it", "too short for it", long, long])
        _ = try await host.manager.register(asked)
        #expect(asked.reports.contains { $0.contains("30 characters") && $0.contains("platform server") })
        #expect(asked.timesAsked == 4 && host.server.connections.count == 1)
        #expect(try host.vault.attemptsLeft() == 2)
        #expect(host.manager.registration?.vault.lockTimeout == .seconds(60))
        let next = try host.restarted(retryPolicy: RetryPolicy())
        #expect(await failure { try await next.unlock(passcode: SecretBytes(utf8: "x")) }?.code == .wrongPassword)
        try await next.unlock(passcode: SecretBytes(utf8: long))
        let weak = await failure {
            try await next.changePasscode(from: SecretBytes(utf8: long), to: SecretBytes(utf8: "long enough here"))
        }
        #expect(weak?.code == .configurationInvalid && weak?.message.contains("platform server") == true)
    }

    @Test func aSourceWithATooWeakPasscodeRegistersNothing() async throws {
        let host = try await RegistrationHost(
            settings: ["Passcode.source": "env:CODE"], variables: ["CODE": "long enough"])
        host.server.state.withLock { $0.properties = [("PasswordPolicyDigitRequired", "true")] }
        for _ in 0..<2 {
            let error = await failure { try await host.manager.register(host.person) }
            #expect(error?.code == .configurationInvalid && error?.message.contains("a digit") == true)
            #expect(try await host.manager.registrationState() == .notRegistered)
        }
        let next = try host.restarted(variables: ["CODE": "long enough 1"])
        _ = try await next.register(host.person)
        #expect(host.server.connections.count == 1, "The same connection.")
    }

    @Test(
        "A demand that cannot be read or met is refused with its name",
        arguments: [
            ("MinLength", "1025"), ("MinUniqueChars", "1025"), ("MinLength", "-1"),
            ("RetryLimit", "99999999999999999999"),
            ("UpperRequired", "1"), ("DigitRequired", "nonsense"), ("Enabled", "perhaps"), ("ExpiresInNDays", "P30D"),
        ])
    func aDemandThatCannotBeMetIsRefused(name: String, value: String) async throws {
        let host = try await RegistrationHost()
        host.server.state.withLock { $0.properties = [("PasswordPolicy\(name)", value)] }
        let error = await failure { try await host.manager.register(host.person) }
        #expect(error?.code == .protocolError, "\(String(describing: error))")
        #expect(error?.message.contains("PasswordPolicy\(name) = '\(value)'") == true, "\(String(describing: error))")
        #expect(try await host.manager.registrationState() == .notRegistered)
    }

    @Test("A limit that is beyond certprov's counts as its greatest")
    func aLimitBeyondTheGreatest() async throws {
        let host = try await RegistrationHost(settings: ["Passcode.max-attempts": "0"])
        host.server.state.withLock {
            $0.properties = [("PasswordPolicyRetryLimit", "2000000"), ("PasswordPolicyLockTimeout", "90000")]
        }
        _ = try await host.register()
        #expect(try host.vault.attemptsLeft() == 1_000_000)
        #expect(host.manager.registration?.vault.lockTimeout == .seconds(86400))
    }

    @Test func aPolicyThatIsOffOrAbsentDemandsNothing() async throws {
        for properties in [[], [("PasswordPolicyEnabled", "false"), ("PasswordPolicyMinLength", "99")]] {
            let host = try await RegistrationHost()
            host.server.state.withLock { $0.properties = properties }
            _ = try await host.register()
            let registration = try #require(host.manager.registration)
            #expect(try host.vault.attemptsLeft() == 10 && registration.vault.lockTimeout == nil)
        }
    }

    // MARK: - A key that the vault needs

    private static let key: [String: String?] = ["Vault.key": "keys:", "Vault.key-pin-source": "env:PIN"]

    @Test func theVaultNeedsTheKey() async throws {
        let host = try await RegistrationHost(settings: Self.key, variables: ["PIN": "1234"])
        _ = try await host.register()
        #expect(try await host.keys().count == 1)
        let next = try host.restarted()
        #expect(
            await failure { try await next.unlock(passcode: SecretBytes(utf8: "wrong one")) }?.code == .wrongPassword)
        try await next.unlock(host.person)
        let new = SecretBytes(utf8: "another good passcode")
        try await next.changePasscode(from: SecretBytes(utf8: RegistrationHost.passcode), to: new)
        let third = try host.restarted()
        try await third.unlock(passcode: new)
        host.provider.stored(.success(host.identity))
        #expect(try await third.request(hello).status == 200)

        // Without the key, a right passcode opens nothing, and no attempt is spent.
        let left = try host.vault.attemptsLeft()
        try await host.destroyKeys()
        let last = try host.restarted()
        let error = await failure { try await last.unlock(passcode: new) }
        #expect(error?.code == .notFound && error?.message.contains("keys:") == true, "\(String(describing: error))")
        #expect(try host.vault.attemptsLeft() == left)
    }

    @Test("Unregistering, or the next registration, destroys the vault key")
    func theKeyGoesWithTheVault() async throws {
        let host = try await RegistrationHost(settings: Self.key, variables: ["PIN": "1234"])
        for _ in 0..<2 {
            _ = try await host.register()
            host.provider.stored(.success(host.identity))
            #expect(try await host.keys().count == 1)
            try await host.manager.unregister(host.person)
            #expect(try await host.keys().isEmpty)
        }
        // A vault that wrong passcodes have destroyed leaves it to the next registration.
        _ = try await host.register()
        let before = try await host.keys()
        let next = try host.restarted()
        for _ in 0..<10 { _ = await failure { try await next.unlock(passcode: SecretBytes(utf8: "wrong one")) } }
        #expect(try await next.registrationState() == .notRegistered)
        #expect(try await host.keys() == before)
        _ = try await next.register(host.person)
        let after = try await host.keys()
        #expect(after.count == 1 && after != before)
    }

    /// The setting may be gone, or wrong, by then. Another store would get a PIN that is not its own.
    @Test(
        "A forced unregistration destroys the vault key even if Vault.key has changed",
        arguments: [nil, "nothing:", "store:"])
    func theKeyGoesWithoutTheSetting(setting: String?) async throws {
        let host = try await RegistrationHost(settings: Self.key, variables: ["PIN": "1234"])
        _ = try await host.register()
        let next = try host.restarted(["Vault.key": setting])
        #expect(await failure { try await next.unlock(host.person) }?.code == .configurationInvalid)
        #expect(try await host.keys().count == 1 && host.vault.attemptsLeft() == 10)
        try await next.unregisterByForce(host.person)
        #expect(try await host.keys().isEmpty)
        #expect(try await next.registrationState() == .notRegistered)
        // Without a key, a wrong setting does not matter either.
        try await next.unregisterByForce(host.person)
    }

    /// The vault was destroyed by wrong passcodes, or by a process that was killed before the key was.
    @Test("Unregistering destroys the vault key even if the vault is already gone")
    func anUnregistrationDestroysWhatIsLeft() async throws {
        let host = try await RegistrationHost(settings: Self.key, variables: ["PIN": "1234"])
        _ = try await host.register()
        try host.vault.destroy()
        #expect(try await host.keys().count == 1)
        try await host.manager.unregister(host.person)
        #expect(try await host.keys().isEmpty)
    }

    /// A vault without a passcode opens with the key alone, by itself.
    @Test("The vault key alone opens a vault without a passcode")
    func theKeyAloneMayOpenIt() async throws {
        let settings = Self.key.merging(["Passcode.default-allowed": "true"]) { $1 }
        let host = try await RegistrationHost(settings: settings, variables: ["PIN": "1234"])
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        let next = try host.restarted()
        #expect(try await next.registrationState() == .registeredLocked)
        #expect(try await next.request(hello).status == 200)
        try await host.destroyKeys()
        let last = try host.restarted()
        #expect(await failure { try await last.request(hello) }?.code == .notFound)
    }

    @Test("A Vault.key that names no installed key store is refused before registering")
    func aKeyStoreThatIsNotInstalledIsRefused() async throws {
        let host = try await RegistrationHost(settings: ["Vault.key": "nothing:"])
        #expect(await failure { try await host.register() }?.code == .configurationInvalid)
        #expect(host.server.log.isEmpty)
        #expect(throws: ProviderError.self) { _ = try host.restarted(["Vault.key": "no URI"]) }
    }

    @Test func aCertificateNeedsTLS() async throws {
        let host = try await RegistrationHost(settings: ["HTTPS": "false"])
        let error = await failure { try await host.register() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("HTTPS=false") == true)
        #expect(host.provider.calls.isEmpty && host.server.log.isEmpty)
    }

    // MARK: - An interrupted unregistration

    /// Killed between the server's answer and the destruction of the vault: the state directory of that moment.
    @Test(arguments: [true, false]) func anInterruptedUnregistrationIsCompleted(hasIdentity: Bool) async throws {
        let host = try await RegistrationHost()
        _ = try await host.register()
        host.provider.stored(.success(host.identity))
        let (state, copy) = (host.directory["applications"], host.directory["copy"])
        host.provider.beforeDeletion { try? FileManager.default.copyItem(atPath: state, toPath: copy) }
        try await host.manager.unregister(host.person)
        #expect(host.server.connections.isEmpty)
        host.provider.beforeDeletion {}
        try FileManager.default.removeItem(atPath: state)
        try FileManager.default.moveItem(atPath: copy, toPath: state)

        host.provider.stored(.success(hasIdentity ? host.identity : nil))
        _ = host.provider.takeCalls()
        let (next, log) = (try host.restarted(), host.server.log.count)
        try await next.unlock(host.person)
        for operation in [
            { _ = try await next.request(self.hello) }, { _ = try await next.register(host.person) },
            { _ = try await next.updateCertificate(host.person) },
        ] as [() async throws -> Void] {
            let error = await failure { try await operation() }
            #expect(error?.message.contains("certprov unregister") == true, "\(String(describing: error))")
        }
        #expect(host.provider.calls.isEmpty)
        try await next.unregister(host.person)
        #expect(host.provider.takeCalls() == ["delete"] && host.server.log.count == log)
        #expect(try await next.registrationState() == .notRegistered)
    }

    // MARK: - Only the provider that registered

    @Test("While registered, only the provider that registered is listed and explained")
    func othersAreNeitherListedNorForecast() async throws {
        let host = try await RegistrationHost(settings: ["CertificateProvider": "test, other"])
        #expect(try await host.manager.activeProviders().map(\.id.rawValue) == ["test", "other"])
        _ = try await host.register()
        #expect(try await host.manager.activeProviders().map(\.id.rawValue) == ["test"])
        let explanation = try await host.manager.explain()
        #expect(Set(explanation.decisions.map(\.provider.rawValue)) == ["test"])
        try await host.manager.lock()
        #expect(await failure { try await host.manager.activeProviders() }?.code == .vaultLocked)
    }

    /// While another process changes the registration, a request does not obtain an identity beside it.
    @Test func aRequestObtainsNothingBesideAnUpdate() async throws {
        let host = try await RegistrationHost()
        _ = try await host.register()
        let lease = try host.restartedVault().leaseOperation()
        #expect(lease != nil)
        host.provider.stored(.success(nil))
        _ = host.provider.takeCalls()
        #expect(await failure { try await host.manager.request(hello) }?.code == .operationNotAllowed)
        #expect(host.provider.takeCalls() == ["stored"])
        host.provider.stored(.success(host.identity))
        #expect(try await host.manager.request(hello).status == 200)
        withExtendedLifetime(lease) {}
    }
}
