import CP11Kit

extension Module {
    /// Calls a function that gives a list of numbers.
    ///
    /// - Parameters:
    ///   - maximum: More than that is refused.
    ///   - spare: How much more room to have than is said.
    ///   - body: Calls it, with no list for the count alone.
    func list(
        _ name: String, maximum: Int, spare: Int = 0,
        _ body: (borrowing CK_FUNCTION_LIST, UnsafeMutablePointer<CK_ULONG>?, UnsafeMutablePointer<CK_ULONG>)
            -> CK_RV?
    ) throws(CryptokiError) -> [CK_ULONG] {
        // The count may grow between asking for it and asking for the list.
        for _ in 0..<3 {
            var count: CK_ULONG = 0
            try call(name) { body($0, nil, &count) }
            guard count > 0 else { return [] }
            let room = Int(clamping: count)
            guard room <= maximum else { break }
            var list = [CK_ULONG](repeating: 0, count: room + spare)
            do throws(CryptokiError) {
                try call(name) { functions in
                    list.withUnsafeMutableBufferPointer { body(functions, $0.baseAddress, &count) }
                }
            } catch {
                if error.code == CKR_BUFFER_TOO_SMALL { continue }
                throw error
            }
            return Array(list.prefix(min(Int(clamping: count), room)))
        }
        throw CryptokiError(function: name, code: CKR_BUFFER_TOO_SMALL)
    }
}
