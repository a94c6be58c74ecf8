import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// Any fault in any function, in any order: each call ends in time with an error that says what happened, and when the
/// faults stop, the token works again.
@Suite(.timeLimit(.minutes(60))) struct RandomFaultTests {
    enum Step: Sendable, CustomStringConvertible {
        case fail(String, CK_RV, times: UInt32)
        case lose(String, CK_RV)
        case hang(String)
        case remove, insert, logOut
        case sign, signFourTimes, get, getStored, list, anotherProvider

        var description: String {
            switch self {
            case .fail(let function, let code, let times):
                "\(function) fails \(times) times with 0x\(String(code, radix: 16))"
            case .lose(let function, let code): "\(function) loses its answer and says 0x\(String(code, radix: 16))"
            case .hang(let function): "\(function) hangs during the next call"
            case .remove: "the token is removed"
            case .insert: "the token is inserted"
            case .logOut: "another part of the process logs out"
            case .sign: "sign"
            case .signFourTimes: "sign four times at once"
            case .get: "get"
            case .getStored: "get what is stored"
            case .list: "list"
            case .anotherProvider: "sign with another provider"
            }
        }
    }

    fileprivate static let functions = [
        "C_Initialize", "C_Finalize", "C_GetInfo", "C_GetSlotList", "C_GetSlotInfo", "C_GetTokenInfo",
        "C_GetMechanismList",
        "C_GetMechanismInfo", "C_OpenSession", "C_CloseSession", "C_GetSessionInfo", "C_Login", "C_Logout",
        "C_FindObjectsInit", "C_FindObjects", "C_FindObjectsFinal", "C_GetAttributeValue", "C_SignInit", "C_Sign",
    ]
    /// None that says that a PIN is wrong or locked: that is believed.
    private static let codes: [CK_RV] = [
        CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_HOST_MEMORY, CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED,
        CKR_DEVICE_MEMORY,
        CKR_TOKEN_NOT_PRESENT, CKR_TOKEN_NOT_RECOGNIZED, CKR_SESSION_HANDLE_INVALID, CKR_SESSION_CLOSED,
        CKR_SESSION_COUNT,
        CKR_OBJECT_HANDLE_INVALID, CKR_KEY_HANDLE_INVALID, CKR_SLOT_ID_INVALID, CKR_CRYPTOKI_NOT_INITIALIZED,
        CKR_USER_NOT_LOGGED_IN, CKR_USER_ALREADY_LOGGED_IN, CKR_OPERATION_ACTIVE, CKR_OPERATION_NOT_INITIALIZED,
        CKR_BUFFER_TOO_SMALL, CKR_ARGUMENTS_BAD, CKR_FUNCTION_NOT_SUPPORTED, CKR_MECHANISM_INVALID,
        CKR_ATTRIBUTE_TYPE_INVALID, CKR_DATA_LEN_RANGE, CKR_KEY_FUNCTION_NOT_PERMITTED, CKR_FUNCTION_CANCELED,
        0x8000_0123,
    ]

    @Test("Random failures of a module give typed errors, and cost no PIN")
    func whateverFails() async throws {
        let length = 12
        let cases = TestLength.rounds(60, soak: 100_000 / length)
        let bench = try FaultBench()
        for seed in 0..<cases {
            var random = SeededGenerator(seed: UInt64(seed))
            let steps = (0..<length).map { _ in Self.step(&random) }
            guard let problem = try await bench.run(steps) else { continue }
            let shortest = try await Self.shrunk(steps, bench)
            let again = try await bench.run(shortest) ?? "No problem, this time."
            let list = shortest.map { "\n  \($0)" }.joined()
            Issue.record("Case \(seed): \(problem)\nThe shortest that fails: \(again)\(list)")
            return
        }
    }

    private static func step(_ random: inout SeededGenerator) -> Step {
        let function = functions[Int.random(in: functions.indices, using: &random)]
        let code = codes[Int.random(in: codes.indices, using: &random)]
        return switch Int.random(in: 0..<200, using: &random) {
        case 0: .hang(function)
        case ..<60: .fail(function, code, times: UInt32.random(in: 1...4, using: &random))
        case ..<75: .lose(function, code)
        case ..<85: .remove
        case ..<95: .insert
        case ..<100: .logOut
        case ..<140: .sign
        case ..<150: .signFourTimes
        case ..<165: .get
        case ..<180: .getStored
        case ..<190: .list
        default: .anotherProvider
        }
    }

    /// Leaves out one step after the other as long as there is a problem.
    private static func shrunk(_ steps: [Step], _ bench: FaultBench) async throws -> [Step] {
        var steps = steps
        var index = 0
        while index < steps.count {
            var fewer = steps
            fewer.remove(at: index)
            if try await bench.run(fewer) != nil { steps = fewer } else { index += 1 }
        }
        return steps
    }
}

