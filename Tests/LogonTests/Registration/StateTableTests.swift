import CertificateProviding
import Foundation
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// A row of the Logon manager's table of states and events: what happens, whom that asks, and what it leads to.
private struct Row: CustomTestStringConvertible, Sendable {
    enum Start { case notRegistered, unlocked, locked }
    typealias Step = @Sendable (RegistrationHost) async throws -> Void

    let number: String
    let start: Start
    let settings: [String: String?]
    let arrange: Step
    let event: Step
    /// The provider's calls and the server's requests, in the order in which they come.
    let asks: [String]
    let outcome: ProviderError.Code?
    let state: LogonState
    let check: Step

    /// - Parameters:
    ///   - start: The state before.
    ///   - arrange: What the provider and the server are told beforehand.
    ///   - outcome: `nil` for success.
    ///   - state: The state afterwards.
    ///   - check: Further effects.
    init(
        _ number: String, _ start: Start = .notRegistered, with settings: [String: String?] = [:],
        arrange: @escaping Step = { _ in }, event: @escaping Step, asks: [String] = [],
        throws outcome: ProviderError.Code? = nil, state: LogonState, check: @escaping Step = { _ in }
    ) {
        (self.number, self.start, self.settings) = (number, start, settings)
        (self.arrange, self.event, self.asks) = (arrange, event, asks)
        (self.outcome, self.state, self.check) = (outcome, state, check)
    }

    var testDescription: String { number }
}

/// The provider and the server write into one log if the order of calls counts.
@Suite(.endsHosts) struct StateTableTests {
    @Test("Each row of the state table", arguments: Row.all)
    fileprivate func row(row: Row) async throws {
        let host = try await RegistrationHost(
            settings: row.settings, variables: ["PASSWORD": PlatformServer.user.1, "CODE": "code-17"])
        if row.start != .notRegistered { _ = try await host.manager.register(host.person) }
        host.provider.stored(.success(host.identity))
        if row.start == .locked { try await host.manager.lock() }
        try await row.arrange(host)

        let log = Mutex<[String]>([])
        host.provider.whenCalled { call in log.withLock { $0.append(call) } }
        host.server.state.withLock {
            // Method and principal.
            $0.whenAsked = { request in
                let words = request.replacing(PlatformServer.client, with: "client").split(separator: " ").prefix(2)
                log.withLock { $0.append(words.joined(separator: " ")) }
            }
        }
        var outcome: ProviderError?
        do { try await row.event(host) } catch { outcome = try #require(error as? ProviderError) }
        #expect(outcome?.code == row.outcome, "\(String(describing: outcome))")
        #expect(log.withLock(\.self) == row.asks)
        host.provider.whenCalled { _ in }
        #expect(try await host.manager.registrationState() == row.state)
        try await row.check(host)
    }
}

extension Row {
    fileprivate static let all =
        loading + registering + byPassword + requesting + updating + leaving + passcode + locked + moved

    private static let register: Step = { _ = try await $0.manager.register($0.person) }
    private static let request: Step = { host in
        let answer = try await host.manager.request(HTTPRequest(target: "/hello"))
        let id = try await host.manager.registeredConnection()
        // The server answers with the principal and the id of the request.
        #expect(answer.status == 200 && String(decoding: answer.body, as: UTF8.self).hasSuffix(" \(id)"))
    }
    private static let update: Step = { _ = try await $0.manager.updateCertificate($0.person) }
    private static let unregister: Step = { try await $0.manager.unregister($0.person) }
    private static let unregisterByForce: Step = { try await $0.manager.unregisterByForce($0.person) }
    private static let unlock: Step = { try await $0.manager.unlock($0.person) }
    private static let unlockWrongly: Step = {
        try await $0.manager.unlock(passcode: SecretBytes(utf8: "not this one"))
    }

