import CertificateProviding
import CertificateTLS
import Glibc
import NIOCore
import NIOPosix
import NIOSSL

/// Mutual-TLS handshakes per second over loopback: client and server both with an `Identity`, and the same stack with
/// both given the PEM files. They take turns, so that whatever else the machine does meets all.
struct HandshakeBenchmark {
    let identity: Identity
    let key: String
    let chain: String
    let anchors: String

    private static let turns = 90
    private static let handshakesPerTurn = 80
    private static let concurrency = 16

    /// With an identity whose key is in memory.
    func run() async throws {
        // The same key, which now has to be asked for each signature as a token's would be.
        let atHome = try Identity(
            certificateChain: identity.certificateChain, key: HomeKey(inner: identity.key),
            provenance: identity.provenance)
        let tls = try await makeTLS(identity)
        let tlsAtHome = try await makeTLS(atHome)
        try await compare(
            [
                ("pem", try inMemory(.server, tls), try inMemory(.client, tls)),
                ("identity", try verifiedByBoringSSL(tls), try tls.clientConfiguration()),
                ("home-key", try verifiedByBoringSSL(tlsAtHome), try tlsAtHome.clientConfiguration()),
            ], verifying: ("verified", tls))
    }

    /// With an identity whose key is in a token or a plugin, on the client's side; the server has the same key in memory.
    func run(keyIn place: String) async throws {
        let tls = try await makeTLS(identity)
        let server = try inMemory(.server, tls)
        try await compare([
            ("pem", server, try inMemory(.client, tls)), (place, server, try tls.clientConfiguration()),
        ])
    }

    /// So many at once with the identity's key on the client's side. Prints the seconds.
    func run(atOnce count: Int) async throws {
        // Two sockets for each.
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = max(limit.rlim_cur, min(limit.rlim_max, rlim_t(4 * count)))
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        let tls = try await makeTLS(identity)
        let (servers, clients) = (
            MultiThreadedEventLoopGroup(numberOfThreads: 1), MultiThreadedEventLoopGroup(numberOfThreads: 1)
        )
        let stack = try await Stack(
            server: try inMemory(.server, tls), on: servers, client: try tls.clientConfiguration(), on: clients)
        let time = try await ContinuousClock().measure { try await stack.handshakes(count, concurrency: count) }
        print("seconds-at-once", seconds(time))
        try await stack.close()
        try await servers.shutdownGracefully()
        try await clients.shutdownGracefully()
    }

    /// Measures each by itself, in turns, and prints its rate, the ratio to the first, and the median time of one.
    ///
    /// - Parameter own: One more, with handlers that verify the peers themselves.
    private func compare(
        _ subjects: [(name: String, server: TLSConfiguration, client: TLSConfiguration)],
        verifying own: (name: String, tls: RotatingTLS)? = nil
    ) async throws {
        // One loop for the servers and one for the clients: which of two a connection falls on would be luck.
        let (servers, clients) = (
            MultiThreadedEventLoopGroup(numberOfThreads: 1), MultiThreadedEventLoopGroup(numberOfThreads: 1)
        )
        var stacks = try await subjects.asyncMap { name, server, client in
            (name, try await Stack(server: server, on: servers, client: client, on: clients))
        }
        if let own {
            let (server, client) = (try own.tls.server(), try own.tls.client())
            stacks.append(
                (
                    own.name,
                    try await Stack(
                        on: servers, and: clients, server: { try server.makeHandler(for: $0) },
                        client: { try client.makeHandler(for: "localhost") })
                ))
        }
        var rates: [String: [Double]] = [:]
        var times: [String: [Double]] = [:]
        for turn in 0..<(Self.turns + 1) {
            // Whoever follows whom must not matter.
            for (name, stack) in stacks.shuffled() {
                let time = try await ContinuousClock().measure {
                    try await stack.handshakes(Self.handshakesPerTurn, concurrency: Self.concurrency)
                }
                // The first turn warms up.
                if turn > 0 { rates[name, default: []].append(Double(Self.handshakesPerTurn) / seconds(time)) }
            }
            for (name, stack) in stacks.shuffled() {
                let time = try await ContinuousClock().measure { try await stack.handshakes(1, concurrency: 1) }
                if turn > 0 { times[name, default: []].append(seconds(time) * 1e6) }
            }
        }
        for (name, stack) in stacks {
            let own = rates[name] ?? []
            print("handshakes-\(name)", median(own))
            // Turn by turn, since the machine is faster at some times than at others.
            let turns = zip(own, rates[stacks[0].0] ?? []).map { $0 / $1 }.sorted()
            print("ratio-\(name)", median(turns))
            // The middle half.
            print("ratio-\(name)-low", turns[turns.count / 4])
            print("ratio-\(name)-high", turns[turns.count * 3 / 4])
            print("handshake-us-\(name)", median(times[name] ?? []))
            try await stack.close()
        }
        try await servers.shutdownGracefully()
        try await clients.shutdownGracefully()
    }

    private enum Side { case client, server }

    private func makeTLS(_ identity: Identity) async throws -> RotatingTLS {
        try await RotatingTLS(presenting: identity, trusting: PeerTrust(anchors: .pemFile(anchors)))
    }

    /// Without the callback.
    private func verifiedByBoringSSL(_ tls: RotatingTLS) throws -> TLSConfiguration {
        try tls.server().makeConfiguration()
    }

    /// What the identity's configuration would be, but with key and chain as the TLS library reads them itself.
    private func inMemory(_ side: Side, _ tls: RotatingTLS) throws -> TLSConfiguration {
        try withPEMFiles(side == .server ? verifiedByBoringSSL(tls) : tls.clientConfiguration())
    }

    /// The same configuration in everything but where the chain and the key come from.
    private func withPEMFiles(_ base: TLSConfiguration) throws -> TLSConfiguration {
        var configuration = base
        configuration.certificateChain = try NIOSSLCertificate.fromPEMFile(chain).map { .certificate($0) }
        configuration.privateKey = .privateKey(try NIOSSLPrivateKey(file: key, format: .pem))
        configuration.sslContextCallback = nil
        return configuration
    }
}

/// Hides that a key can be exported.
private struct HomeKey: IdentityKey {
    let inner: any IdentityKey
    var publicKey: PublicKeyInfo { inner.publicKey }
    var signatureSchemes: [SignatureScheme] { inner.signatureSchemes }
    var location: KeyLocation { .token }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        try await inner.signature(for: message, using: scheme)
    }
}

extension Array {
    fileprivate func asyncMap<T>(_ transform: (Element) async throws -> T) async rethrows -> [T] {
        var result: [T] = []
        for element in self { result.append(try await transform(element)) }
        return result
    }
}
