public import CertificateProviding
import FoundationEssentials
import NIOHTTP1

/// An HTTP proxy. For TLS it opens a tunnel (RFC 9110, section 9.3.6), in which it can neither read nor change
/// anything. Plain HTTP requests are forwarded by it.
public struct HTTPProxy: Sendable {
    /// The proxy's address. The connection to the proxy itself is plain HTTP.
    public let server: ServerURL
    private let user: String?
    private let password: SecretBytes?
    /// The environment variable that names the proxy; `nil` for the parameters.
    var variable: String?

    /// Reads the address of a proxy. Opens no connection.
    ///
    /// - Parameter text: `http://HOST:PORT`. The port is required, since programs do not agree on a default.
    /// - Returns: `nil` for anything else, credentials included.
    public init?(_ text: String, user: String? = nil, password: SecretBytes? = nil) {
        guard let server = ServerURL(text), !server.isSecure, ["", "/"].contains(server.path), server.query == nil,
            URLComponents(string: text)?.port != nil
        else { return nil }
        self.server = server
        self.user = user
        self.password = password
    }

    /// Returns the same proxy with credentials for HTTP Basic (RFC 7617), which are sent to the proxy only. Parameters name
    /// both.
    package func with(user: String, password: SecretBytes) -> HTTPProxy {
        HTTPProxy(server: server, user: user, password: password)
    }

    private init(server: ServerURL, user: String?, password: SecretBytes?) {
        (self.server, self.user, self.password) = (server, user, password)
    }

    /// The name of the proxy's setting, for messages.
    var setting: String { variable.map { "the environment variable \($0)" } ?? "'proxy'" }

    private var credentialSettings: String {
        variable == nil
            ? "'proxy-username' and 'proxy-password-source'" : "the user name and the password in \(setting)"
    }

    /// The password, and the account that it is for; `nil` if the proxy gets none.
    var credentials: (password: SecretBytes, account: String)? {
        guard let user, let password else { return nil }
        return (password, "proxy \(user)@\(server.authority)")
    }

    /// The `Proxy-Authorization` field of HTTP Basic (RFC 7617). It is sent to the proxy only.
    var authorization: String? {
        guard let user else { return nil }
        let pair = Data("\(user):".utf8) + (password?.withUnsafeBytes { Data($0) } ?? Data())
        return "Basic " + pair.base64EncodedString()
    }

    /// Returns a plain request in the form that a proxy forwards (RFC 9112, section 3.2.2).
    func passingOn(_ request: HTTPRequest, to server: ServerURL) -> HTTPRequest {
        var request = request
        request.target = server.origin + request.target
        if let authorization { request.headers.replaceOrAdd(name: "Proxy-Authorization", value: authorization) }
        return request
    }

    /// Returns the error for a proxy that refuses to connect to `server`.
    ///
    /// It is never an error of the server, which the request has not reached.
    func refusal(_ status: Int, of server: ServerURL) -> ProviderError {
        let (code, advice): (ProviderError.Code, String) =
            switch status {
            // Tinyproxy says 401 of wrong ones.
            case 401, 407:
                (.rejected, "check \(credentialSettings); only HTTP Basic is supported")
            case 403: (.rejected, "it does not permit this connection; ask its administrator")
            case 408, 429, 500...599: (.unavailable, "check whether the server is up, or try again later")
            default: (.configurationInvalid, "check that \(setting) names an HTTP proxy")
            }
        return ProviderError(
            code,
            "The proxy \(self.server.authority) answers the request for a connection to \(server.authority) with the "
                + "status \(status); \(advice).", nativeCode: status,
            reason: code == .rejected && status != 403 && password != nil ? .rejectedProxyPassword : nil)
    }
}
