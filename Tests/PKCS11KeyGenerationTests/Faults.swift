import CP11Kit
import CertificateProviding
import Dispatch
import Foundation
import Glibc
import Logging
import Synchronization
import TestSupport

@testable import PKCS11TokenProvider

/// SoftHSM's functions, some of which fail when a test says so.
enum Faults {
    struct Plan {
        var generation: CK_RV?
        /// The answer to a private key's template that forbids something.
        var forbidding: CK_RV?
        var readingPoints: CK_RV?
        /// After so many that work.
        var creation: (working: Int, code: CK_RV)?
        /// Of the next one, which works nevertheless.
        var lostAnswer: CK_RV?
        var destruction: (working: Int, code: CK_RV)?
        var signing: CK_RV?
        /// The answer to the next generation, which works nevertheless.
        var lostGeneration: CK_RV?
        /// The next generation stops before it answers, having signalled the one, until the other is signalled.
        var pause: (reached: DispatchSemaphore, end: DispatchSemaphore)?
        /// The process ends when the pair is made, as by `kill -9`.
        var isKilled = false
        /// Searches as if no `CKA_ID` were asked for.
        var ignoresID = false
        /// The token is empty until it is looked at, and then it is none.
        var hasVanished = false
        /// No token is in any slot.
        var isAway = false
        var generations = 0
    }

    static let plan = Mutex(Plan())
    private static let real = Mutex<[CK_FUNCTION_LIST]>([])
    private static var functions: CK_FUNCTION_LIST? { real.withLock { $0.first } }

    static func module(_ path: String) throws -> Module {
        guard let loaded = p11_kit_module_load(path, 0) else { throw EmptyTokens.Failure(description: path) }
        // Initialised as p11-kit knows it; the copy of the library's own functions never leaves the test.
        let initialised = p11_kit_module_initialize(loaded)
        guard initialised == CKR_OK else { throw CryptokiError(function: "C_Initialize", code: initialised) }
        typealias Getter = @convention(c) (UnsafeMutablePointer<UnsafeMutablePointer<CK_FUNCTION_LIST>?>) -> CK_RV
        var list: UnsafeMutablePointer<CK_FUNCTION_LIST>?
        guard let library = dlopen(path, RTLD_NOW), let symbol = dlsym(library, "C_GetFunctionList"),
            unsafeBitCast(symbol, to: Getter.self)(&list) == CKR_OK, let list
        else { throw EmptyTokens.Failure(description: "no functions") }
        real.withLock { $0 = [list.pointee] }
        let copy = UnsafeMutablePointer<CK_FUNCTION_LIST>.allocate(capacity: 1)
        copy.initialize(to: list.pointee)
        copy.pointee.C_Initialize = { _ in CKR_OK }
        copy.pointee.C_Finalize = { _ in CKR_OK }
        copy.pointee.C_GenerateKeyPair = { session, mechanism, publicKey, publicCount, privateKey, privateCount, a, b in
            let plan = Faults.plan.withLock { plan in
                defer { (plan.lostGeneration, plan.pause) = (nil, nil) }
                plan.generations += 1
                return plan
            }
            let types = (0..<Int(privateCount)).compactMap { privateKey?[$0].type }
            if let code = plan.forbidding, types.contains(CKA_UNWRAP) { return code }
            if let code = plan.generation { return code }
            let result =
                Faults.functions?.C_GenerateKeyPair?(
                    session, mechanism, publicKey, publicCount, privateKey, privateCount, a, b) ?? CKR_GENERAL_ERROR
            if plan.isKilled { kill(getpid(), SIGKILL) }
            plan.pause?.reached.signal()
            plan.pause?.end.wait()
            return plan.lostGeneration ?? result
        }
        copy.pointee.C_FindObjectsInit = { session, template, count in
            guard Faults.plan.withLock({ $0.ignoresID }) else {
                return Faults.functions?.C_FindObjectsInit?(session, template, count) ?? CKR_GENERAL_ERROR
            }
            var kept = UnsafeBufferPointer(start: template, count: Int(count)).filter { $0.type != CKA_ID }
            return Faults.functions?.C_FindObjectsInit?(session, &kept, CK_ULONG(kept.count)) ?? CKR_GENERAL_ERROR
        }
        copy.pointee.C_GetAttributeValue = { session, object, template, count in
            if let code = Faults.plan.withLock({ $0.readingPoints }), template?.pointee.type == CKA_EC_POINT {
                return code
            }
            return Faults.functions?.C_GetAttributeValue?(session, object, template, count) ?? CKR_GENERAL_ERROR
        }
        copy.pointee.C_FindObjects = { session, objects, room, count in
            let result = Faults.functions?.C_FindObjects?(session, objects, room, count) ?? CKR_GENERAL_ERROR
            if Faults.plan.withLock({ $0.hasVanished }) { count?.pointee = 0 }
            return result
        }
        copy.pointee.C_GetTokenInfo = { slot, info in
            let result = Faults.functions?.C_GetTokenInfo?(slot, info) ?? CKR_GENERAL_ERROR
            let hasVanished = Faults.plan.withLock { plan in
                defer { plan.hasVanished = false }
                return plan.hasVanished
            }
            if hasVanished { info?.pointee.flags = 0 }
            return result
        }
        copy.pointee.C_GetSlotList = { hasToken, slots, count in
            if Faults.plan.withLock({ $0.isAway }) {
                count?.pointee = 0
                return CKR_OK
            }
            return Faults.functions?.C_GetSlotList?(hasToken, slots, count) ?? CKR_GENERAL_ERROR
        }
        copy.pointee.C_CreateObject = { session, template, count, object in
            let lost = Faults.plan.withLock { plan in
                defer { plan.lostAnswer = nil }
                return plan.lostAnswer
            }
            if let lost {
                _ = Faults.functions?.C_CreateObject?(session, template, count, object)
                return lost
            }
            if let code = Faults.plan.withLock({ Faults.next(&$0.creation) }) { return code }
            return Faults.functions?.C_CreateObject?(session, template, count, object) ?? CKR_GENERAL_ERROR
        }
        copy.pointee.C_SignInit = { session, mechanism, key in
            if let code = Faults.plan.withLock({ $0.signing }) { return code }
            return Faults.functions?.C_SignInit?(session, mechanism, key) ?? CKR_GENERAL_ERROR
        }
        copy.pointee.C_DestroyObject = { session, object in
            if let code = Faults.plan.withLock({ Faults.next(&$0.destruction) }) { return code }
            return Faults.functions?.C_DestroyObject?(session, object) ?? CKR_GENERAL_ERROR
        }
        return try Module(copy, name: "faulty", owner: LoadedModules(.single(loaded)), place: ModuleRegistry())
    }

