import CertificateProviding
import CertificateTLS
import Foundation
import Glibc
import HostSockets
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HostService

/// A tunnel with a program of Python behind it, and clients of Python and OpenSSL before it.
@Suite struct TunnelTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority
    private let log = TestLog()

    init() throws {
        directory = try TemporaryDirectory()
        authority = try TestAuthority()
        try write(authority, "ca.pem")
        try write(try authority.issue("client"), "client.pem")
    }

    private func write(_ authority: TestAuthority, _ name: String) throws {
        try directory.write(authority.root.pemRepresentation.utf8, to: name)
    }

    private func write(_ identity: Identity, _ name: String) throws {
        let key = try #require(identity.key.exporter).pkcs8Representation().withUnsafeBytes {
            Data($0).base64EncodedString()
        }
        let chain = identity.certificateChain.map(\.pemRepresentation).joined(separator: "\n")
        try directory.write(
            "\(chain)\n-----BEGIN PRIVATE KEY-----\n\(key)\n-----END PRIVATE KEY-----\n".utf8, to: name)
    }

    private func python(_ arguments: [String]) throws -> Subprocess {
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "tunnel.py").path
        return try Subprocess(["/usr/bin/python3", script] + arguments)
    }

    /// Starts a program behind the tunnel, and returns it with its address.
    private func target(_ what: String, at path: String? = nil) async throws -> (process: Subprocess, address: String) {
        let process = try python(["target", path ?? "tcp", what])
        let words = try #require(await process.nextLine()).split(separator: " ")
        try #require(words.count == 2 && words[0] == "up", "\(words)")
        return (process, path.map { "unix:\($0)" } ?? "127.0.0.1:\(words[1])")
    }

    private func tls(_ identity: Identity, _ trusted: [X509Certificate], _ peers: PeerPolicy = .everyVerifiedPeer)
        async throws -> RotatingTLS
    {
        try await RotatingTLS(
            presenting: identity, trusting: PeerTrust(anchors: .certificates(trusted), peers: peers), logger: log.logger
        )
    }

    private func settings(
        _ mode: TunnelSettings.Mode, _ listen: String, _ target: String, _ more: [String: String] = [:]
    ) throws -> TunnelSettings {
        var texts = ProviderParameters()
        // The pool's threads may be busy with other tests for long.
        let values = ["connect-timeout": "600"].merging(more) { $1 }.merging([
            "mode": mode.rawValue, "listen": listen, "target": target,
        ]) { $1 }
        for (name, value) in values { texts["Serve.tunnel.1.\(name)"] = .init(value, origin: "test") }
        return try TunnelSettings(
            1, Parameters(texts, of: TunnelSettings.parameters.map { $0.of(1) }, .propertyFile, keyStores: .none))
    }

    private func start(
        _ settings: TunnelSettings, _ tls: RotatingTLS, grants: Grants = Grants()
    ) async throws -> Tunnel {
        let tunnel = Tunnel(
            settings, grants: grants, tls: { tls }, on: MultiThreadedEventLoopGroup.singleton, logger: log.logger)
        try await tunnel.start()
        return tunnel
    }

    private func port(_ tunnel: Tunnel) -> String { "\(tunnel.address?.port ?? 0)" }

    /// Connects, and says nothing. Ends with the connection.
    private func silentClient(of tunnel: Tunnel) throws -> Subprocess {
        let script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
        return try Subprocess(["/usr/bin/python3", "-c", script, port(tunnel)])
    }

    /// Waits for the end of a process without taking a thread of the pool from the tunnels.
    private func hasEnded(_ process: Subprocess) async throws {
        while !process.hasEnded { try await Task.sleep(for: .milliseconds(2)) }
    }

    private func clients(_ tunnel: Tunnel, _ authorities: String = "ca.pem") async throws -> Subprocess {
        let clients = try python(["clients", port(tunnel), directory[authorities]])
        try #require(await clients.nextLine() == "up")
        return clients
    }

    private func ask(_ process: Subprocess, _ words: String) async throws -> [String] {
        try #require(process.writeLine(words))
        return try #require(await process.nextLine()).split(separator: " ").map(String.init)
    }

    @Test(
        "Through a renewal, a change of CA and a change of peers, 200 open connections go on, and new ones are as the new state says"
    )
    func rotation() async throws {
        let (target, address) = try await target("echo", at: directory["web.sock"])
        let other = try TestAuthority("Other")
        try directory.write(
            (authority.root.pemRepresentation + "\n" + other.root.pemRepresentation).utf8, to: "both.pem")
        for name in ["second", "third"] { try write(try other.issue(name), name + ".pem") }
        let first = try authority.issue("server"), renewed = try authority.issue("server")
        let tls = try await tls(first, [authority.root], try PeerPolicy(parsing: "cn:client, cn:second"))
        let tunnel = try await start(try settings(.server, "127.0.0.1:0", address), tls)
        let clients = try await clients(tunnel, "both.pem")
        func serial(_ identity: Identity) -> String {
            identity.certificate.serialNumber.map { String(format: "%02X", $0) }.joined().replacing(#/^0+/#, with: "")
        }
        func open(_ count: Int, _ name: String) async throws -> [String] {
            try await ask(clients, "open \(count) \(directory[name + ".pem"])")
        }
        #expect(try await open(200, "client") == ["200", serial(first)])
        #expect(tunnel.connections == 200)
        try await tls.update(to: renewed)
        #expect(try await open(5, "client") == ["5", serial(renewed)])
        #expect(try await open(5, "second") == ["0"])
        // Another CA, which does not know the clients of the first one.
        try await tls.update(
            trusting: PeerTrust(anchors: .certificates([other.root]), peers: try PeerPolicy(parsing: "cn:second")))
        #expect(try await open(5, "client") == ["0"])
        #expect(try await open(5, "second") == ["5", serial(renewed)])
        #expect(try await open(5, "third") == ["0"])
        #expect(try await ask(clients, "ping") == ["210"])
        clients.stop()
        await tunnel.stop(grace: .seconds(60))
        #expect(tunnel.connections == 0)
        target.stop()
    }

    @Test("Either side may end its direction first: the other one's bytes still arrive", arguments: ["late", "first"])
    func halfClosed(order: String) async throws {
        let (target, address) = try await target(order)
        let tunnel = try await start(
            try settings(.server, "127.0.0.1:0", address),
            try await tls(try authority.issue("server"), [authority.root]))
        let client = try python(["half", port(tunnel), directory["ca.pem"], directory["client.pem"], order])
        if order == "late" {
            #expect(await client.nextLine() == "5000000")
        } else {
            #expect(await client.nextLine() == "5")
            #expect(await target.nextLine() == "received 5000000")
        }
        try await hasEnded(client)
        #expect(client.wait().status == 0)
        // Both ends are closed by themselves.
        while tunnel.connections > 0 { try await Task.sleep(for: .milliseconds(2)) }
        await tunnel.stop(grace: .zero)
        target.stop()
    }

    @Test("A client that reads nothing holds the program back, and not its bytes in memory")
    func backPressure() async throws {
        let (target, address) = try await target("flood")
        let tunnel = try await start(
            try settings(.server, "127.0.0.1:0", address),
            try await tls(try authority.issue("server"), [authority.root]))
        let client = try python(["stuck", port(tunnel), directory["ca.pem"], directory["client.pem"]])
        #expect(await client.nextLine() == "up")
        // The kernel holds some megabytes for four sockets.
        let sent = try #require(await target.nextLine())
        let count = try #require(Int(sent))
        #expect(count < 64 << 20)
        client.stop()
        await tunnel.stop(grace: .zero)
    }

    @Test("A target that is away, and one that comes later: a connection is closed with a reason, one line for all")
    func targetAway() async throws {
        let path = directory["later.sock"]
        let tunnel = try await start(
            try settings(.server, "127.0.0.1:0", "unix:\(path)"),
            try await tls(try authority.issue("server"), [authority.root]))
        let clients = try await clients(tunnel)
        #expect(try await ask(clients, "open 5 \(directory["client.pem"])") == ["0"])
        #expect(log.warnings.count == 1 && log.warnings[0].contains("No such file"), "\(log.text)")
        let (target, _) = try await target("echo", at: path)
        #expect(try await ask(clients, "open 5 \(directory["client.pem"])").first == "5")
        await tunnel.stop(grace: .zero)
        target.stop()
    }

    @Test("The header of the PROXY protocol comes before all bytes, and only to a socket that others cannot connect to")
    func proxyHeader() async throws {
        let path = directory["web.sock"]
        let (target, address) = try await target("header", at: path)
        let tunnel = try await start(
            try settings(.server, "127.0.0.1:0", address, ["proxy-protocol": "v2"]),
            try await tls(try authority.issue("server"), [authority.root]))
        try #require(chmod(path, 0o666) == 0)
        let refused = try python(["stuck", port(tunnel), directory["ca.pem"], directory["client.pem"]])
        #expect(await refused.nextLine() == "up")
        while log.warnings.isEmpty { try await Task.sleep(for: .milliseconds(2)) }
        #expect(log.warnings[0].contains("0660"), "\(log.text)")
        try #require(chmod(path, 0o660) == 0)
        let client = try python(["stuck", port(tunnel), directory["ca.pem"], directory["client.pem"]])
        let hex = try #require(await target.nextLine())
        let names = Array("cn:client\0dns:localhost\0".utf8)
        let size = 12 + 3 + names.count
        #expect(hex.hasPrefix("0d0a0d0a000d0a515549540a" + "2111" + String(format: "%04x", size) + "7f0000017f000001"))
        let port = String(format: "%04x", tunnel.address?.port ?? 0)
        #expect(hex.dropFirst(52).hasPrefix(port + "e0" + String(format: "%04x", names.count)))
        #expect(hex.dropFirst(62).hasPrefix(names.map { String(format: "%02x", $0) }.joined()), "\(hex)")
        for process in [refused, client, target] { process.stop() }
        await tunnel.stop(grace: .zero)
    }

    @Test("A connection ends at its maximum age, and a silent handshake at its limit")
    func limits() async throws {
        let (target, address) = try await target("echo")
        let tls = try await tls(try authority.issue("server"), [authority.root])
        var settings = try settings(.server, "127.0.0.1:0", address)
        settings.maximumAge = .milliseconds(200)
        let tunnel = try await start(settings, tls)
        let client = try python(["half", port(tunnel), directory["ca.pem"], directory["client.pem"], "first"])
        // It reads until the tunnel ends the connection.
        #expect(await client.nextLine() == "0")
        settings.connectTimeout = .milliseconds(100)
        tunnel.update(settings, grants: Grants())
        try await hasEnded(silentClient(of: tunnel))
        await tunnel.stop(grace: .zero)
        target.stop()
    }

    @Test("Handshakes in progress are bounded for each address")
    func handshakeBound() async throws {
        let tls = try await tls(try authority.issue("server"), [authority.root])
        let tunnel = Tunnel(
            try settings(.server, "127.0.0.1:0", "127.0.0.1:9"), grants: Grants(), tls: { tls },
            on: MultiThreadedEventLoopGroup.singleton, logger: log.logger, handshakes: (total: 10, perAddress: 2))
        try await tunnel.start()
        let silent = try (0..<3).map { _ in try silentClient(of: tunnel) }
        while log.warnings.isEmpty { try await Task.sleep(for: .milliseconds(2)) }
        #expect(log.warnings[0].contains("handshakes"))
        while !silent.contains(where: \.hasEnded) { try await Task.sleep(for: .milliseconds(2)) }
        #expect(silent.count(where: \.hasEnded) == 1)
        for process in silent { process.stop() }
        await tunnel.stop(grace: .zero)
    }

    @Test(
        "Handshakes are counted for each IPv4 address, also at a socket that takes both, and for each network of IPv6",
        arguments: [
            ("192.0.2.1", "::ffff:192.0.2.1", true), ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
            ("2001:db8::1", "2001:db8::2", true), ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::1", "127.0.0.1", false),
        ])
    func origins(one: String, other: String, areSame: Bool) throws {
        let octets = try [one, other].map { try #require(SocketAddress(ipAddress: $0, port: 1).octets) }
        #expect((octets[0].prefix(8) == octets[1].prefix(8)) == areSame)
    }

    @Test("A connection that the limit of descriptors does not permit is closed with the reason")
    func descriptorBound() async throws {
        let tls = try await tls(try authority.issue("server"), [authority.root])
        let tunnel = Tunnel(
            try settings(.server, "127.0.0.1:0", "127.0.0.1:9"), grants: Grants(), tls: { tls },
            on: MultiThreadedEventLoopGroup.singleton, logger: log.logger, places: Places(total: 1, each: .max))
        try await tunnel.start()
        let silent = try (0..<2).map { _ in try silentClient(of: tunnel) }
        while !silent.contains(where: \.hasEnded) { try await Task.sleep(for: .milliseconds(2)) }
        #expect(silent.count(where: \.hasEnded) == 1 && log.warnings.contains { $0.contains("LimitNOFILE") })
        for process in silent { process.stop() }
        await tunnel.stop(grace: .zero)
    }

    @Test("Peers that have not shown a certificate take no place of those who have")
    func unfinishedHandshakes() async throws {
        let (target, address) = try await target("echo")
        let tls = try await tls(try authority.issue("server"), [authority.root])
        let tunnel = try await start(try settings(.server, "127.0.0.1:0", address, ["max-connections": "1"]), tls)
        let silent = try (0..<3).map { _ in try silentClient(of: tunnel) }
        while tunnel.connections < 3 { try await Task.sleep(for: .milliseconds(2)) }
        let clients = try await clients(tunnel)
        #expect(try await ask(clients, "open 2 \(directory["client.pem"])").first == "1")
        #expect(log.warnings.contains { $0.contains("max-connections") })
        for process in silent + [clients] { process.stop() }
        await tunnel.stop(grace: .zero)
        target.stop()
    }

    @Test(
        "A client tunnel passes the bytes of granted callers to a server with the right name; others are refused with the reason",
        .enabled(if: geteuid() == 0))
    func clientTunnel() async throws {
        let (target, address) = try await target("echo")
        let peers = try await tls(try authority.issue("server"), [authority.root])
        let server = try await start(try settings(.server, "127.0.0.1:0", address), peers)
        try #require(chmod(directory.path, 0o755) == 0)
        let path = directory["client.sock"]
        let grants = Grants([.init(name: "Serve.allow.1", [.user(12345)], text: "uid:12345")])
        let remote = "127.0.0.1:\(port(server))"
        let tunnel = try await start(
            try settings(.client, "unix:\(path)", remote, ["server-name": "localhost"]),
            try await tls(try authority.issue("caller"), [authority.root]), grants: grants)
        func exchange(as user: Int) async throws -> String? {
            let script = """
                import socket, sys
                one = socket.socket(socket.AF_UNIX)
                one.connect(sys.argv[1])
                count = 0
                try:
                    one.sendall(b"x" * 100000)
                    one.shutdown(socket.SHUT_WR)
                    while data := one.recv(65536): count += len(data)
                except OSError: pass
                print(count)
                """
            return try await Subprocess(
                ["setpriv", "--reuid=\(user)", "--clear-groups", "/usr/bin/python3", "-c", script, path]
            ).nextLine()
        }
        #expect(try await exchange(as: 12345) == "100000")
        for _ in 0..<3 { #expect(try await exchange(as: 12346) != "100000") }
        let lines = log.warnings.filter { $0.contains("12346") }
        #expect(lines.count == 1 && lines[0].contains("Serve.allow.1"), "\(log.text)")
        // The server refuses the certificate when the client's handshake is complete.
        try await peers.update(
            trusting: PeerTrust(anchors: .certificates([authority.root]), peers: try PeerPolicy(parsing: "cn:other")))
        #expect(try await exchange(as: 12345) != "100000")
        #expect(log.text.contains("\(remote) refused the certificate"), "\(log.text)")
        try await peers.update(trusting: PeerTrust(anchors: .certificates([authority.root])))
        // The grants of a file that was read again count from then on.
        tunnel.update(
            tunnel.settings, grants: Grants([.init(name: "Serve.allow.1", [.user(12346)], text: "uid:12346")]))
        #expect(try await exchange(as: 12346) == "100000")
        #expect(try await exchange(as: 12345) != "100000")
        // Another name than that of the certificate.
        var settings = tunnel.settings
        settings.serverName = "other.example"
        tunnel.update(settings, grants: Grants([.init(name: "Serve.allow.1", [.user(0)], text: "uid:0")]))
        #expect(try await exchange(as: 0) != "100000")
        #expect(log.text.contains("other.example"), "\(log.text)")
        await tunnel.stop(grace: .zero)
        #expect(FileStatus(path) == nil)
        await server.stop(grace: .zero)
        target.stop()
    }

    @Test("An address that is in use is an error that names it and its setting")
    func addressInUse() async throws {
        let tls = try await tls(try authority.issue("server"), [authority.root])
        let first = try await start(try settings(.server, "127.0.0.1:0", "127.0.0.1:9"), tls)
        let second = try settings(.server, "127.0.0.1:\(port(first))", "127.0.0.1:9")
        let error = try await #require(throws: ProviderError.self) { try await start(second, tls) }
        #expect(error.code == .unavailable, "\(error)")
        for word in [port(first), "Serve.tunnel.1.listen"] { #expect(error.message.contains(word), "\(error)") }
        await first.stop(grace: .zero)
    }

    @Test("Names that do not fit in the header, and those with control characters, are left out")
    func names() throws {
        let uris = (0..<200).map { "spiffe://example.org/service/number-\($0)" }
        let peer = try #require(
            TLSPeer(chain: [try TestAuthority.leaf("a\u{1}b", units: ["unit"], dnsNames: ["web.example"], uris: uris)]))
        let bytes = ProxyHeader.names(of: peer)
        let names = bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        #expect(names.starts(with: ["ou:unit", "dns:web.example", "uri:" + uris[0]]))
        #expect(bytes.count <= 3072 && bytes.count > 3000 && bytes.last == 0)
    }
}
