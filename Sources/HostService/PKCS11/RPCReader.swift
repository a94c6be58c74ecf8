/// Reads the arguments of a call in p11-kit's protocol.
///
/// Each method throws `CKR_ARGUMENTS_BAD` for bytes that end too early, and for numbers above the bounds, before memory is taken for them.
struct RPCReader {
    private var rest: ArraySlice<UInt8>

    /// The attributes of one template, and the bytes of one answer.
    static let maximumAttributes = 32, maximumOutput = RPCFrame.largest

    init(_ bytes: some Collection<UInt8>) { rest = ArraySlice(bytes) }

    /// - Throws: `CKR_ARGUMENTS_BAD` if there is more.
    func end() throws(ReturnCode) { guard rest.isEmpty else { throw .argumentsBad } }

    private mutating func take(_ count: Int) throws(ReturnCode) -> ArraySlice<UInt8> {
        guard rest.count >= count else { throw .argumentsBad }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    mutating func byte() throws(ReturnCode) -> UInt8 {
        for byte in try take(1) { return byte }
        throw .argumentsBad
    }

    mutating func uint32() throws(ReturnCode) -> UInt32 { try take(4).reduce(0) { $0 << 8 | UInt32($1) } }

    /// `u`: a `CK_ULONG`.
    mutating func number() throws(ReturnCode) -> UInt64 { try take(8).reduce(0) { $0 << 8 | UInt64($1) } }

    /// Bytes after their number; `UInt32.max` stands for a null pointer.
    mutating func bytes() throws(ReturnCode) -> [UInt8] {
        let count = try uint32()
        return count == .max ? [] : Array(try take(Int(count)))
    }

    /// `ay`: bytes that may be missing.
    mutating func optionalBytes() throws(ReturnCode) -> [UInt8] {
        if try byte() != 0 { return try bytes() }
        guard try uint32() == 0 else { throw .argumentsBad }
        return []
    }

    /// `fy`: the bytes that the caller has room for; `nil` if it asks for their number.
    mutating func room() throws(ReturnCode) -> Int? {
        let count = try uint32()
        // An empty buffer, and no null pointer.
        if count == .max { return 0 }
        guard count <= Self.maximumOutput else { throw .argumentsBad }
        return count == 0 ? nil : Int(count)
    }

    /// `fu`: the numbers that the caller has room for; 0 if it asks how many there are.
    mutating func numberRoom() throws(ReturnCode) -> Int {
        let count = try uint32()
        guard count <= Self.maximumOutput / 8 else { throw .argumentsBad }
        return Int(count)
    }

    private mutating func attributeCount() throws(ReturnCode) -> UInt32 {
        let count = try uint32()
        guard count <= Self.maximumAttributes else { throw .argumentsBad }
        return count
    }

    /// `aA`: attributes to search by. `nil` stands for a value that the caller does not have.
    ///
    /// - Throws: `CKR_ATTRIBUTE_TYPE_INVALID` for a template in the template: no object here has one.
    mutating func attributes() throws(ReturnCode) -> [(type: AttributeType, value: AttributeValue?)] {
        var attributes: [(AttributeType, AttributeValue?)] = []
        for _ in 0..<(try attributeCount()) {
            let type = AttributeType(rawValue: try uint32())
            guard try byte() != 0 else {
                attributes.append((type, nil))
                continue
            }
            _ = try uint32()
            attributes.append((type, try value(type.form)))
        }
        return attributes
    }

    private mutating func value(_ form: AttributeType.Form) throws(ReturnCode) -> AttributeValue {
        switch form {
        case .byte: return .byte(try byte())
        case .number: return .number(try number())
        case .bytes: return .bytes(try bytes())
        case .numbers:
            var numbers: [UInt64] = []
            for _ in 0..<(try attributeCount()) { numbers.append(try number()) }
            return .numbers(numbers)
        case .template: throw .attributeTypeInvalid
        }
    }

    /// `fA`: attributes to be returned, with the bytes that the caller has room for; 0 if it asks for their number.
    ///
    /// - Throws: `CKR_ATTRIBUTE_TYPE_INVALID` for a template in the template.
    mutating func attributeRooms() throws(ReturnCode) -> [(type: AttributeType, room: Int)] {
        var attributes: [(AttributeType, Int)] = []
        var total = 0
        for _ in 0..<(try attributeCount()) {
            let type = AttributeType(rawValue: try uint32())
            let room = Int(try uint32())
            total += room
            guard total <= Self.maximumOutput else { throw .argumentsBad }
            guard room == 0 || type.form != .template else { throw .attributeTypeInvalid }
            attributes.append((type, room))
        }
        return attributes
    }

    /// `M` and a key: a mechanism with its parameters, and the key at the end of the call.
    ///
    /// - Returns: `nil` instead of a mechanism ends an operation.
    mutating func mechanismAndKey() throws(ReturnCode) -> (mechanism: (type: UInt64, parameters: [UInt8])?, key: UInt64)
    {
        let type = try uint32()
        // The encoding of parameters, and of none, differs between versions of p11-kit: the key has the last eight bytes.
        let parameters = Array(try take(max(0, rest.count - 8)))
        let key = try number()
        return (type == .max ? nil : (UInt64(type), parameters), key)
    }
}