    /// The code of a call that is to fail.
    private static func next(_ fault: inout (working: Int, code: CK_RV)?) -> CK_RV? {
        guard let now = fault else { return nil }
        if now.working > 0 {
            fault = (now.working - 1, now.code)
            return nil
        }
        return now.code
    }
}

extension Faults {
    /// A token in the module at `path`, which fails as the plan says.
    static func token(
        _ path: String, _ storage: any IdentityStorage, timeout: Duration = .seconds(20), _ label: String = "faults",
        now: @escaping @Sendable () -> Date = { Date() }
    ) throws -> Token {
        let module = try module(path)
        guard let slot = try Slot.look(at: module, for: try PKCS11URI("pkcs11:token=\(label)")).slots.first else {
            throw EmptyTokens.Failure(description: "no token")
        }
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let tried = TriedPINs(storage: InMemoryStorage(), timeout: .seconds(2), now: { Date() }, logger: logger)
        let supply = PINSupply(
            source: .environment("PIN"), value: nil, secrets: SecretReader { _ in EmptyTokens.pin },
            policy: PINPolicy(tried: tried, logger: logger), isPermitted: true)
        return Token(
            slot, calls: ModuleCalls(timeout: timeout), pins: supply,
            pending: PendingKeys(storage: storage, logger: logger, now: now))
    }
}

extension Token {
    /// Makes a key for the caller.
    func generateKey() throws(ProviderError) -> TokenKey {
        let made = try keys.generate(.p256, label: "x")
        try made.handOver()
        return made.key
    }
}

extension BlockingExecutor {
    func wait(for semaphore: DispatchSemaphore) async -> DispatchTimeoutResult {
        await withCheckedContinuation { continuation in
            submit { continuation.resume(returning: semaphore.wait(timeout: .now() + 600)) }
        }
    }
}
