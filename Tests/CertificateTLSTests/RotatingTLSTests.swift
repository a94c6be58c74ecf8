import AsyncHTTPClient
import CertificateProviding
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import SwiftASN1
import Synchronization
import TestSupport
import Testing
import X509

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct RotatingTLSTests {
    // MARK: - A CA is replaced

    @Test(
        "A server admits the clients of the CAs in its file, and no others, whatever CA its identity is of",
        arguments: ClientProgram.allCases, Version.allCases)
    func aServerFollowsItsTrustFile(program: ClientProgram, version: Version) async throws {
        try await aServerFollows(program, version, by: .certprov)
    }

    @Test(
        "So does a server whose handlers a framework makes, with one context and the callback",
        arguments: [HandlerMaker.configuration, .reloader], Version.allCases)
    func aServerOfAFrameworkFollowsItsTrustFile(maker: HandlerMaker, version: Version) async throws {
        try await aServerFollows(.openssl, version, by: maker)
    }

    private func aServerFollows(_ program: ClientProgram, _ version: Version, by maker: HandlerMaker) async throws {
        let rollover = try Rollover()
        let servers = try Rollover.Age.allCases.map { ($0, try rollover.authority($0).issue("server")) }
        let host = try await RotatingHost(presenting: servers[0].1, trusting: [rollover.old.root])
        let clients = try Rollover.Age.allCases.map { ($0, try rollover.authority($0).issue("client-\($0)")) }
        try await withEventLoops { group in
            try await host.serve(on: group, asHTTP: program.isHTTP, by: maker) { port in
                for (step, (roots, permitted)) in rollover.steps.enumerated() {
                    try await host.trust(roots)
                    for (own, server) in servers {
                        try await host.tls.update(to: server)
                        for (age, client) in clients {
                            func seen(trusting other: Rollover.Age) async throws -> [String] {
                                try await program.connect(
                                    as: client, trusting: rollover.authority(other), version: version, port: port)
                            }
                            let lines = try await seen(trusting: own)
                            #expect(
                                lines.contains(client.fingerprint) == permitted.contains(age),
                                "step \(step), server \(own), client \(age): \(lines)")
                            guard permitted.count == 2 else { continue }
                            let stranger = try await seen(trusting: own == .old ? .new : .old)
                            #expect(!stranger.contains(client.fingerprint), "step \(step), server \(own): \(stranger)")
                        }
                    }
                }
            }
        }
        #expect(host.refusals("untrusted") == 6)
    }

    @Test(
        "A client trusts the servers of the CAs in its file, and no others", arguments: Version.allCases,
        [HandlerMaker.certprov, .reloader])
    func aClientFollowsItsTrustFile(version: Version, maker: HandlerMaker) async throws {
        let rollover = try Rollover()
        let host = try await RotatingHost(presenting: try rollover.old.issue("client"), trusting: [rollover.old.root])
        try await withEventLoops { group in
            try await rollover.meetServers(host, "-rev", version: version) { port in
                let met = try await host.connect(port: port, on: group, greeting: "hello\n", by: maker)
                #expect(met.message == "olleh")
                return met.server
            }
        }
        #expect(host.refusals("untrusted", of: "server") == 6)
    }

    @Test("AsyncHTTPClient trusts the servers of the CAs in its file, and no others", arguments: Version.allCases)
    func anHTTPClientFollowsItsTrustFile(version: Version) async throws {
        // BoringSSL tries one of two anchors with the same name, unless key identifiers tell them apart.
        let rollover = try Rollover(hasNewName: true)
        let host = try await RotatingHost(presenting: try rollover.old.issue("client"), trusting: [rollover.old.root])
        try await withEventLoops { group in
            var configuration = HTTPClient.Configuration()
            // A server that is refused is not tried again until the time is up.
            configuration.connectionPool.retryConnectionEstablishment = false
            try await withHTTPClient(configuration, on: group) { client in
                try await rollover.meetServers(host, "-www", version: version) { port in
                    var request = HTTPClientRequest(url: "https://localhost:\(port)/")
                    request.tlsConfiguration = try host.tls.clientConfiguration()
                    let response = try await client.execute(request, timeout: .seconds(600))
                    let body = String(buffer: try await response.body.collect(upTo: 1 << 20))
                    let name = try #require(host.tls.identity.provenance.alias)
                    #expect(body.contains(name), "\(body)")
                    return nil
                }
            }
        }
    }

    @Test("A server's identity and trust follow the identity, where its trust comes with it")
    func trustComesWithTheIdentity() async throws {
        let rollover = try Rollover()
        func identity(_ age: Rollover.Age) throws -> Identity {
            let authority = rollover.authority(age)
            let identity = try authority.issue("server")
            return try Identity(
                certificateChain: identity.certificateChain, key: identity.key, trust: TrustBundle([authority.root]),
                provenance: identity.provenance)
        }
        let credentials = RotatingCredentials(try TLSCredentials(identity(.old)))
        let log = TestLog()
        let tls = try await RotatingTLS(credentials, trusting: PeerTrust(anchors: .ofIdentity), logger: log.logger)
        let server = try tls.server()
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandler(server.makeHandler(for: channel))
                try channel.pipeline.syncOperations.addHandler(PeerNamer())
            } body: { port in
                for age in Rollover.Age.allCases {
                    try await credentials.update(to: try identity(age))
                    for other in Rollover.Age.allCases {
                        let client = try rollover.authority(other).issue("client")
                        let seen = try await OpenSSL.withFiles(of: client, authority: rollover.authority(age)) {
                            try await OpenSSL.client($0, version: .tls13, port: port)
                        }
                        #expect(seen.contains(client.fingerprint) == (other == age), "\(age), \(other): \(seen)")
                    }
                }
                // The last one stays.
                try await credentials.update(to: rollover.new.issue("server"))
                await tls.look()
                let client = try rollover.new.issue("client")
                let seen = try await OpenSSL.withFiles(of: client, authority: rollover.new) {
                    try await OpenSSL.client($0, version: .tls13, port: port)
                }
                #expect(seen.contains(client.fingerprint))
                #expect(
                    log.warnings.count == 1 && log.warnings[0].contains("No CA certificates come with the identity"))
            }
        }
        let bare = RotatingCredentials(try TLSCredentials(rollover.new.issue("server")))
        let error = await #expect(throws: ProviderError.self) {
            _ = try await RotatingTLS(bare, trusting: PeerTrust(anchors: .ofIdentity))
        }
        #expect(error?.code == .configurationInvalid)
    }

    // MARK: - Sessions

    @Test("A session of a removed CA's client is not resumed", arguments: Version.allCases)
    func aSessionDoesNotOutliveItsCA(version: Version) async throws {
        let rollover = try Rollover()
        let host = try await RotatingHost(presenting: try rollover.new.issue("server"), trusting: [rollover.old.root])
        let client = try rollover.old.issue("client")
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                try await OpenSSL.withFiles(of: client, authority: rollover.new) { options in
                    let session = host.directory["session.pem"]
                    // -ign_eof: the ticket comes after the server's first data.
                    let first = try await OpenSSL.client(
                        options + ["-sess_out", session, "-ign_eof"], version: version, port: port)
                    #expect(first.contains(client.fingerprint))
                    #expect(FileManager.default.fileExists(atPath: session))
                    let again = options + ["-sess_in", session, "-ign_eof"]
                    // A full handshake: nothing is lost for a client that may connect.
                    let resumed = try await OpenSSL.client(again, version: version, port: port)
                    #expect(resumed.contains(client.fingerprint))
                    try await host.trust([rollover.new.root])
                    let removed = try await OpenSSL.client(again, version: version, port: port)
                    #expect(!removed.contains(client.fingerprint), "\(removed)")
                    #expect(removed.contains { $0.contains("alert certificate unknown") }, "\(removed)")
                }
            }
        }
        #expect(host.refusals("untrusted") == 1)
    }

    @Test("A server whose handlers a framework makes shows by the missing chain that a client has resumed a session")
    func aResumedSessionHasNoChain() async throws {
        let rollover = try Rollover()
        let host = try await RotatingHost(presenting: try rollover.new.issue("server"), trusting: [rollover.old.root])
        let client = try rollover.old.issue("client")
        let server = try host.tls.server()
        let context = try NIOSSLContext(configuration: server.makeConfiguration())
        let peers = Mutex<[TLSPeer?]>([])
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                let sync = channel.pipeline.syncOperations
                try sync.addHandler(
                    NIOSSLServerHandler(
                        context: context, customVerificationCallbackWithMetadata: server.verificationCallback))
                try sync.addHandler(PeerNamer { peer in peers.withLock { $0.append(peer) } })
            } body: { port in
                try await OpenSSL.withFiles(of: client, authority: rollover.new) { options in
                    let session = host.directory["session.pem"]
                    for option in ["-sess_out", "-sess_in"] {
                        _ = try await OpenSSL.client(
                            options + [option, session, "-ign_eof"], version: .tls13, port: port)
                        try await host.trust([rollover.new.root])
                    }
                }
            }
        }
        #expect(peers.withLock { $0.map { $0?.chain.count } } == [client.certificateChain.count + 1, 1])
        #expect(peers.withLock { $0.allSatisfy { $0?.certificate == client.certificate } })
    }

    // MARK: - Anchors

    @Test("An intermediate is a trust anchor, for clients and servers")
    func anIntermediateIsAnAnchor() async throws {
        let authority = try authority.get()
        let server = try await RotatingHost(
            presenting: try authority.issue("server"), trusting: [authority.intermediate])
        let client = try await RotatingHost(
            presenting: try authority.issue("client"), trusting: [authority.intermediate])
        try await withEventLoops { group in
            try await server.serve(on: group) { port in
                let met = try await client.connect(port: port, on: group)
                #expect(met.message == client.tls.identity.fingerprint)
            }
            // Another client verifies the same server.
            try await server.serve(on: group) { port in
                var probe = try makeProbe(
                    port: port, presenting: client.tls.identity,
                    trusting: .certificates([authority.intermediate]))
                probe.settlingTime = .zero
                #expect(try await probe.run(on: group).serverCertificate.subject.contains("CN=server"))
            }
        }
        let error = #expect(throws: ProviderError.self) { _ = try client.tls.clientConfiguration() }
        #expect(error?.message.contains("no self-signed certificate") == true)
    }

    @Test("A CA certificate that does not permit TLS clients refuses them")
    func theUsageOfAnAuthorityCounts() async throws {
        let servers = try TestAuthority("Servers", for: ExtendedKeyUsage([.serverAuth]))
        let server = try await RotatingHost(presenting: try servers.issue("server"), trusting: [servers.root])
        let client = try await RotatingHost(presenting: try servers.issue("client"), trusting: [servers.root])
        try await withEventLoops { group in
            try await server.serve(on: group) { port in
                await #expect(throws: (any Error).self) { try await client.connect(port: port, on: group) }
            }
        }
        #expect(server.log.text.contains("does not permit TLS client authentication, by its extended key usage"))
        #expect(server.refusals("untrusted") == 1)
    }

    @Test("The files of a directory are trust anchors; hidden ones are not")
    func aDirectoryHasAnchors() async throws {
        let rollover = try Rollover()
        let directory = try TemporaryDirectory()
        try directory.write(rollover.old.root.pemRepresentation.utf8, to: "old.pem")
        try directory.write("not for readers".utf8, to: ".hidden")
        let credentials = RotatingCredentials(try TLSCredentials(rollover.old.issue("server")))
        let log = TestLog()
        let tls = try await RotatingTLS(
            credentials, trusting: PeerTrust(anchors: .pemFile(directory.path)), logger: log.logger)
        func roots() throws -> NIOSSLTrustRoots? { try tls.clientConfiguration().trustRoots }
        #expect(try roots() == .certificates(TrustAnchors.converted([rollover.old.root])))
        try directory.write(rollover.new.root.pemRepresentation.utf8, to: "new.pem")
        for _ in 0..<2 { await tls.look() }
        #expect(try roots() == .certificates(TrustAnchors.converted([rollover.new.root, rollover.old.root])))
        try directory.write("".utf8, to: "empty.pem")
        for _ in 0..<4 { await tls.look() }
        #expect(try roots() == .certificates(TrustAnchors.converted([rollover.new.root, rollover.old.root])))
        #expect(log.warnings.count == 1 && log.warnings[0].contains(directory["empty.pem"]))
        for name in ["empty.pem", "old.pem"] { try FileManager.default.removeItem(atPath: directory[name]) }
        for _ in 0..<2 { await tls.look() }
        #expect(try roots() == .certificates(TrustAnchors.converted([rollover.new.root])))
    }

    @Test("A file that cannot be used leaves the last one in force, is logged once, and shows in the metric")
    func aDamagedFileChangesNothing() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let client = try await RotatingHost(presenting: try authority.issue("client"), trusting: [authority.root])
        #expect(!host.isStale)
        let whole = try host.directory.read("ca.pem")
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                for (number, bytes) in [Array(whole.dropLast(60)), [], Array("nothing".utf8)].enumerated() {
                    try host.directory.write(bytes, to: "ca.pem")
                    for _ in 0..<3 { await host.look() }
                    #expect(host.isStale)
                    #expect(host.log.warnings.count == min(number, 1) + 1, "\(host.log.text)")
                    _ = try await client.connect(port: port, on: group)
                }
                try FileManager.default.removeItem(atPath: host.directory["ca.pem"])
                await host.look()
                #expect(host.isStale && host.log.warnings.last?.contains("No such file") == true)
                try host.directory.write(whole, to: "ca.pem")
                await host.look()
                #expect(!host.isStale)
                _ = try await client.connect(port: port, on: group)
            }
        }
    }

    @Test("A file that cannot be used is read ever less often, and at once when it changes")
    func aDamagedFileIsReadLessOften() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        try host.directory.write("nothing".utf8, to: "ca.pem")
        let opened = try OpenCount(of: host.directory["ca.pem"])
        for _ in 0..<40 { await host.tls.look() }
        #expect(host.isStale && (2...8).contains(opened.count), "\(opened.count)")
        try host.directory.write(authority.root.pemRepresentation.utf8, to: "ca.pem")
        await host.look()
        #expect(!host.isStale)
    }

    @Test("A file that is being written is read when it is whole")
    func aFileIsReadWhenItIsStill() async throws {
        let rollover = try Rollover()
        let host = try await RotatingHost(presenting: try rollover.old.issue("client"), trusting: [rollover.old.root])
        let before = try host.tls.clientConfiguration().trustRoots
        try host.directory.write(rollover.new.root.pemRepresentation.utf8, to: "ca.pem")
        await host.tls.look()
        #expect(try host.tls.clientConfiguration().trustRoots == before)
        try host.directory.write(
            (rollover.new.root.pemRepresentation + rollover.old.root.pemRepresentation).utf8, to: "ca.pem")
        await host.tls.look()
        #expect(try host.tls.clientConfiguration().trustRoots == before)
        await host.tls.look()
        #expect(
            try host.tls.clientConfiguration().trustRoots
                == .certificates(TrustAnchors.converted([rollover.new.root, rollover.old.root])))
    }

    @Test("A file that is another at each look is read at the third one: a CA that was removed does not stay")
    func aFileThatIsNeverStill() async throws {
        let rollover = try Rollover()
        let host = try await RotatingHost(presenting: try rollover.old.issue("client"), trusting: [rollover.old.root])
        func write(_ authority: TestAuthority, _ number: Int) throws {
            let text = authority.root.pemRepresentation + String(repeating: "#", count: number) + "\n"
            try host.directory.write(text.utf8, to: "ca.pem")
        }
        for number in 1...3 {
            #expect(
                try host.tls.clientConfiguration().trustRoots
                    == .certificates(TrustAnchors.converted([rollover.old.root])))
            try write(rollover.new, number)
            await host.tls.look()
        }
        #expect(
            try host.tls.clientConfiguration().trustRoots == .certificates(TrustAnchors.converted([rollover.new.root])))
        for number in 4...6 {
            try write(rollover.old, number)
            await host.tls.look()
        }
        #expect(
            try host.tls.clientConfiguration().trustRoots == .certificates(TrustAnchors.converted([rollover.old.root])))
    }

    @Test("A server does not start with the system trust store, and does not change to it")
    func aServerRefusesTheSystemStore() async throws {
        let authority = try authority.get()
        let credentials = RotatingCredentials(try TLSCredentials(authority.issue("server")))
        let tls = try await RotatingTLS(credentials, trusting: PeerTrust(anchors: .system))
        _ = try tls.client()
        #expect(throws: ProviderError.self) { _ = try tls.server() }
        try await tls.update(trusting: PeerTrust(anchors: authority.anchors))
        _ = try tls.server()
        await #expect(throws: ProviderError.self) {
            try await tls.update(trusting: PeerTrust(anchors: .system))
        }
        try await tls.update(trusting: PeerTrust(anchors: .systemAdmittingAnyClient))
    }

    // MARK: - Peers

    @Test("A handler learns the peer as it was verified")
    func theChannelKnowsItsPeer() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let identity = try authority.issue("client", dnsNames: ["client.example"])
        let client = try await RotatingHost(presenting: identity, trusting: [authority.root])
        let server = try host.tls.server()
        try await withEventLoops { group in
            let met = group.any().makePromise(of: TLSPeer?.self)
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandler(server.makeHandler(for: channel))
                try channel.pipeline.syncOperations.addHandler(PeerNamer { met.succeed($0) })
            } body: { port in
                _ = try await client.connect(port: port, on: group)
            }
            let peer = try await met.futureResult.get()
            #expect(peer?.chain == identity.certificateChain + [authority.root])
            #expect(peer?.names == [.dns("client.example")] && peer?.commonNames == ["client"])
            let validated = try (identity.certificateChain + [authority.root]).map {
                try Certificate(pemEncoded: $0.pemRepresentation)
            }
            #expect(try TLSPeer(X509.ValidatedCertificateChain(uncheckedCertificateChain: validated)) == peer)
            #expect(peer?.description.hasSuffix("(dns:client.example)") == true)
        }
    }

    @Test(
        "A peer that is not admitted gets an alert, one line in the log, and is counted",
        arguments: HandlerMaker.allCases)
    func aPeerThatIsNotAdmitted(maker: HandlerMaker) async throws {
        let authority = try authority.get()
        let policy = try PeerPolicy(parsing: "dns:*.clients.example, cn:backup")
        let host = try await RotatingHost(
            presenting: try authority.issue("server"), trusting: [authority.root], peers: policy)
        try await withEventLoops { group in
            try await host.serve(on: group, by: maker) { port in
                for (name, dns, isAdmitted) in [
                    ("web", "web.clients.example", true), ("backup", "else.example", true),
                    ("web", "clients.example", false),
                ] {
                    let client = try authority.issue(name, dnsNames: [dns])
                    for _ in 0..<2 {
                        let seen = try await OpenSSL.withFiles(of: client, authority: authority) {
                            try await OpenSSL.client($0, version: .tls13, port: port)
                        }
                        #expect(seen.contains(client.fingerprint) == isAdmitted, "\(name) \(dns): \(seen)")
                        #expect(seen.contains { $0.contains("alert certificate unknown") } == !isAdmitted, "\(seen)")
                    }
                }
            }
        }
        #expect(host.refusals("not_admitted") == 2)
        let lines = host.log.lines.filter { $0.message == "client refused" }
        #expect(lines.count == 1)
        #expect(lines.first?.text.contains("dns:clients.example") == true)
        // A callback does not know the connection.
        #expect(lines.first?.text.contains("127.0.0.1") == (maker == .certprov))
    }

    @Test(
        "A chain that is larger than the bound is refused in the handshake, logged and counted",
        arguments: Version.allCases)
    func aLargeChain(version: Version) async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let identity = try authority.issue("client")
        let long = try TestAuthority.leaf("filling", dnsNames: [String(repeating: "a.", count: 3000) + "example"])
        let short = try TestAuthority.leaf("x")
        func chain(_ size: Int, of filling: X509Certificate) throws -> Identity {
            var chain = identity.certificateChain
            while chain.reduce(0, { $0 + $1.derRepresentation.count }) + filling.derRepresentation.count <= size {
                chain.append(filling)
            }
            return try Identity(certificateChain: chain, key: identity.key, provenance: identity.provenance)
        }
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                func isAdmitted(_ client: Identity) async throws -> Bool {
                    try await OpenSSL.withFiles(of: client, authority: authority) {
                        try await OpenSSL.client($0, version: version, port: port)
                    }.contains(client.fingerprint)
                }
                for filling in [long, short] {
                    let client = try chain(30_000, of: filling)
                    #expect(try await isAdmitted(client), "\(filling.subject)")
                }
                #expect(host.refusals("too_large") == 0)
                for size in [40_000, 60_000, 90_000] {
                    let client = try chain(size, of: long)
                    #expect(try await !isAdmitted(client), "\(size)")
                }
            }
        }
        #expect(host.refusals("too_large") == 3)
        let lines = host.log.lines.filter { $0.message == "client refused" }
        #expect(lines.count == 1 && lines.first?.text.contains("a server takes at most 30000") == true)
    }

    @Test("A client admits the servers that it is to")
    func aClientHasAPolicyToo() async throws {
        let authority = try authority.get()
        let server = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let client = try await RotatingHost(
            presenting: try authority.issue("client"), trusting: [authority.root],
            peers: try PeerPolicy(parsing: "cn:other"))
        try await withEventLoops { group in
            try await server.serve(on: group) { port in
                await #expect(throws: (any Error).self) { try await client.connect(port: port, on: group) }
                _ = try await client.connect(port: port, on: group, admitting: .everyVerifiedPeer)
                await #expect(throws: (any Error).self) {
                    try await client.connect(to: "elsewhere", port: port, on: group, admitting: .everyVerifiedPeer)
                }
            }
        }
        #expect(client.refusals("not_admitted", of: "server") == 1 && client.refusals("name", of: "server") == 1)
    }

    @Test(
        "A pinned key authenticates OpenSSL's clients and servers, beside a CA or in its place",
        arguments: [false, true])
    func pinnedPeers(isPinOnly: Bool) async throws {
        let authority = try authority.get()
        let issuer = isPinOnly ? try TestAuthority("Unknown") : authority
        let (pinned, other) = (try issuer.issue("pinned"), try issuer.issue("other"))
        var peers = try PeerPolicy(parsing: "dns:localhost")
        peers.pins = [try CertificatePin(publicKey: CertificatePin.publicKeyText(of: pinned.certificate))]
        peers.isPinOnly = isPinOnly
        let host = try await RotatingHost(
            presenting: try authority.issue("host"), trusting: [authority.root], peers: peers)
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                for client in [pinned, other] {
                    let seen = try await OpenSSL.withFiles(of: client, authority: authority) {
                        try await OpenSSL.client($0, version: .tls13, port: port)
                    }
                    #expect(seen.contains(client.fingerprint) == (client.certificate == pinned.certificate), "\(seen)")
                }
            }
            for server in [pinned, other] {
                let met = try await OpenSSL.withFiles(of: server, authority: authority) { options in
                    try await OpenSSL.server(options, version: .tls13) { port in
                        try? await host.connect(port: port, on: group, greeting: "hello\n").message
                    }
                }
                #expect(met == (server.certificate == pinned.certificate ? "olleh" : nil))
            }
        }
        #expect(host.refusals("not_pinned") == 1 && host.refusals("not_pinned", of: "server") == 1)
    }

    @Test("Pins in place of a CA need no trust anchors, and no lists or other verification beside them")
    func pinsAlone() async throws {
        let identity = try authority.get().issue("server")
        var peers = PeerPolicy.everyVerifiedPeer
        peers.pins = [CertificatePin(identity.certificate)]
        let credentials = RotatingCredentials(try TLSCredentials(identity))
        let lists = RevocationLists(path: "/nowhere/crl.pem")
        peers.isPinOnly = true
        let tls = try await RotatingTLS(credentials, trusting: PeerTrust(anchors: .system, peers: peers))
        _ = try tls.server()
        let withLists = PeerTrust(anchors: .system, revocationLists: lists, peers: peers)
        let conflict = await #expect(throws: ProviderError.self) { try await tls.update(trusting: withLists) }
        #expect(conflict?.message.contains("remove TrustAnchors.crl") == true)
        peers.isPinOnly = false
        await #expect(throws: ProviderError.self) {
            try await tls.update(trusting: PeerTrust(anchors: .system, peers: peers))
        }
        // SwiftNIO SSL would not look at them.
        #expect(throws: ProviderError.self) { _ = try tls.clientConfiguration() }
    }

    // MARK: - Configurations

    @Test("A program's settings hold, but for those of the verification")
    func settingsOfTheProgram() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let other = try TestAuthority("Other")
        let client = try await RotatingHost(presenting: try other.issue("client"), trusting: [authority.root])
        try await withEventLoops { group in
            try await host.serve(on: group) { configuration in
                configuration.maximumTLSVersion = .tlsv12
                configuration.certificateVerification = .none
                configuration.trustRoots = .default
            } _: { port in
                await #expect(throws: (any Error).self) { try await client.connect(port: port, on: group) }
                let known = try await RotatingHost(
                    presenting: try authority.issue("client"), trusting: [authority.root])
                #expect(try await known.connect(port: port, on: group).version == .tlsv12)
            }
        }
    }

    @Test("AsyncHTTPClient keeps its pool until the trust changes, and follows identity and trust by request")
    func asyncHTTPClientFollows() async throws {
        let rollover = try Rollover()
        let server = try await RotatingHost(presenting: try rollover.old.issue("server"), trusting: [rollover.old.root])
        let host = try await RotatingHost(presenting: try rollover.old.issue("client"), trusting: [rollover.old.root])
        #expect(try host.tls.clientConfiguration().bestEffortEquals(host.tls.clientConfiguration()))
        try await withEventLoops { group in
            try await server.serve(on: group, asHTTP: true) { port in
                var configuration = HTTPClient.Configuration()
                configuration.connectionPool.retryConnectionEstablishment = false
                try await withHTTPClient(configuration, on: group) { client in
                    func ask() async throws -> String {
                        var request = HTTPClientRequest(url: "https://localhost:\(port)/")
                        request.headers.add(name: "Connection", value: "close")
                        request.tlsConfiguration = try host.tls.clientConfiguration()
                        let response = try await client.execute(request, timeout: .seconds(600))
                        return String(buffer: try await response.body.collect(upTo: 1024))
                    }
                    #expect(try await ask() == host.tls.identity.fingerprint)
                    try await host.tls.update(to: rollover.old.issue("renewed"))
                    #expect(try await ask() == host.tls.identity.fingerprint)
                    try await server.tls.update(to: rollover.new.issue("server"))
                    await #expect(throws: (any Error).self) { try await ask() }
                    try await host.trust([rollover.new.root])
                    #expect(try await ask() == host.tls.identity.fingerprint)
                }
            }
        }
    }
}
