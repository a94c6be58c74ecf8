import CertificateProviding

/// A value of a file, with its path for messages.
struct MemberReader {
    let value: JSONValue
    /// Such as `files[0].path`; empty for the file.
    let path: String

    init(_ value: JSONValue, path: String = "") { (self.value, self.path) = (value, path) }

    /// An error of this value.
    func malformed(_ problem: String) -> ProviderError {
        ProviderError(.malformedData, "\(path.isEmpty ? "The file" : path): \(problem).")
    }

    /// The path of a member.
    func path(of name: String) -> String { path.isEmpty ? name : "\(path).\(name)" }

    /// A member; `nil` if it is missing or null.
    subscript(name: String) -> MemberReader? {
        guard let member = value[name], member != .null else { return nil }
        return MemberReader(member, path: path(of: name))
    }

    /// A member that must be there.
    func required(_ name: String) throws(ProviderError) -> MemberReader {
        guard let member = self[name] else {
            throw MemberReader(.null, path: path(of: name)).malformed("is missing")
        }
        return member
    }

    func requireObject() throws(ProviderError) {
        guard value.isObject else { throw malformed("is no object") }
    }

    /// The elements of a member; none if it is missing.
    func elements(_ name: String) throws(ProviderError) -> [MemberReader] {
        guard let member = self[name] else { return [] }
        guard let elements = member.value.array else { throw member.malformed("is no array") }
        return elements.enumerated().map { MemberReader($1, path: "\(member.path)[\($0)]") }
    }

    /// The objects that are elements of a member; none if it is missing.
    func objects(_ name: String) throws(ProviderError) -> [MemberReader] {
        let elements = try elements(name)
        for element in elements { try element.requireObject() }
        return elements
    }

    /// Checks the levels of a value, of which this is the first.
    func requireDepth(_ maximum: Int) throws(ProviderError) {
        guard case .object(let members) = value else { return }
        for member in members where member.value.depth >= maximum {
            throw MemberReader(member.value, path: path(of: JSONPath.visible(member.name)))
                .malformed("has more than \(maximum) levels")
        }
    }

    func string() throws(ProviderError) -> String {
        guard let text = value.string else { throw malformed("is no string") }
        return text
    }

    func integer() throws(ProviderError) -> Int {
        guard let number = value.integer else { throw malformed("is no integer, or too large") }
        return number
    }

    /// `true`, `false`, 1 or 0.
    func flag() throws(ProviderError) -> Bool {
        switch value {
        case .bool(let flag): return flag
        case .number("0"): return false
        case .number("1"): return true
        default: throw malformed("is none of true, false, 1 and 0")
        }
    }

    /// The text of a value that people read: of a string, a number, true or false.
    func plainText() throws(ProviderError) -> String {
        switch value {
        case .string(let text), .number(let text): return text
        case .bool(let flag): return flag ? "true" : "false"
        default: throw malformed("is neither a string nor a number")
        }
    }
}

extension JSONValue {
    /// The levels of objects and arrays.
    fileprivate var depth: Int {
        switch self {
        case .array(let elements): 1 + (elements.lazy.map(\.depth).max() ?? 0)
        case .object(let members): 1 + (members.lazy.map(\.value.depth).max() ?? 0)
        default: 0
        }
    }
}