    /// Tells the provider what it has, and the server how to fail.
    private static func faults(_ method: String, _ faults: PlatformServer.Fault...) -> Step {
        { host in host.server.state.withLock { $0.faults[method] = faults } }
    }
    private static func stored(_ result: Result<Identity?, ProviderError>) -> Step {
        { $0.provider.stored(result) }
    }
    private static func provider(fails code: ProviderError.Code) -> Step {
        { host in
            host.provider.get { _ throws(ProviderError) in throw ProviderError(code, "As told.") }
        }
    }
    private static let deletionFails: Step = {
        $0.provider.deletion(.failure(ProviderError(.deleteFailed, "It is stuck.")))
    }
    private static let trustsAnother: Step = { host in
        _ = try host.directory.write(TestAuthority().root.pemRepresentation.utf8, to: "anchors.pem")
    }
    private static let refusesCertificates: Step = { host in
        host.server.state.withLock { $0.refusesCertificates = true }
    }

    private static let loading = [
        Row(
            "1 missing",
            event: { _ in _ = try LogonConfiguration.load(path: "/nonexistent", registry: try registry()) },
            throws: .configurationMissing, state: .notRegistered),
        Row(
            "1 invalid", event: { _ = try $0.restarted(["Passcode.digits": "perhaps"]) }, throws: .configurationInvalid,
            state: .notRegistered),
        Row("2", event: { _ in }, state: .notRegistered),
        Row("3", .locked, event: nextProcess(is: .registeredLocked), state: .registeredLocked),
        Row(
            "3 with the default passcode", with: ["Passcode.default-allowed": "true"],
            arrange: { _ = try await $0.manager.register(NoUserInteraction()) },
            event: nextProcess(is: .registeredUnlocked), state: .registeredUnlocked
        ),
    ]

    private static let registering =
        [
            Row(
                "4", with: ["CertificateProvider": nil], event: register, throws: .noCertificateProvider,
                state: .notRegistered),
            Row(
                "5, 7", event: register, asks: ["get", "POST client"], state: .registeredUnlocked,
                check: isRegistered(by: PlatformServer.client)),
            Row(
                "6", arrange: provider(fails: .pinIncorrect), event: register, asks: ["get"], throws: .pinIncorrect,
                state: .notRegistered, check: hasNoVault),
            Row(
                "6 cancelled", arrange: provider(fails: .userCancelled), event: register, asks: ["get"],
                throws: .userCancelled, state: .notRegistered, check: hasNoVault),
        ]
        + ["cookie", "body", "location"].map { place in
            Row(
                "7 from the \(place)",
                arrange: { host in host.server.state.withLock { ($0.renames, $0.tells) = (true, [place]) } },
                event: register, asks: ["get", "POST client"], state: .registeredUnlocked, check: hasTheServersID)
        }
        + [401, 403].map { status in
            Row(
                "8 \(status)", arrange: faults("POST", .status(status)), event: register, asks: ["get", "POST client"],
                throws: .rejected, state: .notRegistered)
        } + [
            Row(
                "9 not found", arrange: faults("POST", .status(404)), event: register, asks: ["get", "POST client"],
                throws: .configurationInvalid, state: .notRegistered),
            Row(
                "9 no answer", arrange: faults("POST", .noAnswer, .noAnswer, .noAnswer), event: register,
                asks: ["get", "POST client", "POST client", "POST client"], throws: .unavailable, state: .notRegistered),
            Row(
                "9 not trusted", arrange: trustsAnother, event: register, asks: ["get"], throws: .serverNotTrusted,
                state: .notRegistered),
            Row(
                "9 refuses the certificate", arrange: refusesCertificates, event: register, asks: ["get"],
                throws: .rejected, state: .notRegistered),
            Row(
                "11", .unlocked, event: register, state: .registeredUnlocked,
                check: isRegistered(by: PlatformServer.client)),
        ]

