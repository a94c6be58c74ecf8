import CertificateProviding
import Testing

@testable import ProviderTransport

/// The environment's proxies.
@Suite struct ProxyEnvironmentTests {
    private func proxy(_ url: String, _ variables: [String: String]) throws -> String? {
        let environment = ProxyEnvironment { name in variables[name].map { SecretBytes(utf8: $0) } }
        return try environment.proxy(for: #require(ServerURL(url)))?.server.authority
    }

    @Test func eachSchemeHasItsVariable() throws {
        let one = "http://one:1"
        #expect(try proxy("https://server.example", ["https_proxy": one]) == "one:1")
        #expect(try proxy("https://server.example", ["HTTPS_PROXY": "one:1"]) == "one:1")
        #expect(try proxy("https://server.example", ["https_proxy": one, "HTTPS_PROXY": "http://two:2"]) == "one:1")
        #expect(try proxy("https://server.example", ["https_proxy": "", "HTTPS_PROXY": "http://two:2"]) == nil)
        #expect(try proxy("https://server.example", ["http_proxy": one]) == nil)
        #expect(try proxy("http://server.example", ["http_proxy": one]) == "one:1")
        // A request's `Proxy:` field, in a program of a web server.
        #expect(try proxy("http://server.example", ["HTTP_PROXY": one]) == nil)
        #expect(try proxy("http://server.example", ["https_proxy": one]) == nil)
        #expect(try proxy("http://server.example", [:]) == nil)
    }

    @Test(
        "Requests to this host do not use the proxy",
        arguments: ["localhost", "a.localhost", "127.0.0.1", "127.1.2.3", "[::1]", "LOCALHOST."])
    func thisHostIsReachedDirectly(host: String) throws {
        #expect(try proxy("https://\(host)", ["https_proxy": "http://one:1"]) == nil)
    }

    @Test(
        "An unusable proxy URL in https_proxy is an error",
        arguments: ["http://one", "https://one:1", "socks5://one:1", "http://one:1/path", "one", "http://:1", "://"])
    func whatCannotBeUsedIsAnError(value: String) {
        let error = #expect(throws: ProviderError.self) {
            try proxy("https://server.example", ["https_proxy": value])
        }
        #expect(error?.code == .configurationInvalid)
    }

    @Test(
        "The no_proxy list matches host names, domain suffixes and ports",
        arguments: [
            ("server.example", true), ("example", true), (".example", true), ("*.example", true), ("*", true),
            ("ver.example", false), ("other.example, SERVER.example.", true), ("one two\tserver.example", true),
            ("server.example:8443", true), ("server.example:443", false), ("example:8443", true), ("", false),
            (".", false), ("10.0.0.0/8", false), ("server.example.org", false),
        ])
    func namesAreExcepted(list: String, isExcepted: Bool) {
        #expect(NoProxyList(list).contains("server.example", port: 8443) == isExcepted)
    }

    @Test(
        "The no_proxy list matches IP addresses, networks and ports",
        arguments: [
            ("10.1.2.3", "10.1.2.3", true), ("10.1.2.3", "10.0.0.0/8", true), ("10.1.2.3", "10.1.2.0/31", false),
            ("10.1.2.3", "10.1.2.2/31", true), ("10.1.2.3", "0.0.0.0/0", true), ("10.1.2.3", "10.1.2.3/33", false),
            ("10.1.2.3", "2.3", false), ("10.1.2.3", "10.1.2.3:8443", true), ("10.1.2.3", "10.1.2.3:1", false),
            ("2001:db8::1", "2001:DB8:0::1", true), ("2001:db8::1", "2001:db8::/32", true),
            ("2001:db8::1", "2001:db9::/32", false), ("2001:db8::1", "[2001:db8::1]:8443", true),
            ("2001:db8::1", "[2001:db8::1]:1", false), ("2001:db8::1", "10.0.0.0/8", false),
        ])
    func addressesAreExcepted(host: String, list: String, isExcepted: Bool) {
        #expect(NoProxyList(list).contains(host, port: 8443) == isExcepted)
    }
}
