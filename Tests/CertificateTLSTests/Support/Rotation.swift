import CertificateProviding
import CoreMetrics
import Foundation
import MetricsTestKit
import NIOCertificateReloading
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

/// The maker of the handlers of a connection.
enum HandlerMaker: CaseIterable, Sendable {
    /// ``TLSServer`` and ``TLSClient``.
    case certprov
    /// Another, with one context of ``TLSServer/makeConfiguration()``, and the callback.
    case configuration
    /// Another, with one context of its own that has the reloader, and the callback: so does gRPC Swift.
    case reloader
}

/// A host whose trust is a file, and changes.
struct RotatingHost {
    let directory: TemporaryDirectory
    let tls: RotatingTLS
    let log = TestLog()
    let metrics = TestMetrics()

    init(
        presenting identity: Identity, trusting authorities: [X509Certificate], peers: PeerPolicy = .everyVerifiedPeer,
        lists: ((TemporaryDirectory) throws -> RevocationLists)? = nil
    ) async throws {
        directory = try TemporaryDirectory()
        try Self.write(authorities, to: directory)
        tls = try await RotatingTLS(
            RotatingCredentials(try TLSCredentials(identity)),
            trusting: PeerTrust(
                anchors: .pemFile(directory["ca.pem"]), revocationLists: try lists?(directory), peers: peers),
            logger: log.logger, metrics: metrics)
    }

    private static func write(_ authorities: [X509Certificate], to directory: TemporaryDirectory) throws {
        try directory.write(authorities.map(\.pemRepresentation).joined().utf8, to: "ca.pem.new")
        guard rename(directory["ca.pem.new"], directory["ca.pem"]) == 0 else { throw CancellationError() }
    }

    /// Replaces the file, and looks twice.
    func trust(_ authorities: [X509Certificate]) async throws {
        try Self.write(authorities, to: directory)
        await look()
    }

    func look() async { for _ in 0..<2 { await tls.look() } }

    func refusals(_ reason: String, of peer: String = "client") -> Int64 {
        metrics.counters
            .filter {
                $0.label == "certprov_peers_refused_total"
                    && $0.dimensions.map(\.1) == [peer, reason]
            }.reduce(0) { $0 + $1.totalValue }
    }

    var isStale: Bool { (try? metrics.expectGauge("certprov_trust_stale").lastValue) == 1 }

    /// Runs `body` with the port of a server that names its peers.
    ///
    /// - Parameter isHTTP: Whether it names them in answers to requests, or at once.
    func serve<T>(
        on group: MultiThreadedEventLoopGroup, asHTTP isHTTP: Bool = false, by maker: HandlerMaker = .certprov,
        _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void = { _ in }, _ body: (Int) async throws -> T
    ) async throws -> T {
        let server = try tls.server(configure)
        let context = try NIOSSLContext(
            configuration: maker == .reloader
                ? .makeServerConfigurationWithMTLS(certificateReloader: tls, trustRoots: .certificates([]))
                : server.makeConfiguration())
        return try await withServer(on: group) { channel in
            let sync = channel.pipeline.syncOperations
            try sync.addHandler(
                maker == .certprov
                    ? server.makeHandler(for: channel)
                    : NIOSSLServerHandler(
                        context: context, customVerificationCallbackWithMetadata: server.verificationCallback))
            guard isHTTP else { return try sync.addHandler(PeerNamer()) }
            try sync.configureHTTPServerPipeline()
            try sync.addHandler(WhoAmI())
        } body: {
            try await body($0)
        }
    }

    /// Connects as a client.
    func connect(
        to host: String = "localhost", port: Int, on group: MultiThreadedEventLoopGroup, greeting: String? = nil,
        admitting peers: PeerPolicy? = nil, by maker: HandlerMaker = .certprov
    ) async throws -> Encounter {
        let client = try tls.client()
        let context = try NIOSSLContext(configuration: .makeClientConfiguration(certificateReloader: tls))
        let promise = group.any().makePromise(of: Encounter.self)
        let connecting = ClientBootstrap(group: group)
            .connectTimeout(.minutes(10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    try sync.addHandler(
                        maker == .certprov
                            ? client.makeHandler(for: host, admitting: peers)
                            : NIOSSLClientHandler(
                                context: context, serverHostname: host,
                                customVerificationCallbackWithMetadata: client.verificationCallback(
                                    for: host, admitting: peers)))
                    try sync.addHandler(EncounterHandler(promise, greeting: greeting))
                }
            }
            .connect(host: "127.0.0.1", port: port)
        connecting.whenFailure { promise.fail($0) }
        let encounter = try await promise.futureResult.get()
        try? await connecting.get().close()
        return encounter
    }
}

/// Two CAs, of which one takes over from the other.
struct Rollover {
    enum Age: String, CaseIterable, Sendable { case old, new }

    let old: TestAuthority
    let new: TestAuthority

    /// - Parameter hasNewName: Whether the new CA has another name. Theirs have no key identifiers.
    init(hasNewName: Bool = false) throws {
        (old, new) = (try TestAuthority(), try hasNewName ? TestAuthority("New") : TestAuthority())
    }

    func authority(_ age: Age) -> TestAuthority { age == .old ? old : new }

    /// The contents of the file, one after the other, and which CAs' peers it permits.
    var steps: [([X509Certificate], Set<Age>)] {
        [
            ([old.root], [.old]), ([old.root, new.root], [.old, .new]), ([new.root], [.new]),
            ([new.root, old.root], [.old, .new]), ([old.root], [.old]),
        ]
    }

    /// Has a client whose trust goes through ``steps`` meet `openssl s_server` with an identity of each CA. The client's own
    /// identity is of each CA too, and the server trusts that.
    ///
    /// - Parameters:
    ///   - mode: What the server does.
    ///   - meet: Connects to a port, and returns the fingerprint of the server, if it has it.
    func meetServers(
        _ client: RotatingHost, _ mode: String, version: Version, _ meet: (Int) async throws -> String?
    ) async throws {
        for own in Age.allCases {
            try await client.tls.update(to: authority(own).issue("client-\(own)"))
            for age in Age.allCases {
                let server = try authority(age).issue("server-\(age)")
                try await OpenSSL.withFiles(of: server, authority: authority(own)) { options in
                    for (step, (roots, permitted)) in steps.enumerated() {
                        try await client.trust(roots)
                        // One for each connection: its output is not read, and would hold it up.
                        try await OpenSSL.server(options, version: version, mode: mode) { port in
                            do {
                                let met = try await meet(port)
                                #expect(met == nil || met == server.fingerprint)
                                #expect(permitted.contains(age), "step \(step), client \(own), server \(age)")
                            } catch {
                                #expect(
                                    !permitted.contains(age), "step \(step), client \(own), server \(age): \(error)")
                            }
                        }
                    }
                }
            }
        }
    }
}
