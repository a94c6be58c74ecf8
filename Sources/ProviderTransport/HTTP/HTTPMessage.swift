public import NIOHTTP1

/// An HTTP request, without the server that it is sent to.
public struct HTTPRequest: Sendable {
    public enum Method: String, Sendable { case get = "GET", post = "POST" }

    public var method = Method.get
    /// The path and the query, percent-encoded.
    public var target: String
    public var headers = HTTPHeaders()
    public var body: [UInt8] = []
    /// Whether the request may be sent twice without harm.
    public var isRepeatable: Bool
    /// Whether the caller can do without the response, and prefers to go on rather than to wait for it.
    public var isOptional: Bool

    public init(
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
public struct HTTPResponse: Sendable {
    public var status: Int
    public var headers: HTTPHeaders
    public var body: [UInt8]
    /// Removes the secrets of the request from texts of the server.
    public var redaction = Redaction()

    public init(status: Int, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// Whether the response has `Connection: keep-alive`. HTTP/1.1 keeps connections by default (RFC 9112, section
    /// 9.3), but some servers close them without notice.
    public var saysKeepAlive: Bool {
        headers[canonicalForm: "Connection"].contains { $0.lowercased() == "keep-alive" }
    }
}
