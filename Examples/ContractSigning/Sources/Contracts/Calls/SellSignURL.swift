public import CertificateProviding

/// A call from another program: a URL with the scheme `sellsign`, as the desktop hands it over.
///
/// The rules are strict: what is not known is refused, so that no program relies on what is ignored. Percent-encoding is the only
/// encoding: a `+` is a plus. Documents come by file, never by URL.
public struct SellSignURL: Sendable {
    /// What is asked for.
    public enum Kind: Sendable, Equatable {
        /// This host is paired, with a token that a server has given.
        case auth(token: SecretBytes)
        /// What has changed here and there is exchanged.
        case syncIncremental
        /// All contracts are exchanged.
        case syncFull
    }

    /// The longest URL, in bytes.
    public static let maximumLength = 8 << 10
    /// The scheme of calls.
    public static let scheme = "sellsign"

    public let kind: Kind
    public let callbacks: CallbackURLs

    /// Whether a text is a call, right or wrong: it begins with the scheme.
    public static func isCall(_ bytes: some Sequence<UInt8>) -> Bool {
        bytes.prefix(scheme.utf8.count + 1).map { (65...90).contains($0) ? $0 | 0x20 : $0 } == Array("\(scheme):".utf8)
    }

    /// Reads a call. A line end after it does not count.
    ///
    /// - Throws: `malformedData`, which names the part that is wrong. A value is in no message: it may be the token.
    public init(_ bytes: some Collection<UInt8>) throws(ProviderError) {
        guard bytes.count <= Self.maximumLength else {
            throw Self.wrong("it has \(bytes.count) bytes, and at most \(Self.maximumLength) are read")
        }
        var text = Array(bytes)[...]
        if text.last == 0x0a { text = text.dropLast() }
        if text.last == 0x0d { text = text.dropLast() }
        guard String(validating: text, as: UTF8.self) != nil else { throw Self.wrong("it is not UTF-8") }
        guard text.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else {
            throw Self.wrong("it has a space or a control character; percent-encode it")
        }
        guard Self.isCall(text), text.dropFirst(Self.scheme.utf8.count + 1).starts(with: "//".utf8) else {
            throw Self.wrong("it does not begin with \(Self.scheme)://")
        }
        text = text.dropFirst(Self.scheme.utf8.count + 3)
        guard !text.contains(UInt8(ascii: "#")) else { throw Self.wrong("it has a fragment; percent-encode the #") }
        let question = text.firstIndex(of: UInt8(ascii: "?"))
        let path = String(decoding: text[..<(question ?? text.endIndex)], as: UTF8.self)
        var values = try Self.parameters(question.map { text[$0...].dropFirst() } ?? [], of: path)

        callbacks = CallbackURLs(
            success: try Self.callback("success_callback_url", &values),
            error: try Self.callback("error_callback_url", &values))
        switch path {
        case "auth":
            guard let token = values["token"], !token.isEmpty else { throw Self.wrong("it has no token") }
            kind = .auth(token: SecretBytes(copying: token))
        case "sync/incremental": kind = .syncIncremental
        default: kind = .syncFull
        }
    }

    /// The parameters that a path takes.
    private static let known = [
        "auth": ["token", "success_callback_url", "error_callback_url"],
        "sync/incremental": ["success_callback_url", "error_callback_url"],
        "sync/full": ["success_callback_url", "error_callback_url"],
    ]

    /// - Returns: Decoded values by name.
    private static func parameters(
        _ query: ArraySlice<UInt8>, of path: String
    ) throws(ProviderError) -> [String: [UInt8]] {
        guard let known = known[path] else {
            throw wrong("its path is not auth, sync/incremental or sync/full")
        }
        var values: [String: [UInt8]] = [:]
        guard !query.isEmpty else { return values }
        for part in query.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: false) {
            let equals = part.firstIndex(of: UInt8(ascii: "="))
            // Only a known name is shown: another one may be a token in the wrong place.
            guard let name = try? decoded(part[..<(equals ?? part.endIndex)]), known.contains(where: { $0 == name })
            else {
                throw wrong("it has a parameter that \(path) does not take; it takes \(known.joined(separator: ", "))")
            }
            guard values[name] == nil else { throw wrong("\(name) is there twice") }
            guard let equals else { throw wrong("\(name) has no value") }
            do throws(PercentProblem) {
                values[name] = Array(try decoded(part[equals...].dropFirst(), isToken: name == "token").utf8)
            } catch {
                throw wrong("\(name) \(error.meaning)")
            }
        }
        return values
    }

    private static func callback(
        _ name: String, _ values: inout [String: [UInt8]]
    ) throws(ProviderError) -> Callback? {
        guard let bytes = values.removeValue(forKey: name), !bytes.isEmpty else { return nil }
        guard let callback = Callback(String(decoding: bytes, as: UTF8.self)) else {
            throw wrong("\(name) is not a URL with a scheme")
        }
        return callback
    }

    private struct PercentProblem: Error { let meaning: String }

    /// - Parameter isToken: Whether white space at the ends does not count.
    private static func decoded(
        _ bytes: ArraySlice<UInt8>, isToken: Bool = false
    ) throws(PercentProblem) -> String {
        guard var result = ByteText.percentDecoded(bytes) else {
            throw PercentProblem(meaning: "has a % that is not followed by two hexadecimal digits")
        }
        if isToken {
            let isSpace: (UInt8) -> Bool = { $0 == 0x20 || (0x09...0x0d).contains($0) }
            while let last = result.last, isSpace(last) { result.removeLast() }
            result.removeFirst(result.prefix(while: isSpace).count)
        }
        guard let text = String(validating: result, as: UTF8.self) else {
            throw PercentProblem(meaning: "is not UTF-8 when it is decoded")
        }
        guard result.allSatisfy({ $0 >= 0x20 && $0 != 0x7f }) else {
            throw PercentProblem(meaning: "has a control character when it is decoded")
        }
        return text
    }

    private static func wrong(_ reason: String) -> ProviderError {
        ProviderError(
            .malformedData, "The URL of the call is refused: \(reason).")
    }
}
