import CP11Kit
import CertificateProviding
import Glibc

/// A module's functions as p11-kit has loaded them, from the start of the module to its end.
///
/// p11-kit tells every library that several threads are going to call it. One that cannot have that (`CKR_CANT_LOCK`)
/// is told otherwise, and one thread at a time calls it. So it is with one in another process: where that ends while
/// several threads wait for answers, p11-kit (seen in 0.24.1) leaves all but one of them waiting for ever. Such a process
/// takes one call at a time anyway.
struct CryptokiLibrary: Sendable {
    /// The module's description of itself (`C_GetInfo`).
    let info: CK_INFO
    /// Valid as long as what p11-kit has loaded.
    nonisolated(unsafe) private let functions: Functions
    private let file: String
    private let lock: LibraryLock
    /// Whether it runs in another process: p11-kit starts that, or a `p11-kit server` does.
    let isRemote: Bool

    typealias Functions = UnsafeMutablePointer<CK_FUNCTION_LIST>

    /// Starts the module. Blocks.
    ///
    /// - Parameter name: What tells it from others where p11-kit knows no file.
    init(starting functions: Functions, name: String, lock: LibraryLock) throws(CryptokiError) {
        self.functions = functions
        self.file = Self.file(of: functions) ?? name
        self.lock = lock
        self.isRemote = Self.isStartedByP11Kit(functions) || file.hasSuffix("/p11-kit-client.so")
        do throws(CryptokiError) { info = try Self.start(functions, file, lock) } catch {
            // Another part of the process has finalised it in this moment, which p11-kit does not always notice.
            guard error.code == CKR_CRYPTOKI_NOT_INITIALIZED else { throw error }
            info = try Self.start(functions, file, lock)
        }
    }

    /// The library's file; `nil` where p11-kit knows none.
    static func file(of functions: Functions) -> String? {
        guard let path = p11_kit_module_get_filename(functions) else { return nil }
        defer { free(path) }
        return String(cString: path)
    }

    var readsOnce: Bool { Self.readsOnce(file) }

    static func readsOnce(_ file: String) -> Bool { file.hasSuffix("opensc-pkcs11.so") }

    /// Starts the module after ``finalize()``.
    func initialize() throws(CryptokiError) { try Self.initialize(functions, file, lock) }

    /// Logs out, closes the sessions and finalises.
    ///
    /// - Parameter isWithProcess: Whether the process ends too. Otherwise another part of it may use the login, and closing
    ///   the last session logs out.
    func end(_ open: OpenSessions, isWithProcess: Bool) {
        for slot in open.loggedIn {
            guard let session = open.slots.first(where: { $0.value == slot })?.key,
                isWithProcess || hasNoSessions(but: open, at: slot)
            else { continue }
            _ = call { $0.C_Logout?(session) }
        }
        for session in open.slots.keys { _ = call { $0.C_CloseSession?(session) } }
        finalize()
    }

    func finalize() {
        LoadedLibraries.keep()
        _ = call { _ in p11_kit_module_finalize(functions) }
    }

    /// Whether all sessions of this process with a token are among `open`, as far as the module says so.
    func hasNoSessions(but open: OpenSessions, at slot: CK_SLOT_ID) -> Bool {
        var info = CK_TOKEN_INFO()
        guard call({ $0.C_GetTokenInfo?(slot, &info) }) == CKR_OK else { return false }
        return info.ulSessionCount == CK_ULONG(open.slots.values.count { $0 == slot })
    }

    /// Calls a function; `nil` where the module does not have it.
    func call(_ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?) -> CK_RV? {
        lock.within(always: isRemote) {
            CallMutexes.serve(file) ? CallMutexes.releasing { body(functions.pointee) } : body(functions.pointee)
        }
    }

    private static func isStartedByP11Kit(_ functions: Functions) -> Bool {
        guard let command = p11_kit_config_option(functions, "remote") else { return false }
        free(command)
        return true
    }

    private static func start(
        _ functions: Functions, _ file: String, _ lock: LibraryLock
    ) throws(CryptokiError) -> CK_INFO {
        try initialize(functions, file, lock)
        var info = CK_INFO()
        let result = lock.within { functions.pointee.C_GetInfo?(&info) } ?? CKR_FUNCTION_NOT_SUPPORTED
        guard result == CKR_OK else {
            LoadedLibraries.keep()
            _ = lock.within { p11_kit_module_finalize(functions) }
            throw CryptokiError(function: "C_GetInfo", code: result)
        }
        return info
    }

    private static func initialize(
        _ functions: Functions, _ file: String, _ lock: LibraryLock
    ) throws(CryptokiError) {
        if !lock.cannotLock.hasHappened {
            let result =
                CallMutexes.serve(file)
                ? CallMutexes.releasing { CallMutexes.initialize(functions) } : p11_kit_module_initialize(functions)
            if result == CKR_OK { return }
            guard result == CKR_CANT_LOCK else { throw CryptokiError(function: "C_Initialize", code: result) }
            _ = lock.cannotLock.isFirst()
        }
        // Arguments that p11-kit hands on: neither functions for locks nor leave to use those of the system.
        var arguments = CK_C_INITIALIZE_ARGS()
        let result = lock.within { functions.pointee.C_Initialize?(&arguments) } ?? CKR_FUNCTION_NOT_SUPPORTED
        guard result == CKR_OK else { throw CryptokiError(function: "C_Initialize", code: result) }
    }
}

/// The sessions and logins of this process with the tokens of a module.
struct OpenSessions: Sendable {
    /// The sessions, by their handles.
    var slots: [CK_SESSION_HANDLE: CK_SLOT_ID] = [:]
    /// The slots with a login of this process. Closing the last session logs out too.
    var loggedIn: Set<CK_SLOT_ID> = []
}

/// Held while a thread is inside a library that only one may call at a time. A library has one in a process, however many
/// providers load it: p11-kit does not tell the second one what the first one was answered.
final class LibraryLock: Sendable {
    private let mutex = BlockingMutex(())
    /// Whether the library has said so.
    let cannotLock = Latch()

    func within<T>(always: Bool = false, _ body: () -> T) -> T {
        always || cannotLock.hasHappened ? mutex.withLock { _ in body() } : body()
    }
}
