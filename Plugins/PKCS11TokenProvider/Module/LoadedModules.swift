import CP11Kit

/// The modules that one call of p11-kit loaded, released together.
final class LoadedModules: Sendable {
    /// Taken over from p11-kit, which says so of its functions.
    enum Loaded: @unchecked Sendable {
        /// The result of `p11_kit_modules_load`.
        case list(UnsafeMutablePointer<UnsafeMutablePointer<CK_FUNCTION_LIST>?>)
        /// The result of `p11_kit_module_load`.
        case single(UnsafeMutablePointer<CK_FUNCTION_LIST>)
    }

    private let loaded: Loaded
    let cleanup = DeferredCleanup()

    init(_ loaded: Loaded) { self.loaded = loaded }

    deinit {
        cleanup.run { [loaded] in
            switch loaded {
            case .list(let list): p11_kit_modules_release(list)
            case .single(let module): p11_kit_module_release(module)
            }
        }
    }

    var functions: [UnsafeMutablePointer<CK_FUNCTION_LIST>] {
        switch loaded {
        case .single(let module): return [module]
        case .list(let list):
            var functions: [UnsafeMutablePointer<CK_FUNCTION_LIST>] = []
            while let next = list[functions.count] { functions.append(next) }
            return functions
        }
    }
}
