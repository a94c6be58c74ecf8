import CertificateProviding
import CertificateTLS
import OAuth
import TestSupport
import Testing

/// The receivers of secrets.
@Suite(.timeLimit(.minutes(20))) struct TokenEndpointTests {
    @Test(arguments: [
        "http://localhost/token", "HTTP://localhost/token", "ftp://localhost/token", "localhost/token", "",
        "https://user:secret@localhost/token", "https://localhost/token#part", "https:///token",
    ])
    func onlyHTTPSIsTaken(url: String) async {
        let error = failure { _ = try TokenEndpoint(url, trust: ServerTrust(trustAnchors: .system)) }
        #expect(error?.code == .configurationInvalid)
        #expect(error?.message.contains("secret") == false)
    }

    @Test("No token request is sent to a server that is not trusted")
    func aServerThatIsNotKnownGetsNothing() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let pin = String(decoding: try server.directory.read("server.pin"), as: UTF8.self)
            .split(whereSeparator: \.isWhitespace).joined()
        let client = try OAuthClient(ESTServer.clientID, secret: ESTServer.secret)
        let anchors = TrustAnchors.pemFile(server.directory["ca.pem"])
        let right = ServerTrust(trustAnchors: anchors, pins: [try CertificatePin(publicKey: pin)])
        _ = try await AccessTokenSource(server.endpoint(trust: right), client: client).token()
        #expect(try server.grants().count == 1)
        let other = try CertificatePin(publicKey: "sha256/" + String(repeating: "A", count: 43) + "=")
        for trust in [
            ServerTrust(trustAnchors: .system),
            ServerTrust(trustAnchors: .pemFile(server.directory["stranger-ca.pem"])),
            ServerTrust(trustAnchors: anchors, pins: [other]),
        ] {
            let tokens = try AccessTokenSource(server.endpoint(trust: trust), client: client)
            #expect(await failure { _ = try await tokens.token() }?.code == .serverNotTrusted)
        }
        #expect(try server.grants().count == 1)
    }

    @Test("A token request goes through the proxy if the proxy accepts the credentials")
    func aProxyOnlyPassesOn() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let proxy = try ProxyServer(["--user", ProxyServer.user, "--password", ProxyServer.password])
        let client = try OAuthClient(ESTServer.clientID, secret: ESTServer.secret)
        let endpoint = try server.endpoint()
        let password = SecretBytes(utf8: ProxyServer.password)
        let granted = try endpoint.through(proxy: proxy.url, user: ProxyServer.user, password: password)
        _ = try await AccessTokenSource(granted, client: client).token()
        #expect(try proxy.requests().map(\.target) == ["localhost:\(server.port)"])
        for refused in [
            try endpoint.through(proxy: proxy.url),
            try endpoint.through(proxy: proxy.url, user: ProxyServer.user, password: SecretBytes(utf8: "wr0ng")),
        ] {
            let error = await failure { _ = try await AccessTokenSource(refused, client: client).token() }
            #expect(error?.code == .rejected && error?.nativeCode == 407)
            #expect(error.map { "\($0)".contains("wr0ng") } == false)
        }
        #expect(try server.grants().count == 1)
        for (url, user) in [("https://proxy:3128", nil), ("http://me:s3cret@proxy:3128", nil), (proxy.url, "a:b")] {
            let error = failure { _ = try endpoint.through(proxy: url, user: user) }
            #expect(error?.code == .configurationInvalid && error?.message.contains("s3cret") == false)
        }
    }

    @Test(arguments: ["302-same", "307-same", "307-other", "301-http", "308-loop"])
    func noRedirectionIsFollowed(kind: String) async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let error = await failure { _ = try await server.tokens(fault: "redirect-\(kind)").token() }
        #expect(error?.code == .configurationInvalid && error?.nativeCode != nil, "\(String(describing: error))")
        #expect(try server.requests().count { $0["event"] as? String == "request" } == 1)
    }

    @Test("A malformed scope is refused", arguments: ["", "two words", "a\"b", "a\\b", "tab\t", "\u{fc}"])
    func aScopeIsAWord(scope: String)
        async throws
    {
        let endpoint = try TokenEndpoint("https://localhost/token", trust: ServerTrust(trustAnchors: .system))
        let client = try OAuthClient("client", secret: ESTServer.secret)
        let error = failure { _ = try AccessTokenSource(endpoint, client: client, scopes: ["good", scope]) }
        #expect(error?.code == .configurationInvalid)
    }

    @Test("An OAuth client without an ID or without the secret for its grant is refused")
    func aClientHasWhatItsGrantNeeds() async throws {
        let endpoint = try TokenEndpoint("https://localhost/token", trust: ServerTrust(trustAnchors: .system))
        let nameOnly = try OAuthClient("client", secret: nil)
        #expect(failure { _ = try AccessTokenSource(endpoint, client: nameOnly) }?.code == .configurationInvalid)
        #expect(failure { _ = try OAuthClient("", secret: nil) }?.code == .configurationInvalid)
        let empty = SecretBytes(copying: [])
        #expect(failure { _ = try OAuthClient("client", secret: empty) }?.code == .configurationInvalid)
    }
}
