package import CertificateProviding
import FoundationEssentials
import NIOHTTP1

/// A proxy on the way to a server. For TLS it opens a tunnel (RFC 9110, section 9.3.6), through which nothing of it can
/// be seen or changed; a plain request it passes on.
package struct HTTPProxy: Sendable {
    /// Where it is. Plain HTTP is spoken with it.
    package let server: ServerURL
    private let user: String?
    private let password: SecretBytes?

    /// - Parameter text: `http://HOST:PORT`. The port is not guessed: programs do not agree on one.
    /// - Returns: `nil` for anything else, credentials included.
    package init?(_ text: String, user: String? = nil, password: SecretBytes? = nil) {
        guard let server = ServerURL(text), !server.isSecure, ["", "/"].contains(server.path), server.query == nil,
            URLComponents(string: text)?.port != nil
        else { return nil }
        self.server = server
        self.user = user
        self.password = password
    }

    package func with(user: String, password: SecretBytes) -> HTTPProxy {
        HTTPProxy(server: server, user: user, password: password)
    }

    private init(server: ServerURL, user: String?, password: SecretBytes?) {
        (self.server, self.user, self.password) = (server, user, password)
    }

    /// The `Proxy-Authorization` field of HTTP Basic (RFC 7617), which is for the proxy alone.
    var authorization: String? {
        guard let user else { return nil }
        let pair = Data("\(user):".utf8) + (password?.withUnsafeBytes { Data($0) } ?? Data())
        return "Basic " + pair.base64EncodedString()
    }

    /// A plain request as the proxy passes it on (RFC 9112, section 3.2.2).
    func passingOn(_ request: HTTPRequest, to server: ServerURL) -> HTTPRequest {
        var request = request
        request.target = server.origin + request.target
        if let authorization { request.headers.replaceOrAdd(name: "Proxy-Authorization", value: authorization) }
        return request
    }

    /// What it means that the proxy does not do what it was asked for.
    ///
    /// None is what a server would say of a request: that has not got there.
    func refusal(_ status: Int, of server: ServerURL) -> CertificateProviderError {
        let (code, advice): (CertificateProviderError.Code, String) =
            switch status {
            // Tinyproxy says 401 of wrong ones.
            case 401, 407: (.rejected, "check 'proxy-username' and 'proxy-password-source'; HTTP Basic is what it gets")
            case 403: (.rejected, "it does not let us there; ask its administrator")
            case 408, 429, 500...599: (.unavailable, "see whether the server is there, or try again later")
            default: (.configurationInvalid, "see whether 'proxy' is right, and an HTTP proxy")
            }
        return CertificateProviderError(
            code,
            "The proxy \(self.server.authority) answers the request for a connection to \(server.authority) with the status "
                + "\(status); \(advice).", nativeCode: status)
    }
}
