import AsyncHTTPClient
import CertificateProviding
import CertificateTLS
import IdentityStore
import Logging
import Logon
import NIOCore
import NIOHTTP1
import PKCS12FileProvider
import ProviderTransport
import Synchronization

/// Requests one after the other over a registered identity, as an application sends them: how long each takes, and how many
/// connections they need. In turns with AsyncHTTPClient, which has the identity and the connection's id, and looks at nothing else.
struct RequestBenchmark {
    let configuration: String
    let state: String
    let target: String
    let count: Int

    func run() async throws {
        let registry = try ProviderRegistry([.pkcs12])
        let configuration = try LogonConfiguration.load(path: configuration, registry: registry)
        let vault = try DataVault(
            applicationID: configuration.registration.applicationID ?? "", stateDirectory: state,
            policy: configuration.registration.passcodePolicy)
        let network = CountingNetwork()
        let manager = try LogonManager(
            configuration: configuration, registry: registry, vault: vault, transport: Transport(network: network)
        ) { id in
            ProviderEnvironment(storage: vault.storage(for: id), logger: Logger(label: "bench"), executor: .threads())
        }
        try await manager.register(NoUserInteraction())
        guard let identity = try await manager.registeredIdentity(), let trustAnchors = configuration.trustAnchors,
            let server = configuration.host, let port = configuration.port
        else { throw BenchmarkFailure.configuration }
        let tls = try await RotatingTLS(
            presenting: identity, trusting: PeerTrust(anchors: .pemFile(trustAnchors)))
        let client = HTTPClient(
            eventLoopGroupProvider: .shared(network.eventLoopGroup),
            configuration: HTTPClient.Configuration(tlsConfiguration: try tls.clientConfiguration()))
        let request = HTTPRequest(target: target)
        var clientRequest = HTTPClientRequest(url: "https://\(server):\(port)\(target)")
        clientRequest.headers.add(name: "X-SMP-APPCID", value: "\(try await manager.registeredConnection())")
        var times: [Double] = []
        var clientTimes: [Double] = []
        for _ in 0..<count {
            var start = ContinuousClock.now
            let response = try await manager.request(request)
            times.append(seconds(.now - start))
            guard response.status == 200 else { throw BenchmarkFailure.status(response.status) }
            start = .now
            let clientResponse = try await client.execute(clientRequest, timeout: .seconds(60))
            _ = try await clientResponse.body.collect(upTo: ServerSession.maximumBody)
            clientTimes.append(seconds(.now - start))
            guard clientResponse.status == .ok else { throw BenchmarkFailure.status(Int(clientResponse.status.code)) }
        }
        print("request-us", median(times) * 1e6)
        print("async-http-client-us", median(clientTimes) * 1e6)
        print("connections", network.connections)
        try await client.shutdown()
        await manager.shutdown()
    }
}

enum BenchmarkFailure: Error { case status(Int), configuration }

/// TCP, with a count of its connections.
private final class CountingNetwork: Network {
    private let tcp = TCPNetwork()
    private let count = Mutex(0)

    var connections: Int { count.withLock(\.self) }
    var eventLoopGroup: any EventLoopGroup { tcp.eventLoopGroup }

    func connect(
        to host: String, port: Int, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>
    ) -> EventLoopFuture<any Channel> {
        count.withLock { $0 += 1 }
        return tcp.connect(to: host, port: port, on: eventLoop, timeout: timeout, prepare: prepare)
    }
}
