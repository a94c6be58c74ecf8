import CP11Kit
import CertificateProviding
import Glibc
import Synchronization

/// A PKCS#11 module that p11-kit has loaded: one vendor's library, or one that runs in another process (`remote:`).
///
/// p11-kit counts who uses a module. Finalising it here therefore takes nothing from another part of the process, and
/// after a fork the child's first call initialises it anew.
final class Module: Sendable {
    /// What p11-kit calls it, or its path.
    let name: String
    /// Valid as long as `owner`.
    nonisolated(unsafe) private let functions: UnsafeMutablePointer<CK_FUNCTION_LIST>
    private let owner: ModuleHandles
    private let starts = Mutex(0)

    /// - Throws: When the module does not initialise.
    init(_ functions: UnsafeMutablePointer<CK_FUNCTION_LIST>, name: String, owner: ModuleHandles) throws(CryptokiError)
    {
        self.functions = functions
        self.name = name
        self.owner = owner
        let result = p11_kit_module_initialize(functions)
        guard result == CKR_OK else { throw CryptokiError(function: "C_Initialize", code: result) }
    }

    deinit { _ = p11_kit_module_finalize(functions) }

    /// How often the module was started again. What was got of it before is worthless afterwards.
    var generation: Int { starts.withLock { $0 } }

    /// Starts the module again where that can help: one that runs in another process does not come back by itself when
    /// that process ends, and one that somebody else has finalised does not either.
    ///
    /// - Parameters:
    ///   - error: What a call that concerns no token ended with.
    ///   - generation: As it was before that call: of several threads that saw it fail one starts it.
    /// - Throws: `error`, where it is of another kind; what the start ends with.
    func restart(after error: CryptokiError, in generation: Int) throws(CryptokiError) {
        guard error.endsConnection, isRemote || error.code == CKR_CRYPTOKI_NOT_INITIALIZED else { throw error }
        try starts.withLock { starts throws(CryptokiError) in
            guard starts == generation else { return }
            _ = p11_kit_module_finalize(functions)
            let result = p11_kit_module_initialize(functions)
            guard result == CKR_OK else { throw CryptokiError(function: "C_Initialize", code: result) }
            starts += 1
        }
    }

    private var isRemote: Bool {
        guard let command = p11_kit_config_option(functions, "remote") else { return false }
        free(command)
        return true
    }

    /// Calls a function of the module. Blocks for as long as the module likes.
    ///
    /// - Parameter body: Gets the function list, and calls the function that `name` names.
    func call(
        _ name: String, _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?
    ) throws(CryptokiError) {
        guard let result = body(functions.pointee) else {
            throw CryptokiError(function: name, code: CKR_FUNCTION_NOT_SUPPORTED)
        }
        guard result == CKR_OK else { throw CryptokiError(function: name, code: result) }
    }
}

/// The modules that one call of p11-kit loaded, released together.
final class ModuleHandles: Sendable {
    nonisolated(unsafe) private let list: UnsafeMutablePointer<UnsafeMutablePointer<CK_FUNCTION_LIST>?>?
    nonisolated(unsafe) private let single: UnsafeMutablePointer<CK_FUNCTION_LIST>?

    /// Takes over what `p11_kit_modules_load` returned.
    init(list: UnsafeMutablePointer<UnsafeMutablePointer<CK_FUNCTION_LIST>?>) {
        self.list = list
        self.single = nil
    }

    /// Takes over what `p11_kit_module_load` returned.
    init(single: UnsafeMutablePointer<CK_FUNCTION_LIST>) {
        self.list = nil
        self.single = single
    }

    deinit {
        if let list { p11_kit_modules_release(list) }
        if let single { p11_kit_module_release(single) }
    }

    var functions: [UnsafeMutablePointer<CK_FUNCTION_LIST>] {
        if let single { return [single] }
        guard let list else { return [] }
        var functions: [UnsafeMutablePointer<CK_FUNCTION_LIST>] = []
        while let next = list[functions.count] { functions.append(next) }
        return functions
    }
}
