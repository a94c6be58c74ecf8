import CertificateProviding
import NIOCore
import NIOHTTP1

/// A session with one server: connects when needed, answers authentication challenges, and follows redirections on the
/// same origin.
actor AuthenticatingSession {
    let server: ServerURL
    let security: ServerSecurity
    let credentials: ServerCredentials
    private let proxy: HTTPProxy?
    private let network: any Network
    private var connection: ServerConnection?
    private var digest: DigestAuthentication?
    private var token: SecretBytes?
    /// Whether the server has asked for Basic.
    private var sendsPassword = false
    /// Whether the caller knows that the password is sent.
    private var hasAnnouncedPassword = false
    /// Whether the last response has refused credentials: an answer that was made with the password, or the token.
    private(set) var hasRefusedCredentials = false

    private static let maximumRedirections = 5

    /// Whether credentials may be sent: over TLS, or where that is permitted, within this host.
    nonisolated var isConfidential: Bool {
        server.isSecure || security.permitsPlaintextToLoopback && server.isLoopback
    }

    init(
        _ server: ServerURL, _ security: ServerSecurity, _ credentials: ServerCredentials,
        through proxy: HTTPProxy? = nil, over network: any Network = TCPNetwork()
    ) {
        self.server = server
        self.security = security
        self.credentials = credentials
        self.proxy = proxy
        self.network = network
    }

    /// Sends a request, and returns the response of any status, except redirections that were followed and challenges
    /// that were answered.
    ///
    /// - Parameters:
    ///   - deadline: When to give up.
    ///   - bind: Makes the body for the connection that the request is sent over. Called again each time the request
    ///     is repeated.
    /// - Throws: `configurationInvalid` for a redirection to another origin, to which nothing is sent; the errors of
    ///   the connection.
    func response(
        to request: HTTPRequest, before deadline: NIODeadline,
        body bind: (@Sendable (ServerConnection) async throws(ProviderError) -> [UInt8])? = nil
    ) async throws(ProviderError) -> HTTPResponse {
        var request = request
        var redirections = 0
        var answers = 0
        while true {
            if token == nil { try await authenticate(before: deadline) }
            let connection = try await connected(deadline)
            if let bind { request.body = try await bind(connection) }
            if hasSentPassword, !hasAnnouncedPassword {
                try await credentials.beforeSendingPassword?()
                hasAnnouncedPassword = true
            }
            authorize(&request)
            var response = try await connection.response(
                to: request, limit: request.maximumResponse, deadline: deadline)
            response.wantsCertificateLater = connection.mayAskLater
            response.redaction = Redaction(credentials.secrets(with: token))
            response.settingNames = security.settingNames
            // Some servers end a connection after a refusal without saying so beforehand. A request that meets that end on its
            // way has no answer, and may not be sent again.
            if response.status == 401, !request.isRepeatable, !response.saysKeepAlive { close() }
            switch response.status {
            case 401 where answers < 2 && prepareAnswer(to: response):
                answers += 1
            case 401 where answers == 0 && token != nil && Self.isRefused(token: response):
                answers += 1
                hasRefusedCredentials = true
                if case .tokens(let tokens) = credentials.kind, let refused = token {
                    token = try await tokens.token(insteadOf: refused, within: deadline.remaining)
                }
            // It has taken the POST, and there is only a GET for what it says (RFC 9110, section 15.4.4), which no protocol
            // here has. With the others it has not, and the method stays.
            case 303 where request.method != .get: return response
            case 301, 302, 303, 307, 308:
                guard request.followsRedirections else { return response }
                redirections += 1
                request.target = try target(of: response, from: request.target, redirections)
            default:
                response.hasRefusedPassword = isRefusalOfPassword(response)
                hasRefusedCredentials =
                    response.hasRefusedPassword || response.status == 401 && credentials.isToken
                response.mayRefuseCertificate =
                    !hasRefusedCredentials && !hasSentPassword && connection.hasShownCertificate
                    && [400, 401, 403].contains(response.status)
                return response
            }
        }
    }

    /// Whether an answer to a challenge was made with the password.
    var hasSentPassword: Bool { digest != nil || sendsPassword }

    /// Whether a request may be sent once more by itself, if it is repeatable.
    var mayRepeat: Bool { credentials.beforeSendingPassword == nil || !hasSentPassword }

    /// Gets a token, the current or a new one, if there is a source of tokens.
    func authenticate(before deadline: NIODeadline) async throws(ProviderError) {
        if case .tokens(let tokens) = credentials.kind { token = try await tokens.token(within: deadline.remaining) }
    }

    /// Connects, if there is no open connection, and verifies the server. Sends no request.
    func connect(before deadline: NIODeadline) async throws(ProviderError) {
        _ = try await connected(deadline)
    }

    func close() {
        connection?.close()
        connection = nil
    }

    private func connected(_ deadline: NIODeadline) async throws(ProviderError) -> ServerConnection {
        if let connection, connection.isOpen { return connection }
        let new = try await ServerConnection.open(server, security, through: proxy, over: network, deadline: deadline)
        connection = new
        return new
    }

    /// Returns the target of a redirection on the same origin (RFC 9110, section 10.2.2).
    private func target(
        of response: HTTPResponse, from target: String, _ count: Int
    ) throws(ProviderError) -> String {
        guard let location = response.headers.first(name: "Location"), !location.isEmpty else {
            throw ProviderError(
                .protocolError,
                "\(server.authority) redirects with the status \(response.status), but without a Location; look for "
                    + "the reason in the server's log.",
                nativeCode: response.status)
        }
        guard let place = server.resolving(location, against: target) else {
            throw ProviderError(
                .protocolError,
                "\(server.authority) redirects to '\(response.excerpt(of: location, limit: 200))', which is not a valid server "
                    + "URL; look for the reason in the server's log.",
                nativeCode: response.status)
        }
        guard place.isOfSameOrigin(as: server) else {
            throw ProviderError(
                .configurationInvalid,
                "\(server.authority) redirects to '\(response.excerpt(of: location, limit: 200))'. Nothing is sent to another "
                    + "server, port or scheme than the configured one; if the redirection is right, put its target "
                    + "into \(security.settingNames.address).",
                nativeCode: response.status)
        }
        guard count <= Self.maximumRedirections else {
            throw ProviderError(
                .protocolError,
                "\(server.authority) redirects more than \(Self.maximumRedirections) times; look for the reason in the server's log."
            )
        }
        return place.target
    }

    // MARK: - Authentication

    private func authorize(_ request: inout HTTPRequest) {
        // Without credentials here, the request may have its own.
        guard !credentials.isNone else { return }
        request.headers.remove(name: "Authorization")
        switch credentials.kind {
        case .none: break
        case .bearer(let token): request.headers.add(name: "Authorization", value: Self.bearerField(token))
        case .tokens:
            if let token { request.headers.add(name: "Authorization", value: Self.bearerField(token)) }
        case .password(let user, let password):
            if digest != nil {
                let field = digest?.field(
                    user: user, password: password, method: request.method, target: request.target)
                if let field { request.headers.add(name: "Authorization", value: field) }
            } else if sendsPassword {
                request.headers.add(
                    name: "Authorization", value: ServerCredentials.basicField(user: user, password: password))
            }
        }
    }

    private static func bearerField(_ token: SecretBytes) -> String {
        "Bearer " + token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    /// Whether the server has refused the token, so that another one may succeed (RFC 6750, section 3). Some servers
    /// give no reason.
    static func isRefused(token response: HTTPResponse) -> Bool {
        let errors = AuthenticationChallenge.all(in: response.headers).lazy.filter { $0.scheme == "bearer" }
            .compactMap { $0.parameters["error"] }
        return errors.isEmpty || errors.contains("invalid_token")
    }

    /// Whether a response refuses a password that was sent. A nonce that is too old is not a refusal.
    private func isRefusalOfPassword(_ response: HTTPResponse) -> Bool {
        guard response.status == 401 else { return false }
        guard digest != nil else { return sendsPassword }
        return !DigestAuthentication.isStale(AuthenticationChallenge.all(in: response.headers))
    }

    /// Prepares the answer to a challenge. Returns whether to send the request once more.
    private func prepareAnswer(to response: HTTPResponse) -> Bool {
        guard case .password = credentials.kind, !isRefusalOfPassword(response) else { return false }
        let challenges = AuthenticationChallenge.all(in: response.headers)
        if let strongest = DigestAuthentication.strongest(of: challenges) {
            digest = strongest
            return true
        }
        // Some servers do not say what they want. Not in the clear: the password is readable.
        guard isConfidential,
            challenges.isEmpty || challenges.contains(where: { $0.scheme == "basic" })
        else {
            return false
        }
        sendsPassword = true
        return true
    }
}

extension NIODeadline {
    /// The time that is left until then.
    fileprivate var remaining: Duration { .nanoseconds((self - .now()).nanoseconds) }
}
