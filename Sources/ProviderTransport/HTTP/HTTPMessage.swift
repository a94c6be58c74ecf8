import CertificateProviding
public import NIOHTTP1

/// An HTTP request, without the server that it is sent to.
public struct HTTPRequest: Sendable {
    /// A method (RFC 9110, section 9.1). Open: protocols have methods of their own.
    public struct Method: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        /// Reads, and changes nothing on the server.
        public static let get = Self(rawValue: "GET")
        /// As ``get``, without a body in the response.
        public static let head = Self(rawValue: "HEAD")
        /// Sends ``HTTPRequest/body``.
        public static let post = Self(rawValue: "POST")
        /// Replaces the resource that the target names.
        public static let put = Self(rawValue: "PUT")
        /// Removes it.
        public static let delete = Self(rawValue: "DELETE")
    }

    /// The method; GET by default.
    public var method = Method.get
    /// The path and the query, percent-encoded.
    public var target: String
    /// The header fields, without those that the connection adds, such as `Host` and `Content-Length`.
    public var headers = HTTPHeaders()
    /// The content; empty for none.
    public var body: [UInt8] = []
    /// Whether the request may be sent twice without harm.
    public var isRepeatable: Bool
    /// Whether the caller can do without the response, and prefers to go on rather than to wait for it.
    public var isOptional: Bool
    /// Whether a redirection on the same origin is followed, and one to another origin is an error. Otherwise it is the response.
    public var followsRedirections = true
    /// The maximum size of the response's body, in bytes.
    public var maximumResponse = ServerSession.maximumBody

    /// Creates a request.
    ///
    /// - Parameters:
    ///   - target: The path and the query, percent-encoded.
    ///   - isRepeatable: Whether the request may be sent twice without harm.
    ///   - isOptional: Whether the caller can do without the response.
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

/// A response, of any status. It is complete, except that the body of a refusal of credentials (401, 407) may be cut off.
public struct HTTPResponse: Sendable {
    /// The status code (RFC 9110, section 15), such as 200.
    public var status: Int
    /// The header fields, as the server sent them.
    public var headers: HTTPHeaders
    /// The content, at most ``HTTPRequest/maximumResponse`` bytes. Complete, unless the status is 401 or 407.
    public var body: [UInt8]
    /// Whether ``body`` is complete.
    var isWhole = true
    /// Whether the server refuses a password that was sent to it, by the status 401; not if only the nonce of HTTP Digest is
    /// too old. ``refusal(of:by:reason:advice:at:)`` has the reason `rejectedPassword` then.
    public internal(set) var hasRefusedPassword = false
    /// Whether the status may be about the client certificate: 400 (nginx), 401 or 403 from a server that has seen it, has got no
    /// password and has refused no token. ``refusal(of:by:reason:advice:at:)`` has the reason `rejectedCertificate`
    /// then.
    public internal(set) var mayRefuseCertificate = false
    /// Whether there is a client certificate that the server has not asked for in a handshake of TLS 1.3.
    var wantsCertificateLater = false
    /// Removes the secrets of the request from texts of the server.
    package var redaction = Redaction()
    /// The settings that errors about the response name.
    var settingNames = ServerSettingNames()

    /// Creates a response, for tests.
    public init(status: Int, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// The media type of ``body``, in lower case and without parameters, such as `application/json` (RFC 9110, section
    /// 8.3); empty if the server names none.
    public var mediaType: String {
        String((headers.first(name: "Content-Type") ?? "").prefix { $0 != ";" }).trimmed.lowercased()
    }

    /// Whether the response has `Connection: keep-alive`. HTTP/1.1 keeps connections by default (RFC 9112, section
    /// 9.3), but some servers close them without notice.
    var saysKeepAlive: Bool {
        headers[canonicalForm: "Connection"].contains { $0.lowercased() == "keep-alive" }
    }
}
