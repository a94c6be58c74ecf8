import CertificateProviding
import CertificateTLS
import FoundationEssentials
import ProviderTransport

/// Checks that a server of a provider can be reached, by the proxy that counts, and that it is the one that the parameters trust. Sends
/// no secret, and presents no certificate.
struct ServerCheck {
    private static let time = Duration.seconds(5)
    let server: ServerURL
    let proxies: ProxyChoice
    /// `nil` if the parameters do not name the server's CA or key.
    let trust: ServerTrust?
    /// Whether the URL is that of a directory of ACME (RFC 8555, section 7.1.1), which is read.
    let isDirectory: Bool

    func run(_ what: String) async -> Finding {
        let what = "\(what) \(hostAndPort(server.host, UInt16(clamping: server.port)))"
        do throws(ProviderError) {
            let security = ServerSecurity(
                trust: trust ?? ServerTrust(trustAnchors: .system), skipsVerification: trust == nil)
            let policy = RetryPolicy(sleep: { _ in })
            let session = ServerSession(
                server, security, through: try proxies.proxy(for: server),
                timeBudget: TimeBudget(Self.time, policy), transport: Transport(retryPolicy: policy))
            try await session.connect()
            if isDirectory {
                let response = try await session.response(to: HTTPRequest(target: server.target))
                try Self.checkDirectory(response, of: server)
            }
        } catch {
            // One that wants a certificate in the handshake is there.
            guard error.code == .rejected, error.underlying.flatMap(TLSAlert.init(receivedIn:)) != nil else {
                return .error(what, error)
            }
        }
        return .ok(what, "reachable" + (server.isSecure && trust != nil ? ", and trusted" : ""))
    }

    private static func checkDirectory(_ response: HTTPResponse, of server: ServerURL) throws(ProviderError) {
        guard response.status == 200 else {
            throw response.refusal(of: "the request for the directory", by: server, at: Date())
        }
        struct Directory: Decodable { let newNonce, newAccount, newOrder: String }
        guard (try? JSONDecoder().decode(Directory.self, from: Data(response.body))) != nil else {
            throw ProviderError(
                .configurationInvalid,
                "\(server.authority) answers with something other than an ACME directory (RFC 8555, section 7.1.1); check the path."
            )
        }
    }
}
