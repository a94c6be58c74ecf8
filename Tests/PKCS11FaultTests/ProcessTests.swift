import CertificateProviding
import FaultyModuleControl
import Foundation
import Glibc
import IdentityStore
import PKCS11TokenProvider
import TestSupport
import Testing

/// Processes that share one store. Each is this test again, with a copy of the module of its own.
@Suite(.timeLimit(.minutes(20))) struct ProcessTests {
    private static let environment = ProcessInfo.processInfo.environment
    /// The task of the process within: its configured PIN, the store, and the expected outcome.
    private static let task = environment["CERTPROV_TEST_LOGIN"]?.split(separator: " ").map(String.init)

    @Test(.enabled(if: task != nil)) func withinAProcess() async throws {
        let task = try #require(Self.task)
        let storage = IdentityStore(path: task[1]).storage(for: PKCS11TokenProvider.id)
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider(pin: task[0], storage: storage)
        let code = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(code?.rawValue ?? "success" == task[2])
    }

    private let directory: TemporaryDirectory
    private let threads = BlockingExecutor.threads(maximum: 4)

    init() throws { directory = try TemporaryDirectory() }

    /// Runs a process to its end.
    /// - Parameter isKilled: Whether it ends within `C_Login`, with nothing given back and nothing written down.
    private func start(pin: String, isKilled: Bool = false, for result: String) async throws {
        var variables = [
            "CERTPROV_TEST_LOGIN=\(pin) \(directory["state"]) \(result)", "FAULTY_MODULE_PINS=\(directory["pins"])",
        ]
        if isKilled { variables.append("FAULTY_MODULE_CRASH=C_Login") }
        try await Subprocess.runTests(["withinAProcess"], of: "withinAProcess", with: variables, on: threads)
    }

    private var pins: Int { get throws { try directory.read("pins").count } }

    @Test(.enabled(if: task == nil)) func aWrongPINIsSentOnceByAll() async throws {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<4 { tasks.addTask { try await start(pin: "9999", for: "pinIncorrect") } }
            try await tasks.waitForAll()
        }
        #expect(try pins == 1)
    }

    @Test(.enabled(if: task == nil)) func aRightPINWorksAfterItsProcessWasKilled() async throws {
        for round in 1...2 {
            await #expect(throws: (any Error).self) {
                try await start(pin: FaultyModule.pin, isKilled: true, for: "nothing")
            }
            try await start(pin: FaultyModule.pin, for: "success")
            #expect(try pins == 2 * round)
        }
    }

    @Test(.enabled(if: task == nil)) func aWrongPINIsSentTwiceByProcessesThatAreKilled() async throws {
        for _ in 0..<2 {
            await #expect(throws: (any Error).self) {
                try await start(pin: "9999", isKilled: true, for: "nothing")
            }
        }
        for _ in 0..<2 { try await start(pin: "9999", isKilled: true, for: "operationNotAllowed") }
        #expect(try pins == 2)
    }
}

/// A child of a process that uses a token. Only in a process with no other threads, whose locks are free at the fork.
@Suite(.timeLimit(.minutes(20))) struct ForkTests {
    private static let isWithin = ProcessInfo.processInfo.environment["CERTPROV_TEST_FORK"] != nil

    @Test(.disabled(if: isWithin)) func inAProcessOfItsOwn() async throws {
        try await Subprocess.runTests(["aChildHasNoProvider"], of: "ForkTests", with: ["CERTPROV_TEST_FORK=1"])
    }

    @Test(.enabled(if: isWithin)) func aChildHasNoProvider() async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        let openings = module.calls("C_OpenSession")
        // Swift hides it, for a reason: what the child does here is little.
        let fork = unsafeBitCast(try #require(dlsym(nil, "fork")), to: (@convention(c) () -> pid_t).self)
        let child = fork()
        if child == 0 {
            alarm(30)
            do throws(ProviderError) { _ = try provider.getStoredCertificate() } catch {
                _exit(error.code == .operationNotAllowed ? 0 : 2)
            }
            _exit(1)
        }
        try #require(child > 0)
        var status: Int32 = -1
        #expect(waitpid(child, &status, 0) == child && status == 0)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_OpenSession") == openings)
    }
}
