import CertificateProviding
import Contracts
import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

extension Response {
    /// A JSON object.
    static func json(
        _ status: HTTPResponse.Status, _ members: [JSONValue.Member], headers: HTTPFields = [:]
    ) -> Response {
        var headers = headers
        headers[.contentType] = "application/json"
        return Response(
            status: status, headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: JSONValue.object(members).bytes)))
    }

    static func text(_ status: HTTPResponse.Status, _ text: String, headers: HTTPFields = [:]) -> Response {
        var headers = headers
        headers[.contentType] = "text/plain; charset=UTF-8"
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(string: text)))
    }
}

extension Request {
    /// Reads the body.
    ///
    /// - Throws: `HTTPError`: 413 for a longer one.
    func bytes(upTo limit: Int) async throws -> [UInt8] {
        let tooLarge = HTTPError(.contentTooLarge, message: "The body is larger than \(limit) bytes.")
        if let length = headers[.contentLength].flatMap({ Int($0) }), length > limit { throw tooLarge }
        do {
            return Array(buffer: try await body.collect(upTo: limit))
        } catch is NIOTooManyBytesError {
            throw tooLarge
        }
    }

    /// Reads a JSON object of the body.
    ///
    /// - Throws: `HTTPError`: 400, 413.
    func json(upTo limit: Int) async throws -> JSONValue {
        let bytes = try await bytes(upTo: limit)
        do {
            let value = try JSONValue(parsing: bytes, maximumSize: limit)
            guard case .object = value else {
                throw HTTPError(.badRequest, message: "The body is not a JSON object.")
            }
            return value
        } catch let error as ProviderError {
            throw HTTPError(.badRequest, message: error.message)
        }
    }

    /// The value of a parameter of the query, decoded from percent-encoding; a `+` is a plus. `nil` if it is not there.
    ///
    /// - Throws: `HTTPError`: 400 if it is there twice, or not UTF-8.
    func queryParameter(_ name: String) throws -> String? {
        var values: [String] = []
        for pair in (uri.query ?? "").split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.first.map(String.init)?.removingPercentEncoding == name else { continue }
            // The database would end the text at a NUL.
            guard let value = String(parts.count > 1 ? parts[1] : "").removingPercentEncoding, !value.utf8.contains(0)
            else {
                throw HTTPError(.badRequest, message: "The parameter \(name) is not percent-encoded UTF-8 without NUL.")
            }
            values.append(value)
        }
        guard values.count <= 1 else {
            throw HTTPError(.badRequest, message: "The parameter \(name) is there \(values.count) times.")
        }
        return values.first
    }
}
