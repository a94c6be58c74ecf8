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
