import CertificateProviding
import Enrolment
import Foundation
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Enrolment through a proxy.
@Suite(.timeLimit(.minutes(20))) struct ProxyTests {
    private static let credentials = [
        "proxy-username": ProxyServer.user, "proxy-password-source": "env:PROXY_PASSWORD",
    ]
    private static let wanting = ["--user", ProxyServer.user, "--password", ProxyServer.password]

    private func provider(
        _ server: ESTServer, _ proxy: ProxyServer, _ settings: [String: String] = [:], label: String = ""
    ) throws -> EnrollingProvider {
        try server.provider(
            label: label, ["proxy": proxy.url].merging(settings) { $1 },
            variables: ["PROXY_PASSWORD": ProxyServer.password, "WRONG": "wr0ng-secret"])
    }

    private func failure(_ provider: EnrollingProvider) async -> ProviderError? {
        do { _ = try await provider.getCertificate(NoUserInteraction()) } catch { return error }
        return nil
    }

    /// A proof that is bound to the connection shows that no other party ends it.
    @Test(arguments: ["1.2", "1.3"]) func tlsGoesThroughToTheServer(version: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--tls", version, "--binding", "required")
        let proxy = try ProxyServer(Self.wanting)
        let pin = String(decoding: try server.directory.read("server.pin"), as: UTF8.self).filter { !$0.isWhitespace }
        let provider = try provider(server, proxy, Self.credentials.merging(["pin": pin]) { $1 })
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        let requests = try proxy.requests()
        #expect(!requests.isEmpty)
        for request in requests {
            #expect(request.method == "CONNECT" && request.target == "localhost:\(server.port)")
            #expect(request.granted && request.headers == ["host", "proxy-authorization"])
        }
        #expect(try server.requests().last?["binding"] as? String == "matched")
        #expect(try server.requests().last?["user"] as? String == ESTServer.user)
    }

    @Test func pinsAndAnchorsHoldThroughATunnel() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let proxy = try ProxyServer()
        let another = "sha256/" + String(repeating: "A", count: 43) + "="
        for settings in [["pin": another], ["trust-anchors": server.directory["stranger-ca.pem"]]] {
            #expect(await failure(try provider(server, proxy, settings))?.code == .serverNotTrusted)
        }
        #expect(try !proxy.requests().isEmpty)
        #expect(try server.requests().allSatisfy { $0["event"] as? String != "request" })
    }

    @Test func aProxyThatWantsOtherCredentialsIsATypedError() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let proxy = try ProxyServer(Self.wanting)
        let wrong = ["proxy-username": ProxyServer.user, "proxy-password-source": "env:WRONG"]
        for settings in [[:], wrong] {
            let error = await failure(try provider(server, proxy, settings))
            #expect(error?.code == .rejected && error?.nativeCode == 407)
            #expect(error?.message.contains("127.0.0.1:\(proxy.port)") == true)
            for secret in ["wr0ng", Data("\(ProxyServer.user):wr0ng-secret".utf8).base64EncodedString()] {
                #expect(error.map { "\($0)".contains(secret) } == false)
            }
        }
        // A password that is refused is not sent again.
        #expect(try proxy.requests().count == 2)
        #expect(try server.requests().isEmpty)
    }

    @Test("The error passes on the HTTP status of the proxy")
    func whatTheProxySaysIsPassedOn() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let expected: [(Int, ProviderError.Code)] = [
            (403, .rejected), (502, .unavailable), (504, .unavailable), (400, .configurationInvalid),
            (302, .configurationInvalid), (401, .rejected),
        ]
        for (status, code) in expected {
            let proxy = try ProxyServer(["--status", "\(status)"])
            let error = await failure(try provider(server, proxy))
            #expect(error?.code == code && error?.nativeCode == status, "\(status)")
            #expect(error?.message.contains("The proxy") == true && error?.message.contains("\(status)") == true)
        }
        #expect(try server.requests().isEmpty)
    }

    @Test func aProxyThatMisbehavesIsATypedErrorInTime() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let expected: [(String, ProviderError.Code)] = [
            ("hang", .timedOut), ("endless", .protocolError), ("garbage", .protocolError), ("close", .unavailable),
            ("early", .protocolError),
        ]
        for (fault, code) in expected {
            let proxy = try ProxyServer(["--fault", fault])
            let error = await failure(try provider(server, proxy, ["timeout": fault == "hang" ? "2" : "600"]))
            #expect(error?.code == code, "\(fault)")
            #expect(error?.message.contains("127.0.0.1:\(proxy.port)") == true, "\(fault)")
        }
        let nobody = try server.provider(["proxy": "http://127.0.0.1:1"])
        let error = await failure(nobody)
        #expect(error?.code == .unavailable && error?.message.contains("the proxy 127.0.0.1:1 ") == true)
        #expect(try server.requests().allSatisfy { $0["event"] as? String != "request" })
    }

    @Test func tokensComeThroughTheProxyToo() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let proxy = try ProxyServer()
        let provider = try provider(
            server, proxy,
            [
                "username": "", "password-source": "", "token-url": "https://127.0.0.1:\(server.port)/token",
                "client-id": "estclient", "client-secret-source": "env:SECRET",
                "token-trust-anchors": server.directory["ca.pem"],
            ])
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        #expect(
            try Set(proxy.requests().map(\.target)) == ["localhost:\(server.port)", "127.0.0.1:\(server.port)"])
    }

    @Test func plainRequestsArePassedOn() async throws {
        let server = try await SCEPHTTPServer(SCEPResponder())
        let proxy = try ProxyServer(Self.wanting)
        func provider(_ settings: [String: String]) throws -> EnrollingProvider {
            let parameters = [
                "protocol": "scep", "url": server.url, "challenge-source": "env:CHALLENGE", "proxy": proxy.url,
                "ca-fingerprint": try CertifiedKey.authority.get().certificate.sha256Fingerprint.hexEncoded,
                "subject": "CN=client,O=Example", "timeout": "600",
            ].merging(settings) { $1 }
            let provider = try RemoteMDMProvider.make(
                environment: .testing(
                    variables: [
                        "CHALLENGE": SCEPServer.challenge, "PROXY_PASSWORD": ProxyServer.password,
                        "WRONG": "wr0ng-secret",
                    ], transport: Transport(retryPolicy: TurnedClock().retryPolicy)),
                parameters: ProviderParameters(parameters.mapValues { .init($0) }))
            return provider
        }
        _ = try await provider(Self.credentials).getCertificate(NoUserInteraction())
        let requests = try proxy.requests()
        #expect(requests.count == server.requests.count)
        #expect(
            requests.allSatisfy {
                $0.method != "CONNECT" && $0.target.hasPrefix(server.url + "?operation=")
                    && $0.headers.contains("proxy-authorization")
            })
        #expect(server.requests.allSatisfy { $0.target.hasPrefix("/scep?operation=") })
        let before = server.requests.count
        let error = await failure(
            try provider(["proxy-username": ProxyServer.user, "proxy-password-source": "env:WRONG"]))
        #expect(error?.code == .rejected && error?.nativeCode == 407)
        #expect(error.map { "\($0)".contains("wr0ng") } == false)
        #expect(server.requests.count == before)
    }

    /// A name that leads nowhere, but for the proxy.
    @Test func theEnvironmentNamesAProxy() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let proxy = try ProxyServer(Self.wanting)
        let address = "http://\(ProxyServer.user):pr%C3%B6xy%3Apwd@127.0.0.1:\(proxy.port)"
        let url = ["url": "https://est.example:\(server.port)"]
        let error = await failure(try server.provider(url, variables: ["https_proxy": address]))
        // It is the server that is asked for, and not known by that name.
        #expect(error?.code == .serverNotTrusted)
        let request = try #require(try proxy.requests().first)
        #expect(request.target == "est.example:\(server.port)" && request.granted)
        let unusable = await failure(try server.provider(url, variables: ["https_proxy": "socks5://u:wr0ng@host:1"]))
        #expect(unusable?.code == .configurationInvalid)
        #expect(unusable.map { "\($0)".contains("wr0ng") } == false)
        // This host, and the excepted ones, are reached directly.
        let direct = try server.provider(variables: ["https_proxy": address])
        try server.verify(try await direct.getCertificate(NoUserInteraction()))
        #expect(try proxy.requests().count == 1)
    }

    @Test func parametersThatDoNotFitAreRefused() async throws {
        let server = try ESTResponder()
        for settings in [
            ["proxy": "https://proxy:3128"], ["proxy": "socks5://proxy:1080"], ["proxy": "proxy:3128"],
            ["proxy": "http://proxy"], ["proxy": "http://me:secret@proxy:3128"], ["proxy": "http://proxy:3128/path"],
            ["proxy-username": "me"], ["proxy": "none", "proxy-username": "me"],
            ["proxy": "http://proxy:3128", "proxy-password-source": "env:X"],
            ["proxy": "http://proxy:3128", "proxy-username": "m:e"],
        ] {
            var error: ProviderError?
            do { _ = try server.provider(settings) } catch let refusal { error = refusal as? ProviderError }
            #expect(error?.code == .configurationInvalid, "\(settings)")
            #expect(error?.message.contains("secret@") == false)
        }
        _ = try server.provider(["proxy": "none"])
    }
}
