import CP11Kit

/// A value of an object's attribute.
struct Attribute {
    let type: CK_ATTRIBUTE_TYPE
    let value: [UInt8]

    init(_ type: CK_ATTRIBUTE_TYPE, _ value: [UInt8]) {
        self.type = type
        self.value = value
    }

    init(_ type: CK_ATTRIBUTE_TYPE, _ number: CK_ULONG) {
        self.init(type, withUnsafeBytes(of: number) { Array($0) })
    }

    init(_ type: CK_ATTRIBUTE_TYPE, numbers: [CK_ULONG]) {
        self.init(type, numbers.flatMap { number in withUnsafeBytes(of: number) { Array($0) } })
    }

    init(_ type: CK_ATTRIBUTE_TYPE, _ flag: Bool) { self.init(type, [flag ? 1 : 0]) }

    /// Lends the attributes as the C template.
    static func withTemplate<T>(
        _ attributes: [Attribute], _ body: (UnsafeMutablePointer<CK_ATTRIBUTE>?, CK_ULONG) throws(CryptokiError) -> T
    ) throws(CryptokiError) -> T {
        // All values in one buffer, which stays where it is for the length of the call.
        let bytes = attributes.flatMap(\.value)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, bytes.count), alignment: 1)
        defer { buffer.deallocate() }
        buffer.copyBytes(from: bytes)
        var offset = 0
        var template = attributes.map { attribute in
            defer { offset += attribute.value.count }
            let value = attribute.value.isEmpty ? nil : buffer.baseAddress.map { $0 + offset }
            return CK_ATTRIBUTE(type: attribute.type, pValue: value, ulValueLen: CK_ULONG(attribute.value.count))
        }
        return try body(&template, CK_ULONG(template.count))
    }
}
