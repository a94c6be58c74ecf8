import NIOHTTP1

/// A request to a server that is known already.
struct HTTPRequest: Sendable {
    enum Method: String, Sendable { case get = "GET", post = "POST" }

    var method = Method.get
    /// The path and the query, percent-encoded.
    var target: String
    var headers = HTTPHeaders()
    var body: [UInt8] = []
}

/// A whole answer, of whatever status.
struct HTTPResponse: Sendable {
    var status: Int
    var headers: HTTPHeaders
    var body: [UInt8]
}
