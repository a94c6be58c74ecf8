import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Modules that cannot lock, and so cannot be called by two threads at once.
@Suite(.timeLimit(.minutes(20))) struct LockTests {
    private let module: FaultyModule

    init() throws {
        module = try FaultyModule.withIdentity()
        module.control.forbid_threads()
    }

    private func sign(_ count: Int, with keys: [any IdentityKey]) async throws {
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for number in 0..<count { tasks.addTask { try await keys[number % keys.count].signsValidly() } }
            for try await isValid in tasks { #expect(isValid) }
        }
    }

    /// Not all of them have started the module.
    @Test("A module that cannot lock is called by one thread at a time, from all providers")
    func oneThreadAtATimeOfAllProviders() async throws {
        var keys: [any IdentityKey] = []
        for _ in 0..<3 { keys.append(try await module.provider().getCertificate(NoUserInteraction()).key) }
        try await sign(300, with: keys)
        #expect(module.control.overlaps() == 0)
    }

    @Test func severalProvidersStartAtOnce() async throws {
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for _ in 0..<8 {
                tasks.addTask {
                    try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly()
                }
            }
            for try await isValid in tasks { #expect(isValid) }
        }
    }

    @Test("A module that cannot lock is restarted when its token is back")
    func itIsStartedAgainLikeOthers() async throws {
        let key = try await module.provider().getCertificate(NoUserInteraction()).key
        module.control.insert(0, -1)
        #expect(await code { _ = try await key.signsValidly() } == .tokenNotPresent)
        module.control.insert(0, 0)
        try await sign(100, with: [key])
        #expect(module.control.overlaps() == 0 && module.calls("C_Initialize") == 3)
    }
}

/// OpenSC 0.23 leaves a lock locked where a card is pulled out in the middle of a call.
@Suite(.timeLimit(.minutes(20))) struct ForgottenLockTests {
    @Test(arguments: ["C_Sign", "C_GetTokenInfo", "C_GetSessionInfo", "C_Login"])
    func aLockThatACallForgetsStopsNoOther(function: String) async throws {
        let module = try FaultyModule.withIdentity(named: "opensc-pkcs11.so")
        let provider = try module.provider(["timeout": "300", "uri": "pkcs11:token=alpha"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        for _ in 0..<3 {
            module.control.forget_mutex(function)
            module.control.insert(0, -1)
            #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
            module.control.insert(0, 0)
            try await withThrowingTaskGroup(of: Bool.self) { tasks in
                for _ in 0..<20 { tasks.addTask { try await identity.key.signsValidly() } }
                for try await isValid in tasks { #expect(isValid) }
            }
        }
        #expect(module.control.shared_uses() == 0 && module.control.tries_left(0) == 3)
    }
}