    private static func password(_ policy: String) -> [String: String?] {
        [
            "UserCreationPolicy": policy, "Registration.username": PlatformServer.user.0,
            "Registration.password-source": "env:PASSWORD",
            "Registration.activation-code-source": policy == "manual" ? "env:CODE" : nil,
        ]
    }
    /// A provider is configured, and is not asked.
    private static let byPassword = ["automatic", "manual"].flatMap { policy in
        [
            Row(
                "10 \(policy)", with: password(policy), event: register, asks: ["POST alice"],
                state: .registeredUnlocked,
                check: { host in
                    try await isRegistered(by: "alice")(host)
                    let codes = host.server.state.withLock(\.activationCodes)
                    #expect(codes == (policy == "manual" ? ["code-17"] : []))
                }),
            Row(
                "12b \(policy)", .unlocked, with: password(policy), event: request, asks: ["GET alice"],
                state: .registeredUnlocked),
            Row(
                "16b \(policy)", .unlocked, with: password(policy), event: update, throws: .noCertificateProvider,
                state: .registeredUnlocked
            ),
        ]
    }

    private static let requesting =
        [
            Row("12", .unlocked, event: request, asks: ["stored", "GET client"], state: .registeredUnlocked),
            Row(
                "13", .unlocked, arrange: stored(.success(nil)), event: request, asks: ["stored", "get", "GET client"],
                state: .registeredUnlocked),
            Row(
                "14", .unlocked,
                arrange: stored(.failure(ProviderError(.storeReadFailed, "The disk is gone."))),
                event: request, asks: ["stored"], throws: .storeReadFailed, state: .registeredUnlocked),
            Row(
                "15 the certificate", .unlocked,
                // The connection that has registered stays open.
                arrange: refusesCertificates,
                event: { host in
                    let next = try host.restarted()
                    try await next.unlock(host.person)
                    _ = try await next.request(HTTPRequest(target: "/hello"))
                }, asks: ["stored"], throws: .rejected, state: .registeredUnlocked),
        ]
        + [401, 403].map { status in
            Row(
                "15 \(status)", .unlocked, arrange: faults("GET", .status(status)), event: request,
                asks: ["stored", "GET client"], throws: .rejected, state: .registeredUnlocked)
        }

    private static let updating = [
        Row(
            "16", .unlocked, event: update, asks: ["delete", "get"], state: .registeredUnlocked,
            check: isRegistered(by: PlatformServer.client)),
        Row(
            "17", .unlocked, arrange: deletionFails, event: update, asks: ["delete"], throws: .deleteFailed,
            state: .registeredUnlocked, check: keepsTheCertificate),
        Row(
            "18", .unlocked, arrange: provider(fails: .pending), event: update, asks: ["delete", "get"],
            throws: .pending, state: .registeredUnlocked),
        Row(
            "18 and the next request", .unlocked, arrange: provider(fails: .pending),
            event: { host in
                await #expect(throws: ProviderError.self) { try await update(host) }
                host.provider.obtain(host.identity)
                try await request(host)
            }, asks: ["delete", "get", "stored", "get", "GET client"], state: .registeredUnlocked),
    ]

    private static let leaving = [
        Row(
            "19", .unlocked, event: unregister, asks: ["stored", "DELETE client", "delete"], state: .notRegistered,
            check: isGone),
        Row(
            "19 the server does not know it", .unlocked,
            arrange: { host in host.server.state.withLock { $0.connections = [:] } },
            event: unregister, asks: ["stored", "DELETE client", "delete"], state: .notRegistered, check: isGone),
        Row(
            "20 refused", .unlocked, arrange: faults("DELETE", .status(401)), event: unregister,
            asks: ["stored", "DELETE client"], throws: .rejected, state: .registeredUnlocked,
            check: isRegistered(by: PlatformServer.client)),
        Row(
            "20 no answer", .unlocked, arrange: faults("DELETE", .ignored, .ignored, .ignored), event: unregister,
            asks: ["stored", "DELETE client", "DELETE client", "DELETE client"], throws: .unavailable,
            state: .registeredUnlocked, check: isRegistered(by: PlatformServer.client)),
        Row(
            "20 fails", .unlocked, arrange: faults("DELETE", .status(500), .status(500), .status(500)),
            event: unregister,
            asks: ["stored", "DELETE client", "DELETE client", "DELETE client"], throws: .unavailable,
            state: .registeredUnlocked, check: isRegistered(by: PlatformServer.client)),
        Row(
            "20 by force", .unlocked, arrange: faults("DELETE", .status(401)), event: unregisterByForce,
            asks: ["stored", "DELETE client", "delete"], state: .notRegistered, check: hasNoVault),
        Row(
            "21", .unlocked, arrange: deletionFails, event: unregister, asks: ["stored", "DELETE client", "delete"],
            throws: .deleteFailed, state: .notRegistered, check: isGone),
    ]

