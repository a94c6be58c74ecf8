import CP11Kit

/// What changes a token. Needs a session for reading and writing.
extension Session {
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

    /// Destroys every object with a `CKA_ID` that nobody else has: what an attempt to make a key left behind.
    func destroyAll(id: [UInt8]) throws(CryptokiError) {
        for object in try objects(id: id) { try destroy(object) }
    }

    /// Destroys a key pair that nobody has got. One that has a certificate was handed over, whatever is remembered of
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
