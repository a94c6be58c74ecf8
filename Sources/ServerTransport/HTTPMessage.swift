package import NIOHTTP1

/// A request to a server that is known already.
package struct HTTPRequest: Sendable {
    package enum Method: String, Sendable { case get = "GET", post = "POST" }

    package var method = Method.get
    /// The path and the query, percent-encoded.
    package var target: String
    package var headers = HTTPHeaders()
    package var body: [UInt8] = []
    /// Whether the server may be asked twice without harm.
    package var isRepeatable: Bool
    /// Whether whoever asks can do without the answer, and rather goes on than waits for it.
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

/// A whole answer, of whatever status.
package struct HTTPResponse: Sendable {
    package var status: Int
    package var headers: HTTPHeaders
    package var body: [UInt8]
    /// Of what the request has told the server in secret.
    package var redaction = Redaction()

    package init(status: Int, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// Whether the server has said that it keeps the connection. HTTP/1.1 has it do so unasked (RFC 9112, section 9.3), and
    /// not every server that closes says that.
    package var saysKeepAlive: Bool {
        headers[canonicalForm: "Connection"].contains { $0.lowercased() == "keep-alive" }
    }
}
