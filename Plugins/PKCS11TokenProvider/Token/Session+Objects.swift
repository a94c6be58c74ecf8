import CP11Kit

/// Finding and reading objects. Everything here blocks.
extension Session {
    /// Returns the handles of the objects that have all of `attributes`. Only handles: a token may hold more objects
    /// than anybody wants in memory.
    func objects(with attributes: [Attribute]) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        try Attribute.withTemplate(attributes) { template, count throws(CryptokiError) in
            try call("C_FindObjectsInit") { $0.C_FindObjectsInit?(handle, template, count) }
        }
        defer { try? call("C_FindObjectsFinal") { $0.C_FindObjectsFinal?(handle) } }
        var found: [CK_OBJECT_HANDLE] = []
        var seen = Set<CK_OBJECT_HANDLE>()
        var batch = [CK_OBJECT_HANDLE](repeating: 0, count: 256)
        while found.count < Self.maximumObjects {
            var count: CK_ULONG = 0
            try call("C_FindObjects") { $0.C_FindObjects?(handle, &batch, CK_ULONG(batch.count), &count) }
            let new = batch.prefix(min(Int(clamping: count), batch.count)).filter { seen.insert($0).inserted }
            // Some begin anew at the end.
            guard !new.isEmpty else { break }
            found += new
        }
        return found
    }

    /// A module that goes on for ever is not followed there.
    private static let maximumObjects = 1_000_000

    /// The largest attribute that is read. Certificates with everything in them stay far below.
    private static let maximumAttributeSize = 1 << 20

    /// `CK_UNAVAILABLE_INFORMATION`, a macro that Swift does not see.
    private static let unavailable = CK_ULONG.max

    /// Reads one attribute; `nil` when the object has none or it may not be seen.
    ///
    /// - Parameter room: How many bytes are probably enough. Without it the module is asked for the length before.
    /// - Throws: Also when the module reports a length and then returns another, larger one.
    func attribute(
        _ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE, room: Int? = nil
    ) throws(CryptokiError) -> [UInt8]? {
        var room = room
        // It may have grown meanwhile: asked for again, once.
        for _ in 0..<2 {
            let size: Int
            if let room { size = room } else { size = try length(of: type, of: object) ?? -1 }
            guard size > 0 else { return size == 0 ? [] : nil }
            do throws(CryptokiError) { return try read(type, of: object, size: size) } catch {
                guard error.code == CKR_BUFFER_TOO_SMALL else { throw error }
                room = nil
            }
        }
        throw CryptokiError(function: "C_GetAttributeValue", code: CKR_BUFFER_TOO_SMALL)
    }

    private func length(of type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> Int? {
        var template = CK_ATTRIBUTE(type: type, pValue: nil, ulValueLen: 0)
        guard try get(&template, of: object) else { return nil }
        let size = Int(clamping: template.ulValueLen)
        guard size <= Self.maximumAttributeSize else {
            throw CryptokiError(function: "C_GetAttributeValue", code: CKR_ATTRIBUTE_VALUE_INVALID)
        }
        return size
    }

    private func read(
        _ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE, size: Int
    ) throws(CryptokiError) -> [UInt8]? {
        let value = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
        defer { value.deallocate() }
        var template = CK_ATTRIBUTE(type: type, pValue: value.baseAddress, ulValueLen: CK_ULONG(size))
        guard try get(&template, of: object) else { return nil }
        guard template.ulValueLen <= CK_ULONG(size) else {
            throw CryptokiError(function: "C_GetAttributeValue", code: CKR_ATTRIBUTE_VALUE_INVALID)
        }
        return Array(value.prefix(Int(template.ulValueLen)))
    }

    /// - Returns: Whether the object has the attribute, and it may be seen.
    private func get(_ template: inout CK_ATTRIBUTE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> Bool {
        do throws(CryptokiError) {
            try call("C_GetAttributeValue") { $0.C_GetAttributeValue?(handle, object, &template, 1) }
        } catch {
            if error.code == CKR_ATTRIBUTE_TYPE_INVALID || error.code == CKR_ATTRIBUTE_SENSITIVE { return false }
            throw error
        }
        return template.ulValueLen != Self.unavailable
    }

    /// Reads a number, such as `CKA_KEY_TYPE`; `nil` when there is none or it is no number.
    func number(_ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> CK_ULONG? {
        guard let bytes = try attribute(type, of: object), bytes.count == MemoryLayout<CK_ULONG>.size else {
            return nil
        }
        return bytes.withUnsafeBytes { $0.loadUnaligned(as: CK_ULONG.self) }
    }

    /// Reads a truth value; `nil` when there is none.
    func flag(_ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> Bool? {
        try attribute(type, of: object).flatMap { $0.count == 1 ? $0[0] != 0 : nil }
    }
}
