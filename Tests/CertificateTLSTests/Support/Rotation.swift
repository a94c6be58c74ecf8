import CertificateProviding
import CoreMetrics
import Foundation
import MetricsTestKit
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport

@testable import CertificateTLS

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
            RotatingTLSCredentials(try TLSCredentials(identity)),
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
        metrics.counters.compactMap { $0 as? TestCounter }
            .filter {
                $0.label == "certprov_peers_refused_total"
                    && $0.dimensions.map(\.1) == [peer, reason]
            }.reduce(0) { $0 + $1.totalValue }
    }

    var isStale: Bool { (try? metrics.expectGauge("certprov_trust_stale").lastValue) == 1 }

    /// Runs `body` with the port of a server that names its peers.
    func serve<T>(
        on group: MultiThreadedEventLoopGroup,
        _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void = { _ in }, _ body: (Int) async throws -> T
    ) async throws -> T {
        let server = try tls.server(configure)
        return try await withServer(on: group) { channel in
            try channel.pipeline.syncOperations.addHandler(server.makeHandler(for: channel))
            try channel.pipeline.syncOperations.addHandler(PeerNamer())
        } body: {
            try await body($0)
        }
    }

    /// Connects as a client.
    func connect(
        to host: String = "localhost", port: Int, on group: MultiThreadedEventLoopGroup, greeting: String? = nil,
        admitting peers: PeerPolicy? = nil,
        _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void = { _ in }
    ) async throws -> Encounter {
        let client = try tls.client(configure)
        let promise = group.any().makePromise(of: Encounter.self)
        let connecting = ClientBootstrap(group: group)
            .connectTimeout(.minutes(10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    try sync.addHandler(client.makeHandler(for: host, admitting: peers))
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

/// Two CAs, of which one takes over from the other. Both have the same names.
struct Rollover {
    enum Age: String, CaseIterable, Sendable { case old, new }

    let old: TestAuthority
    let new: TestAuthority

    init() throws { (old, new) = (try TestAuthority(), try TestAuthority()) }

    func authority(_ age: Age) -> TestAuthority { age == .old ? old : new }

    /// The contents of the file, one after the other, and which CAs' peers it permits.
    var steps: [([X509Certificate], Set<Age>)] {
        [
            ([old.root], [.old]), ([old.root, new.root], [.old, .new]), ([new.root], [.new]),
            ([new.root, old.root], [.old, .new]), ([old.root], [.old]),
        ]
    }
}
