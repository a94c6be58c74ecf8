import CertificateProviding
import Foundation
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
