import CP11Kit

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
