import NIOHTTP1

/// One challenge of a `WWW-Authenticate` field (RFC 9110, section 11.6.1).
struct AuthenticationChallenge: Sendable {
    /// The scheme in lower case, such as `digest`.
    let scheme: String
    /// The parameters, by their names in lower case.
    let parameters: [String: String]

    /// Returns all challenges of a response, in the server's order. Unreadable ones are left out.
    static func all(in headers: HTTPHeaders) -> [AuthenticationChallenge] {
        // Servers with more than this want something else than an answer.
        headers["WWW-Authenticate"].prefix(16).flatMap { field -> [AuthenticationChallenge] in
            var reader = ChallengeReader(field)
            return reader.challenges()
        }
    }
}

private struct ChallengeReader {
    private var rest: Substring.UTF8View

    init(_ field: String) { rest = field.prefix(4096)[...].utf8 }

    mutating func challenges() -> [AuthenticationChallenge] {
        var found: [(scheme: String, parameters: [String: String])] = []
        while true {
            skip { $0 == 0x20 || $0 == 0x09 || $0 == UInt8(ascii: ",") }
            let word = token()
            guard !word.isEmpty else { break }
            let beforeBlanks = rest
            skip { $0 == 0x20 || $0 == 0x09 }
            if rest.first == UInt8(ascii: "="), !found.isEmpty {
                rest = rest.dropFirst()
                skip { $0 == 0x20 || $0 == 0x09 }
                found[found.count - 1].parameters[word.lowercased()] = value()
            } else {
                rest = beforeBlanks
                found.append((word.lowercased(), [:]))
                skip { $0 == 0x20 || $0 == 0x09 }
                skipToken68()
            }
        }
        return found.map { AuthenticationChallenge(scheme: $0.scheme, parameters: $0.parameters) }
    }

    private mutating func skip(_ isSkipped: (UInt8) -> Bool) { rest = rest.drop(while: isSkipped) }

    /// Skips the token68 that some schemes have instead of parameters (RFC 9110, section 11.2). None of those schemes
    /// is supported.
    private mutating func skipToken68() {
        let end = rest.drop(while: \.isInToken).drop { $0 == UInt8(ascii: "=") }
        let next = end.first { $0 != 0x20 && $0 != 0x09 }
        if next == nil || next == UInt8(ascii: ",") { rest = end }
    }

    private mutating func token() -> String {
        let word = rest.prefix { byte in
            byte > 0x20 && byte < 0x7f && !"()<>@,;:\\\"/[]?={}".utf8.contains(byte)
        }
        rest = rest.dropFirst(word.count)
        return String(decoding: word, as: UTF8.self)
    }

    /// A token or a quoted string (RFC 9110, section 5.6.4).
    private mutating func value() -> String {
        guard rest.first == UInt8(ascii: "\"") else { return token() }
        rest = rest.dropFirst()
        var bytes: [UInt8] = []
        while let byte = rest.popFirst(), byte != UInt8(ascii: "\"") {
            if byte == UInt8(ascii: "\\") {
                if let escaped = rest.popFirst() { bytes.append(escaped) }
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
