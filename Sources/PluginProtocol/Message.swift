package import CertificateProviding
import FoundationEssentials

/// A line of the plugin protocol, in one of its three forms: a request, the answer to one, or a notice.
///
/// The fields beside it are read with ``params(as:)`` and ``result(as:)`` once its form is known.
package struct Message: Sendable {
    /// The form of a message.
    package enum Form: Sendable {
        /// Asks for an answer with the same id. The two sides number their requests independently.
        case request(id: UInt64, String)
        /// Answers a request.
        case result(id: UInt64)
        /// Says why a request failed.
        case failure(id: UInt64, WireError)
        /// Needs no answer.
        case notice(String)
    }

    /// The greatest size of a line in bytes, without its end.
    package static let maximumSize = 1 << 20

    package let form: Form
    private let line: Data

    /// Reads a line without its end. Unknown fields are ignored.
    /// - Throws: `protocolError` for a line that is not such an object.
    package init(line: [UInt8]) throws(ProviderError) {
        self.line = Data(line)
        let head: Head
        do { head = try JSONDecoder().decode(Head.self, from: self.line) } catch {
            // The parser's error may quote the line, and so a secret.
            guard (try? JSONDecoder().decode(AnyObject.self, from: self.line)) != nil else {
                throw ProviderError(
                    .protocolError, "A line is not a message: expected a JSON object with 'id' or 'notice'.")
            }
            throw Self.malformed(error)
        }
        switch (head.id, head.request, head.notice, head.error) {
        case (let id?, let name?, nil, nil): form = .request(id: id, name)
        case (let id?, nil, nil, let error?): form = .failure(id: id, error)
        case (let id?, nil, nil, nil): form = .result(id: id)
        case (nil, nil, let name?, nil): form = .notice(name)
        default:
            throw ProviderError(
                .protocolError, "A message is neither a request nor an answer nor a notice.")
        }
    }

    /// Returns the fields of a request or a notice.
    /// - Throws: `protocolError`, without any value.
    package func params<Params: Decodable>(
        as type: Params.Type = Params.self
    ) throws(ProviderError) -> Params {
        do {
            if let fields = try JSONDecoder().decode(Body<Params>.self, from: line).params { return fields }
            return try JSONDecoder().decode(Params.self, from: Data("{}".utf8))
        } catch { throw Self.malformed(error) }
    }

    /// Returns the fields of an answer.
    /// - Throws: `protocolError`, without any value.
    package func result<Result: Decodable>(
        as type: Result.Type = Result.self
    ) throws(ProviderError) -> Result {
        do {
            if let fields = try JSONDecoder().decode(Answer<Result>.self, from: line).result { return fields }
            return try JSONDecoder().decode(Result.self, from: Data("{}".utf8))
        } catch { throw Self.malformed(error) }
    }

    private static func malformed(_ error: any Error) -> ProviderError {
        if let error = error as? ProviderError {
            return ProviderError(.protocolError, "A field of a message is not valid. \(error.message)")
        }
        let (path, reason): ([any CodingKey], String) =
            switch error {
            case DecodingError.keyNotFound(let key, let context): (context.codingPath + [key], "is missing")
            case DecodingError.valueNotFound(_, let context): (context.codingPath, "is null")
            case DecodingError.typeMismatch(_, let context): (context.codingPath, "has another type")
            case DecodingError.dataCorrupted(let context): (context.codingPath, "is not valid")
            default: ([], "cannot be read")
            }
        // The decoder does not say where.
        guard !path.isEmpty else {
            return ProviderError(
                .protocolError,
                "A number in a message is too large, negative or not whole, or a text is not UTF-8.")
        }
        let name = path.map { $0.intValue.map(String.init) ?? $0.stringValue }.joined(separator: ".")
        return ProviderError(
            .protocolError, "The field '\(name.withVisibleControls)' of a message \(reason).")
    }

    private struct Head: Decodable {
        let id: UInt64?
        let request: String?
        let notice: String?
        let error: WireError?
    }
    /// An object, whose fields are not looked at.
    private struct AnyObject: Decodable {
        init(from decoder: any Decoder) throws { _ = try decoder.container(keyedBy: CodingKeys.self) }
        private enum CodingKeys: CodingKey {}
    }
    private struct Body<Params: Decodable>: Decodable { let params: Params? }
    private struct Answer<Result: Decodable>: Decodable { let result: Result? }
}

// MARK: - Writing

extension Message {
    /// Returns the line of a request, with its end.
    package static func request(_ id: UInt64, _ name: String, _ params: some Encodable) -> [UInt8]? {
        line(Request(id: id, request: name, params: params))
    }

    /// Returns the line of an answer, with its end.
    package static func result(_ id: UInt64, _ result: some Encodable) -> [UInt8]? {
        line(Result(id: id, result: result))
    }

    /// Returns the line of an error, with its end.
    package static func failure(_ id: UInt64, _ error: WireError) -> [UInt8]? { line(Failure(id: id, error: error)) }

    /// Returns the line of a notice, with its end.
    package static func notice(_ name: String, _ params: some Encodable) -> [UInt8]? {
        line(Notice(notice: name, params: params))
    }

    /// Returns `nil` for a line that is too long.
    private static func line(_ message: some Encodable) -> [UInt8]? {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .withoutEscapingSlashes
        guard var line = try? [UInt8](encoder.encode(message)), line.count <= maximumSize else { return nil }
        line.append(0x0a)
        return line
    }

    private struct Request<Params: Encodable>: Encodable {
        let id: UInt64
        let request: String
        let params: Params
    }
    private struct Result<Fields: Encodable>: Encodable {
        let id: UInt64
        let result: Fields
    }
    private struct Failure: Encodable {
        let id: UInt64
        let error: WireError
    }
    private struct Notice<Params: Encodable>: Encodable {
        let notice: String
        let params: Params
    }
}

/// An error as it crosses the pipe.
package struct WireError: Codable, Sendable, Error {
    package var code: String
    package var message: String
    /// In seconds.
    package var retryAfter: Double?
    package var nativeCode: Int?
    /// `damaged` or `busy`: ``ProviderError/Reason``.
    package var reason: String?

    /// The code of an answer to a request that the receiver does not know.
    package static let unsupported = "unsupported"

    package init(code: String, message: String, retryAfter: Double? = nil, nativeCode: Int? = nil) {
        self.code = code
        self.message = message
        self.retryAfter = retryAfter
        self.nativeCode = nativeCode
    }

    package init(_ error: ProviderError) {
        self.init(
            code: error.code.rawValue, message: error.message,
            retryAfter: error.retryAfter.map { $0 / .seconds(1) }, nativeCode: error.nativeCode)
        reason = error.reason?.rawValue
    }
}

/// No fields.
package struct Nothing: Codable, Sendable { package init() {} }