/// A module, which one case after the other finds as new.
private final class FaultBench: Sendable {
    private let module: FaultyModule
    /// How much later it is for the providers than it is: after a login without an answer the next one has to wait.
    private let delay = Mutex(TimeInterval(0))
    private static let timeout = Duration.seconds(2)
    /// On a busy machine a call that does not hang may take much longer than its timeout.
    private static let limit = Duration.seconds(60)

    init() throws { module = try FaultyModule.withIdentity() }

    private func provider(_ storage: any IdentityStorage) throws -> PKCS11TokenProvider {
        try module.provider(
            storage: storage, now: { Date() + self.delay.withLock { $0 } },
            ["timeout": "\(Self.timeout.components.seconds)"])
    }

    /// - Returns: What went wrong.
    func run(_ steps: [RandomFaultTests.Step]) async throws -> String? {
        delay.withLock { $0 = 0 }
        let storage = InMemoryStorage()
        let provider = try provider(storage)
        let key = try await key(of: provider)
        guard try await key.signsValidly() else { return "The first signature is wrong." }
        for (number, step) in steps.enumerated() {
            if let problem = await problem(of: step, provider, key, storage) {
                return "Step \(number), \(step): \(problem)"
            }
        }
        heal()
        let problem = await problem(afterHealing: provider, key)
        await provider.shutdown()
        if module.control.shared_uses() > 0 { return "Two calls used one session." }
        if module.control.tries_left(0) != 3 { return "The token has counted a wrong PIN." }
        return problem
    }

    /// Nothing fails yet, but a busy machine may take longer than the timeout.
    private func key(of provider: PKCS11TokenProvider) async throws -> any IdentityKey {
        let end = ContinuousClock.now + Self.limit
        while true {
            do throws(ProviderError) {
                return try await provider.getCertificate(NoUserInteraction()).key
            } catch { guard error.code == .timedOut, .now < end else { throw error } }
        }
    }

    private func heal() {
        module.control.release()
        for function in RandomFaultTests.functions {
            module.control.fail(function, 0, 0, CKR_OK)
            module.control.lose(function, 0, CKR_OK)
        }
        module.control.insert(0, -1)
        module.control.insert(0, 0)
        delay.withLock { $0 = 2 * 86400 }
    }

    private func problem(afterHealing provider: PKCS11TokenProvider, _ key: any IdentityKey) async -> String? {
        let end = ContinuousClock.now + .seconds(600)
        var last = ""
        // A module is started again at most three times a second.
        while ContinuousClock.now < end {
            do {
                let new = try await provider.getCertificate(NoUserInteraction()).key
                if try await new.signsValidly(), try await key.signsValidly() { return nil }
                last = "a signature is wrong"
            } catch { last = "\(error)" }
            await Task.yield()
        }
        return "The token does not work when the faults have stopped: \(last)"
    }

    private func problem(
        of step: RandomFaultTests.Step, _ provider: PKCS11TokenProvider, _ key: any IdentityKey,
        _ storage: any IdentityStorage
    ) async -> String? {
        switch step {
        case .fail(let function, let code, let times): module.fail(function, code, times: times)
        case .lose(let function, let code): module.control.lose(function, 1, code)
        case .remove: module.control.insert(0, -1)
        case .insert: module.control.insert(0, 0)
        case .logOut: module.control.log_out(0)
        case .hang(let function):
            module.control.hold(function)
            defer { module.control.release() }
            return await call { _ = try await key.signsValidly() }
        case .sign: return await call { if try await !key.signsValidly() { throw WrongSignature() } }
        case .signFourTimes:
            return await withTaskGroup(of: String?.self) { tasks in
                for _ in 0..<4 {
                    tasks.addTask { await self.call { if try await !key.signsValidly() { throw WrongSignature() } } }
                }
                return await tasks.reduce(nil) { $0 ?? $1 }
            }
        case .get: return await call { _ = try await provider.getCertificate(NoUserInteraction()) }
        case .getStored: return await call { _ = try provider.getStoredCertificate() }
        case .list: return await call { _ = await provider.listIdentities() }
        case .anotherProvider:
            return await call {
                let other = try self.provider(storage)
                let key = try await other.getCertificate(NoUserInteraction()).key
                if try await !key.signsValidly() { throw WrongSignature() }
            }
        }
        return nil
    }

    private struct WrongSignature: Error {}

    /// - Returns: What went wrong: not that the call fails, but how.
    private func call(_ body: () async throws -> Void) async -> String? {
        let start = ContinuousClock.now
        var problem: String?
        do { try await body() } catch let error as ProviderError {
            if [.internal, .pinIncorrect, .pinLocked, .pinFinalTry].contains(error.code) { problem = "\(error)" }
        } catch { problem = "\(error)" }
        let time = ContinuousClock.now - start
        return problem ?? (time > Self.limit ? "It took \(time)." : nil)
    }
}
