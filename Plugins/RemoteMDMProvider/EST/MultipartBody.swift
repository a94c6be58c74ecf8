import CertificateProviding
import NIOHTTP1
import ProviderTransport

/// A `multipart/mixed` body (RFC 2046, section 5.1), whose parts are text.
struct MultipartBody: Sendable {
    struct Part: Sendable {
        /// The media type with its parameters, in lower case.
        let type: String
        /// The content without line ends, which have no meaning in base64.
        let content: [UInt8]
    }

    let parts: [Part]

    /// An answer with a key has two parts.
    private static let maximumCount = 8
    private static let maximumBoundary = 70

    /// - Throws: `protocolError` for a body of another type, without parts, or cut off.
    init(_ response: HTTPResponse) throws(ProviderError) {
        let type = response.headers.first(name: "Content-Type") ?? ""
        guard let boundary = Self.boundary(in: type) else {
            throw ProviderError(
                .protocolError,
                "The server's answer is of type '\(response.excerpt(of: type, limit: 80))', but a key and certificates "
                    + "(multipart/mixed) are expected; check 'url'.")
        }
        guard let parts = Self.parts(of: response.body, between: Array("--\(boundary)".utf8)) else {
            throw ProviderError(
                .protocolError,
                "The server's answer with a key is damaged or truncated: its parts cannot be separated. Ask its administrator."
            )
        }
        self.parts = parts
    }

    private static func boundary(in type: String) -> String? {
        let fields = type.split(separator: ";").map { String($0).trimmed }
        guard fields.first?.lowercased() == "multipart/mixed",
            let field = fields.first(where: { $0.lowercased().hasPrefix("boundary=") })
        else { return nil }
        var text = field.dropFirst("boundary=".count)
        if text.count >= 2, text.first == "\"", text.last == "\"" { text = text.dropFirst().dropLast() }
        return (1...maximumBoundary).contains(text.utf8.count) ? String(text) : nil
    }

    private static func parts(of body: [UInt8], between delimiter: [UInt8]) -> [Part]? {
        var parts: [Part] = []
        var type: String?
        var content: [UInt8] = []
        var isInHeader = false
        for line in body.split(separator: 0x0a, omittingEmptySubsequences: false) {
            let line = line.last == 0x0d ? line.dropLast() : line
            let end = line.starts(with: delimiter) ? line.dropFirst(delimiter.count).filter { $0 > 0x20 } : nil
            if let end, end.isEmpty || end == Array("--".utf8) {
                if let type { parts.append(Part(type: type, content: content)) }
                guard end.isEmpty else { return parts }
                guard parts.count < maximumCount else { return nil }
                (type, content, isInHeader) = ("", [], true)
            } else if type != nil, isInHeader {
                guard !line.isEmpty else {
                    isInHeader = false
                    continue
                }
                let field = String(decoding: line, as: UTF8.self).lowercased()
                if field.hasPrefix("content-type:") { type = String(field.dropFirst("content-type:".count)).trimmed }
            } else if type != nil {
                content += line
            }
        }
        // The last part has an end of its own.
        return nil
    }
}

extension String {
    /// The string without white space at both ends.
    var trimmed: String {
        String(drop(while: \.isWhitespace).reversed().drop(while: \.isWhitespace).reversed())
    }
}
