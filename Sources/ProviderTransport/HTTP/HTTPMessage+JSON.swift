public import CertificateProviding
import FoundationEssentials
import NIOHTTP1

extension HTTPRequest {
    /// Creates a POST with JSON (RFC 8259).
    ///
    /// - Parameters:
    ///   - target: The path and the query, percent-encoded.
    ///   - content: What is encoded as the body.
    ///   - isRepeatable: Whether the request may be sent twice without harm.
    /// - Throws: `internal` for content that cannot be encoded.
    public init(
        target: String, json content: some Encodable, isRepeatable: Bool = false
    ) throws(ProviderError) {
        let body: [UInt8]
        do { body = Array(try JSONEncoder().encode(content)) } catch {
            throw ProviderError(.internal, "The request cannot be encoded as JSON.", underlying: error)
        }
        self.init(
            method: .post, target: target, headers: ["Content-Type": "application/json"], body: body,
            isRepeatable: isRepeatable)
    }
}

extension HTTPResponse {
    /// Decodes ``body`` as JSON (RFC 8259). The media type is not looked at.
    ///
    /// - Parameter server: The server, for the error.
    /// - Throws: `protocolError` for anything else. The error does not show the body, which may contain secrets. A `ProviderError` of the
    ///   content's own `init(from:)` is thrown as it is.
    public func json<Content: Decodable>(
        _ type: Content.Type, from server: ServerURL
    ) throws(ProviderError) -> Content {
        do { return try JSONDecoder().decode(type, from: Data(body)) } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(
                .protocolError,
                "The answer of \(server.authority) is not the JSON that is expected; check \(settingNames.address).",
                nativeCode: status)
        }
    }
}
