import CertificateProviding
import CertprovComposition
import Glibc
import HostService
import HostSockets
import Logon
import TestSupport
import Testing

/// The section `Serve.` of a property file.
@Suite struct TunnelSettingsTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private static let server = [
        "mode = server", "listen = 0.0.0.0:8443", "target = unix:/run/web.sock",
    ].map { "Serve.tunnel.1." + $0 }
    private static let client = [
        "mode = client", "listen = unix:/run/db.sock", "target = db.example:5432",
    ].map { "Serve.tunnel.1." + $0 }
    private static let peers = ["TrustAnchors = ca.pem", "Peers.allow = cn:web"]

    private func load(_ lines: [String], _ sections: [SettingsSection] = [ServeSection.settings]) throws
        -> LogonConfiguration
    {
        var builtIns = BuiltIns.all
        builtIns.sections += sections
        let file = try directory.write(lines.joined(separator: "\n").utf8, to: "a.properties")
        let registry = try ProviderRegistry(
            builtIns.providers, keyStores: builtIns.keyStores, sections: builtIns.sections)
        return try LogonConfiguration.load(path: file, registry: registry)
    }

    @Test("A server and a client tunnel with all that they need are taken")
    func complete() throws {
        let server = try load(
            Self.peers + Self.server + ["Serve.tunnel.1.proxy-protocol = v2", "Serve.tunnel.1.max-age = 3600"])
        let tunnel = try #require(try ServeSection.read(server).tunnels.first)
        #expect(tunnel.mode == .server && tunnel.hasProxyHeader && tunnel.maximumAge == .seconds(3600))
        #expect("\(tunnel.listen) \(tunnel.target)" == "0.0.0.0:8443 unix:/run/web.sock")
        let client = try load(
            Self.client + [
                "Serve.allow.1 = user:root", "Serve.allow.2 = uid:5 gid:7 unit:web.service cgroup:/a.slice",
                "Serve.tunnel.1.socket-mode = 0660", "Serve.tunnel.1.socket-group = root",
                "Serve.tunnel.2.mode = client", "Serve.tunnel.2.listen = [::1]:5432",
                "Serve.tunnel.2.target = [2001:db8::1]:5432",
                "Serve.tunnel.2.any-local-user = true",
            ])
        let (tunnels, grants) = try ServeSection.read(client)
        #expect(grants.grants.map(\.selectors.count) == [1, 4] && tunnels.map(\.number) == [1, 2])
        // Every peer, in so many words.
        _ = try ServeSection.read(try load(["TrustAnchors = ca.pem", "Peers.allow = any"] + Self.server))
    }

    private struct Refused: CustomTestStringConvertible {
        var lines: [String]
        var reason: String
        var testDescription: String { reason }

        init(_ lines: [String], _ reason: String) { (self.lines, self.reason) = (lines, reason) }

        /// One tunnel, after the lines about peers.
        init(_ mode: String, _ listen: String, _ target: String, _ more: String?, _ reason: String) {
            let own: [String?] = ["mode = \(mode)", "listen = \(listen)", "target = \(target)", more]
            self.init(peers + own.compactMap { $0 }.map { "Serve.tunnel.1." + $0 }, reason)
        }

        static let files: [Refused] = [
            Refused(["Serve.tunnel.1.mode = server"], "listen"),
            Refused(server, "Peers.allow"), Refused(["Peers.allow = cn:web"] + server, "TrustAnchors"),
            Refused(["TrustAnchors = ca.pem", "Peers.allow ="] + server, "write any"),
            Refused(
                peers + server + [
                    "Serve.tunnel.2.mode = server", "Serve.tunnel.2.listen = 127.0.0.1:8443",
                    "Serve.tunnel.2.target = [::1]:80",
                ],
                "tunnel 1"),
            Refused(client, "grant"),
            Refused("server", "a:1", "unix:/b", "max-age = 0", "max-age"),
            Refused("server", "a:1", "unix:/b", "any-local-user = true", "any-local-user"),
            Refused("server", "a:1", "unix:/b", "server-name = a", "server-name"),
            Refused("server", "a:1", "unix:/b", "socket-mode = 0600", "socket-mode"),
            Refused("server", "a:1", "unix:/b", "proxy-protocol = v1", "must be v2"),
            Refused("server", "a:1", "localhost:80", "proxy-protocol = v2", "forge"),
            Refused("server", "a:1", "192.0.2.1:80", nil, "without TLS"),
            Refused("server", "a:1", "localhost:0", nil, "port"),
            Refused("server", "a:1", "unix:web.sock", nil, "absolute"),
            Refused("server", "0.0.0.0:80", "localhost:80", nil, "own address"),
            Refused("server", "[::ffff:127.0.0.1]:80", "127.0.0.1:80", nil, "own address"),
            Refused("server", "[0:0::1]:80", "[::1]:80", nil, "own address"),
            Refused("server", "[0::0]:80", "localhost:80", nil, "own address"),
            Refused("server", "unix:/a", "unix:/b", nil, "HOST:PORT"),
            Refused("server", "8443", "unix:/b", nil, "HOST:PORT"),
            Refused("other", "a:1", "unix:/b", nil, "server or client"),
            Refused("client", "unix:/a", "b:1", "proxy-protocol = v2", "proxy-protocol"),
            Refused("client", "unix:/a", "b:1", "socket-group = no-such-group", "socket-group"),
            Refused("client", "unix:/a", "b:1", "connect-timeout = 0", "connect-timeout"),
            Refused("client", "unix:/a", "unix:/b", nil, "HOST:PORT"),
            Refused("client", "127.0.0.1:5432", "b:1", nil, "any-local-user"),
            Refused("client", "0.0.0.0:5432", "b:1", "any-local-user = true", "on loopback"),
            Refused("client", "localhost.example:5432", "b:1", "any-local-user = true", "on loopback"),
            Refused(["Serve.tunel.1.mode = server", ""], "unknown"),
            Refused(["serve.allow.1 = user:root", ""], "unknown"),
        ]
    }

    @Test("What would open a tunnel too far, or mean nothing, is refused with its line", arguments: Refused.files)
    private func refused(_ file: Refused) throws {
        let error = try #require(throws: ProviderError.self) {
            _ = try ServeSection.read(try load(file.lines))
        }
        #expect(error.code == .configurationInvalid && error.message.contains(file.reason), "\(error)")
        // A required setting that is missing has no line.
        if file.lines.count > 1 { #expect(error.message.contains("a.properties:"), "\(error)") }
    }

    @Test(
        "A grant that could mean others, or no one, is refused with its line",
        arguments: [
            "", "uid:-1", "uid:4294967295", "uid:65534", "uid:+5", "uid:05", "uid:", "gid:65534", "user:nobody",
            "user:no-such-user",
            "user:0", "group:no-such-group", "group:nogroup", "user:", "unit:web", "unit:user@1000.service",
            "unit:a/b.service", "unit:.service",
            "cgroup:a.slice", "cgroup:/", "cgroup:/a/../b", "cgroup:/a/", "cgroup://a", "pid:7", "*", "any",
            "user:root uid:0", "uid:1 uid:2", "unit:a.service unit:b.service", "root",
        ])
    func refusedGrants(text: String) throws {
        let configuration = try load(["Serve.allow.1 = user:root unit:a.service", "Serve.allow.2 = \(text)"])
        let error = try #require(throws: ProviderError.self) {
            _ = try ServeSection.read(configuration)
        }
        #expect(error.code == .configurationInvalid && error.message.contains("a.properties:2: "), "\(error)")
    }

    @Test("The same grant twice is refused")
    func twice() throws {
        let configuration = try load([
            "Serve.allow.1 = user:root unit:a.service", "Serve.allow.2 = unit:a.service  uid:0",
        ])
        let error = try #require(throws: ProviderError.self) {
            _ = try ServeSection.read(configuration)
        }
        #expect(error.message.contains("a.properties:2: ") && error.message.contains("Serve.allow.1"), "\(error)")
    }

    @Test("A service with the kit takes the keys in the same file, and does not read them")
    func otherPrograms() throws { #expect(try load(Self.server, []).warnings.isEmpty) }
}
