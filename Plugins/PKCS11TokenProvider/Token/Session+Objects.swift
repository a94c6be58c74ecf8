import CP11Kit

/// Finding and reading objects. Everything here blocks.
extension Session {
    /// Returns the handles of the objects that have all of `attributes`. Only handles: the objects of a large token would fill
    /// the memory.
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
        // It may have grown since its size was read, which is therefore read twice at most.
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

    /// Reads a number, such as `CKA_KEY_TYPE`; `nil` if the attribute is missing or has another size.
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

    // MARK: What changes a token, in a session for reading and writing

    func create(_ attributes: [Attribute]) throws(CryptokiError) -> CK_OBJECT_HANDLE {
        var object: CK_OBJECT_HANDLE = 0
        try Attribute.withTemplate(attributes) { template, count throws(CryptokiError) in
            try call("C_CreateObject") { $0.C_CreateObject?(handle, template, count, &object) }
        }
        return object
    }

    func destroy(_ object: CK_OBJECT_HANDLE) throws(CryptokiError) {
        try call("C_DestroyObject") { $0.C_DestroyObject?(handle, object) }
    }

    /// Makes a key pair.
    func generate(
        _ mechanism: CK_MECHANISM_TYPE, publicKey: [Attribute], privateKey: [Attribute]
    ) throws(CryptokiError) -> (publicKey: CK_OBJECT_HANDLE, privateKey: CK_OBJECT_HANDLE) {
        var mechanism = CK_MECHANISM(mechanism: mechanism, pParameter: nil, ulParameterLen: 0)
        var pair = (publicKey: CK_OBJECT_HANDLE(0), privateKey: CK_OBJECT_HANDLE(0))
        try Attribute.withTemplate(publicKey) { publicTemplate, publicCount throws(CryptokiError) in
            try Attribute.withTemplate(privateKey) { privateTemplate, privateCount throws(CryptokiError) in
                try call("C_GenerateKeyPair") {
                    $0.C_GenerateKeyPair?(
                        handle, &mechanism, publicTemplate, publicCount, privateTemplate, privateCount,
                        &pair.publicKey, &pair.privateKey)
                }
            }
        }
        return pair
    }

    /// Destroys every object with a `CKA_ID` of this process's own: what an attempt to make a key left behind.
    func destroyAll(id: [UInt8]) throws(CryptokiError) {
        for object in try objects(id: id) { try destroy(object) }
    }

    /// Destroys a key pair that was not handed over. One that has a certificate was handed over, whatever is remembered of
    /// it: the store may be an older copy of itself.
    ///
    /// - Returns: Whether it was there as a whole, so that nothing more of it can come.
    func destroyOrphan(id: [UInt8]) throws(CryptokiError) -> Bool {
        let objects = try objects(id: id)
        var kinds: Set<CK_OBJECT_CLASS> = []
        for object in objects { if let kind = try number(CKA_CLASS, of: object) { kinds.insert(kind) } }
        if kinds.contains(CKO_CERTIFICATE) { return true }
        for object in objects { try destroy(object) }
        return kinds.isSuperset(of: [CKO_PRIVATE_KEY, CKO_PUBLIC_KEY])
    }

    /// The objects that have a `CKA_ID` when they are asked: to a module that does not search by it, every object has
    /// any.
    /// - Parameter kind: Only those of this class.
    func objects(id: [UInt8], _ kind: CK_OBJECT_CLASS? = nil) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        let attributes = (kind.map { [Attribute(CKA_CLASS, $0)] } ?? []) + [Attribute(CKA_ID, id)]
        var found: [CK_OBJECT_HANDLE] = []
        for object in try objects(with: attributes) where try attribute(CKA_ID, of: object) == id {
            found.append(object)
        }
        return found
    }
}
