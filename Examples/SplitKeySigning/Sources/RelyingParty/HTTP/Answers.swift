import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

extension Response {
    static func json(
        _ status: HTTPResponse.Status, _ content: some Encodable, headers: HTTPFields = [:]
    ) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        var headers = headers
        headers[.contentType] = "application/json"
        return Response(
            status: status, headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: try encoder.encode(content))))
    }
}

extension Request {
    /// The maximum size of a JSON body.
    private static let maximumJSON = 64 * 1024

    /// Reads the body as JSON.
    ///
    /// - Throws: `HTTPError`: 400, 413.
    func json<Content: Decodable>(_ type: Content.Type) async throws -> Content {
        var data = Data()
        try await readBody(upTo: Self.maximumJSON) { data.append(contentsOf: $0.readableBytesView) }
        return try HTTPError.json(type, data, "The body")
    }

    /// Reads the body, part by part.
    ///
    /// - Throws: `HTTPError`: 400 if the client does not send it to the end, 413.
    func readBody(upTo limit: Int, _ read: (ByteBuffer) -> Void) async throws {
        let tooLarge = HTTPError(.contentTooLarge, message: "The body is larger than \(limit) bytes.")
        if let length = headers[.contentLength].flatMap({ Int($0) }), length > limit { throw tooLarge }
        var count = 0
        do {
            for try await part in body {
                count += part.readableBytes
                guard count <= limit else { throw tooLarge }
                read(part)
            }
        } catch let error as HTTPError { throw error } catch {
            throw HTTPError(.badRequest, message: "The body is malformed, or ends too early.")
        }
    }

    /// The value of a parameter of the query, which is form-encoded; `nil` if it is not there.
    ///
    /// - Throws: `HTTPError`: 400 if it is there twice, or is not UTF-8.
    func queryParameter(_ name: String) throws -> String? {
        var values: [String] = []
        for pair in (uri.query ?? "").split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.first.map(String.init)?.removingPercentEncoding == name else { continue }
            let text = parts.count > 1 ? parts[1].replacing("+", with: " ") : ""
            guard let value = text.removingPercentEncoding else {
                throw HTTPError(.badRequest, message: "The parameter \(name) is not percent-encoded UTF-8.")
            }
            values.append(value)
        }
        guard values.count <= 1 else {
            throw HTTPError(.badRequest, message: "The parameter \(name) is there \(values.count) times.")
        }
        return values.first
    }
}

extension HTTPError {
    /// Decodes JSON.
    ///
    /// - Throws: `HTTPError`: 400, which quotes nothing of it.
    static func json<Content: Decodable>(_ type: Content.Type, _ data: Data, _ what: String) throws -> Content {
        do { return try JSONDecoder().decode(type, from: data) } catch let error as HTTPError { throw error } catch {
            throw HTTPError(.badRequest, message: "\(what) is not the JSON that is expected.")
        }
    }
}
