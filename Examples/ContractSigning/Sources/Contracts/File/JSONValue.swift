/// A JSON value as it was written (RFC 8259): members in their order, numbers by their text. What is not understood here reaches the
/// server with the value that it came with.
public enum JSONValue: Sendable {
    /// A member of an object.
    public struct Member: Equatable, Sendable {
        public var name: String
        public var value: JSONValue

        public init(_ name: String, _ value: JSONValue) { (self.name, self.value) = (name, value) }

        public static func == (one: Self, other: Self) -> Bool {
            JSONValue.isSame(one.name, other.name) && one.value == other.value
        }
    }

    case null
    case bool(Bool)
    /// The text of the number, such as `-1` or `1.50`.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object([Member])

    /// The value of a member; `nil` for another value, and for a member that is missing.
    public subscript(name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { Self.isSame($0.name, name) }?.value
    }

    /// The text of a string; `nil` for another value.
    public var string: String? { if case .string(let text) = self { text } else { nil } }

    /// The elements of an array; `nil` for another value.
    public var array: [JSONValue]? { if case .array(let elements) = self { elements } else { nil } }

    /// The number, if it is an integer; `nil` for another value.
    public var integer: Int? { if case .number(let text) = self { Int(text) } else { nil } }

    /// Whether the value is an object.
    public var isObject: Bool { if case .object = self { true } else { false } }

    /// The number of values: this one, and all that are in it.
    package var count: Int {
        switch self {
        case .array(let elements): elements.reduce(1) { $0 + $1.count }
        case .object(let members): members.reduce(1) { $0 + $1.value.count }
        default: 1
        }
    }

    /// Puts a value in the place of a member, or adds it at the end.
    public mutating func set(_ name: String, _ value: JSONValue) {
        guard case .object(var members) = self else { return }
        // The array has one owner again, so that it is changed in its place.
        self = .null
        if let index = members.firstIndex(where: { Self.isSame($0.name, name) }) {
            members[index].value = value
        } else {
            members.append(Member(name, value))
        }
        self = .object(members)
    }
}

extension JSONValue: Equatable {
    /// Whether the values are written with the same characters, in the same order. Characters that Unicode takes for equivalent are not
    /// the same.
    public static func == (one: Self, other: Self) -> Bool {
        switch (one, other) {
        case (.null, .null): true
        case (.bool(let one), .bool(let other)): one == other
        case (.number(let one), .number(let other)), (.string(let one), .string(let other)): isSame(one, other)
        case (.array(let one), .array(let other)): one == other
        case (.object(let one), .object(let other)): one == other
        default: false
        }
    }

    static func isSame(_ one: String, _ other: String) -> Bool {
        one.utf8.count == other.utf8.count && one.utf8.elementsEqual(other.utf8)
    }
}