    private static let passcode = [
        Row(
            "22", .locked, with: ["Passcode.max-attempts": "3"], event: unlockWrongly, throws: .wrongPassword,
            state: .registeredLocked, check: hasAttempts(2)),
        Row(
            "23", .locked, with: ["Passcode.max-attempts": "2"],
            arrange: { host in
                await #expect(throws: ProviderError.self) { try await unlockWrongly(host) }
            }, event: unlockWrongly, asks: ["delete"], throws: .vaultDestroyed, state: .notRegistered, check: hasNoVault
        ),
        Row(
            "24", .locked, with: ["Passcode.max-attempts": "3"],
            arrange: { host in
                await #expect(throws: ProviderError.self) { try await unlockWrongly(host) }
            }, event: unlock, state: .registeredUnlocked, check: hasAttempts(3)),
        Row("25", .unlocked, event: { try await $0.manager.lock() }, state: .registeredLocked),
    ]

    private static let locked =
        [("request", request), ("update", update), ("register", register), ("unregister", unregister)].map {
            name, event in
            Row("26 \(name)", .locked, event: event, throws: .vaultLocked, state: .registeredLocked)
        } + [
            Row(
                "26 by force", .locked, event: unregisterByForce, asks: ["delete"], state: .notRegistered,
                check: hasNoVault),
            Row(
                "26 by force, and the provider fails", .locked, arrange: deletionFails, event: unregisterByForce,
                asks: ["delete"], state: .notRegistered, check: hasNoVault),
        ]

    private static let moved = [
        ("provider", ["CertificateProvider": "other"]), ("policy", ["UserCreationPolicy": "automatic"]),
    ]
    .flatMap { what, settings in
        let events: [(String, @Sendable (LogonManager, Person) async throws -> Void)] = [
            ("register", { _ = try await $0.register($1) }),
            ("request", { manager, _ in _ = try await manager.request(HTTPRequest(target: "/hello")) }),
            ("update", { _ = try await $0.updateCertificate($1) }), ("unregister", { try await $0.unregister($1) }),
        ]
        return events.map { name, event in
            Row(
                "27 \(what), \(name)", .unlocked,
                event: { host in
                    let manager = try host.restarted(settings)
                    try await manager.unlock(host.person)
                    try await event(manager, host.person)
                }, throws: .configurationInvalid, state: .registeredUnlocked,
                check: isRegistered(by: PlatformServer.client))
        }
    }

    private static func nextProcess(is state: LogonState) -> Step {
        { host in
            let now = try await host.restarted().registrationState()
            #expect(now == state)
        }
    }

    // MARK: Effects

    private static func hasAttempts(_ count: Int?) -> Step {
        { host in
            let left = try host.vault.attemptsLeft()
            #expect(left == count)
        }
    }

    private static let hasTheServersID: Step = { host in
        let id = try await host.manager.registeredConnection()
        #expect(id.description.hasPrefix("server-") && host.server.connections[id.description] != nil)
    }

    private static let keepsTheCertificate: Step = { host in
        let stored = try host.provider.getStoredCertificate()
        #expect(stored != nil)
    }

    /// There is one connection, which both sides know.
    private static func isRegistered(by principal: String) -> Step {
        { host in
            let id = try await host.manager.registeredConnection()
            #expect(host.server.connections == [id.description: principal])
        }
    }

    private static let isGone: Step = { host in
        #expect(host.server.connections.isEmpty)
        try await hasNoVault(host)
    }

    private static let hasNoVault: Step = { host in
        #expect(!FileManager.default.fileExists(atPath: host.directory["applications/com.example.app/vault/key"]))
    }
}
