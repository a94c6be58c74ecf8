import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import NIOHTTP1
import TestSupport
import Testing

@testable import ProviderTransport

/// Messages name what the user can change: the parameters of a provider, or the keys of a registration.
@Suite struct SettingNamesTests {
    private static let registration = ServerSettingNames(address: "Host and Port", path: "URLSuffix", timeout: nil)
    static let contexts: [(ServerSettingNames, slowness: String)] = [
        (ServerSettingNames(), "; check whether it is overloaded, or increase 'timeout'."),
        (registration, "; check whether it is overloaded, or try again later."),
    ]

    @Test("A timeout error suggests 'timeout' only where the user can set this parameter", arguments: contexts)
    func aServerThatIsTooSlow(names: ServerSettingNames, advice: String) async throws {
        let budget = TimeBudget(.zero, RetryPolicy())
        let error = await #expect(throws: ProviderError.self) {
            try await budget.spend(names) { _ throws(ProviderError) in Issue.record("asked") }
        }
        #expect(error?.message == "The server has used up its time" + advice)
        let server = try #require(ServerURL("https://server.example"))
        let proxy = try #require(HTTPProxy("http://server.example:3128"))
        for (proxy, subject) in [(nil, "server.example"), (proxy, "The proxy server.example ('proxy')")] {
            for cause: any Error in [ExchangeFailure.timedOut, ChannelError.connectTimeout(.zero)] {
                let error = ServerConnection.failure(cause, server, names, isConnecting: true, proxy: proxy)
                #expect(error.code == .timedOut && error.message == "\(subject) did not answer in time" + advice)
            }
        }
    }

    @Test("An error about a wrong address or path names the settings for address and path", arguments: contexts)
    func anAddressThatIsWrong(names: ServerSettingNames, _: String) async throws {
        let server = try await SCEPHTTPServer(showing: try TestAuthority().issue("server")) { request in
            switch request.target {
            case "/elsewhere": HTTPResponse(status: 302, headers: ["Location": "https://other.example/"], body: [])
            case "/text": HTTPResponse(status: 200, headers: [:], body: Array("text".utf8))
            default: HTTPResponse(status: 404, headers: [:], body: [])
            }
        }
        let url = try #require(ServerURL(server.url))
        var security = ServerSecurity(trust: ServerTrust(trustAnchors: .system), skipsVerification: true)
        security.settingNames = names
        let session = ServerSession(url, security, timeBudget: TimeBudget(.seconds(600), RetryPolicy()))
        func error(_ target: String) async -> ProviderError? {
            do {
                let response = try await session.response(to: HTTPRequest(target: target))
                if response.status != 200 { return response.refusal(of: "the request", by: url, at: Date()) }
                _ = try response.json([String].self, from: url)
                return nil
            } catch { return error }
        }
        #expect(await error("/elsewhere")?.message.hasSuffix("put its target into \(names.address).") == true)
        #expect(await error("/text")?.message.hasSuffix("; check \(names.address).") == true)
        #expect(await error("/nowhere")?.message.hasSuffix("; check \(names.path).") == true)
    }

    /// A proxy that the parameters name, and one of the environment, which a registration has only.
    @Test("A proxy error names the parameter or environment variable to correct")
    func aProxyThatIsWrong() throws {
        let server = try #require(ServerURL("https://server.example"))
        let named = try #require(HTTPProxy("http://proxy.example:3128"))
        func environment(_ value: String) throws(ProviderError) -> HTTPProxy? {
            try ProxyEnvironment { $0 == "https_proxy" ? SecretBytes(utf8: value) : nil }.proxy(for: server)
        }
        let found = try #require(try environment("http://proxy.example:3128"))
        #expect(
            named.refusal(407, of: server).message.contains("; check 'proxy-username' and 'proxy-password-source'; "))
        #expect(named.refusal(404, of: server).message.hasSuffix("; check that 'proxy' names an HTTP proxy."))
        #expect(
            found.refusal(407, of: server).message.contains(
                "; check the user name and the password in the environment variable https_proxy; "))
        #expect(
            found.refusal(404, of: server).message.hasSuffix(
                "; check that the environment variable https_proxy names an HTTP proxy."))
        #expect(found.with(user: "a", password: SecretBytes(utf8: "b")).setting == "'proxy'")
        let error = #expect(throws: ProviderError.self) { try environment("socks5://proxy") }
        #expect(error?.message.hasSuffix("Correct it, or unset it.") == true)
    }
}
