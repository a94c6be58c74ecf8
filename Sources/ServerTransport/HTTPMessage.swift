package import NIOHTTP1

/// An HTTP request, without the server that it is sent to.
package struct HTTPRequest: Sendable {
    package enum Method: String, Sendable { case get = "GET", post = "POST" }

    package var method = Method.get
    /// The path and the query, percent-encoded.
    package var target: String
    package var headers = HTTPHeaders()
    package var body: [UInt8] = []
    /// Whether the request may be sent twice without harm.
    package var isRepeatable: Bool
    /// Whether the caller can do without the response, and prefers to go on rather than to wait for it.
    package var isOptional: Bool

    package init(
        method: Method = .get, target: String, headers: HTTPHeaders = HTTPHeaders(), body: [UInt8] = [],
        isRepeatable: Bool = false, isOptional: Bool = false
    ) {
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.isRepeatable = isRepeatable
        self.isOptional = isOptional
    }
}

/// A complete response, of any status.
package struct HTTPResponse: Sendable {
    package var status: Int
    package var headers: HTTPHeaders
    package var body: [UInt8]
    /// Removes the secrets of the request from texts of the server.
    package var redaction = Redaction()

    package init(status: Int, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// Whether the response has `Connection: keep-alive`. HTTP/1.1 keeps connections by default (RFC 9112, section
    /// 9.3), but some servers close them without notice.
    package var saysKeepAlive: Bool {
        headers[canonicalForm: "Connection"].contains { $0.lowercased() == "keep-alive" }
    }
}
