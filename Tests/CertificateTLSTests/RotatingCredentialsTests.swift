import AsyncHTTPClient
import CertificateProviding
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(60))) struct RotatingCredentialsTests {
    /// How often the identity changes while handshakes go on.
    static let changes = TestLength.rounds(30, soak: 100)

    /// Identities of all kinds; some of the keys stay in their key store.
    static func succession() throws -> [Identity] {
        let authority = try authority.get()
        let rsa = try Pair.of(.rsa2048).server
        return try (0...changes).map { number in
            switch number % 6 {
            case 0: try authority.issue("\(number)", kind: .p256).keptAtHome()
            case 1: try authority.issue("\(number)", kind: .ed25519)
            case 2: try authority.issue("\(number)", kind: .p384)
            case 3: rsa
            case 4: try authority.issue("\(number)", kind: .ed25519).keptAtHome()
            default: try authority.issue("\(number)", kind: .p521)
            }
        }
    }

    /// Changes the identity again and again while three others keep meeting. After every change, the next connection
    /// shows the new identity; where a pool has connections in store, sooner or later.
    private func rotate(
        _ credentials: RotatingCredentials, through identities: [Identity], pooling: Bool = false,
        meeting meet: @escaping @Sendable () async throws -> String
    ) async throws {
        let issued = Set(identities.map(\.fingerprint))
        let rotation = Rotation()
        let met = try await withThrowingTaskGroup(of: Int.self) { tasks in
            // Before the group waits for its tasks, also when an update throws.
            defer { rotation.isOver.store(true, ordering: .relaxed) }
            for _ in 0..<3 {
                tasks.addTask {
                    var count = 0
                    while !rotation.isOver.load(ordering: .relaxed) {
                        let presented = try await meet()
                        #expect(issued.contains(presented))
                        count += 1
                    }
                    return count
                }
            }
            for identity in identities.dropFirst() {
                try await credentials.update(to: identity)
                let presented = try await meet()
                #expect(pooling ? issued.contains(presented) : presented == identity.fingerprint)
            }
            rotation.isOver.store(true, ordering: .relaxed)
            return try await tasks.reduce(0, +)
        }
        #expect(met > 0)
        let last = identities.last?.fingerprint
        if pooling {
            // As many as the pool may have in store, and more.
            var presented = try await meet()
            for _ in 0..<100 where presented != last { presented = try await meet() }
            #expect(presented == last)
        }
        #expect(credentials.current.identity.fingerprint == last)
    }

    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: Version.allCases)
    func aServerChangesItsIdentity(version: Version) async throws {
        let authority = try authority.get()
        let identities = try Self.succession()
        let credentials = RotatingCredentials(try TLSCredentials(identities[0]))
        let client = try authority.issue("client")
        let accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: credentials, demandingClientCertificatesFrom: authority.anchors)
        let connecting = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(client), trusting: authority.anchors)
        let context = try NIOSSLContext(configuration: connecting.only(version))
        try await withEventLoops { group in
            try await withServer(accepting, on: group) { port in
                try await rotate(credentials, through: identities) {
                    let encounter = try await connect(context, port: port, on: group)
                    #expect(encounter.message == client.fingerprint)
                    return encounter.server
                }
            }
        }
    }

    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: Version.allCases)
    func aClientChangesItsIdentity(version: Version) async throws {
        let authority = try authority.get()
        let identities = try Self.succession()
        let credentials = RotatingCredentials(try TLSCredentials(identities[0]))
        let accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("server")), demandingClientCertificatesFrom: authority.anchors)
        let connecting = try TLSConfiguration.makeClientConfiguration(
            presenting: credentials, trusting: authority.anchors)
        let context = try NIOSSLContext(configuration: connecting.only(version))
        try await withEventLoops { group in
            try await withServer(accepting, on: group) { port in
                try await rotate(credentials, through: identities) {
                    try await connect(context, port: port, on: group).message
                }
            }
        }
    }

    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func anHTTPClientChangesItsIdentity() async throws {
        let authority = try authority.get()
        let identities = try Self.succession()
        let credentials = RotatingCredentials(try TLSCredentials(identities[0]))
        var configuration = try HTTPClient.Configuration.mutualTLS(
            presenting: credentials, trusting: authority.anchors)
        // No connection serves twice. One that was made for a request which another connection then took still waits in
        // the pool, with the identity of its time.
        configuration.maximumUsesPerConnection = 1
        try await withHTTPServer { group, port in
            try await withHTTPClient(configuration, on: group) { client in
                try await rotate(credentials, through: identities, pooling: true) {
                    try await whoami(client, port: port)
                }
            }
        }
    }

    @Test func aPooledConnectionGoesOnWithItsIdentity() async throws {
        let authority = try authority.get()
        let (old, new) = (try authority.issue("old"), try authority.issue("new"))
        let credentials = RotatingCredentials(try TLSCredentials(old))
        let configuration = try HTTPClient.Configuration.mutualTLS(
            presenting: credentials, trusting: authority.anchors)
        try await withHTTPServer { group, port in
            try await withHTTPClient(configuration, on: group) { client in
                #expect(try await whoami(client, port: port) == old.fingerprint)
                try await credentials.update(to: new)
                #expect(try await whoami(client, port: port) == old.fingerprint)
                #expect(try await whoami(client, port: port, closing: true) == old.fingerprint)
                #expect(try await whoami(client, port: port) == new.fingerprint)
            }
        }
    }

    @Test func aFailedProbeKeepsTheIdentity() async throws {
        let authority = try authority.get()
        let old = try authority.issue("old")
        let credentials = RotatingCredentials(try TLSCredentials(old))
        let mute = try authority.issue("mute").keptAtHome { () throws(ProviderError) in
            throw ProviderError(.tokenNotPresent, "The token was pulled out; put it back.")
        }
        await #expect {
            try await credentials.update(to: mute)
        } throws: { error in
            let error = error as? ProviderError
            return error?.code == .tokenNotPresent && error?.provider == ProviderID("test")
        }
        #expect(credentials.current.identity.fingerprint == old.fingerprint)

        let liar = try old.with(TestKey(authority.issue("other").key, publicKey: old.certificate.publicKey))
        await #expect { try await credentials.update(to: liar) } throws: {
            ($0 as? ProviderError)?.code == .keyMismatch
        }
        #expect(credentials.current.identity.key.exporter != nil)
    }

    /// The key's own first scheme may be none of TLS.
    @Test("The possession check of an update signs with a scheme that TLS has")
    func theProbeIsSignedAsInTLS() async throws {
        let pair = try Pair.of(.rsa2048)
        let credentials = RotatingCredentials(try TLSCredentials(pair.server))
        let key = TestKey(pair.client.key, signatureSchemes: [.rsaPSSPSSSHA256, .rsaPSSRSAESHA256])
        try await credentials.update(to: pair.client.with(key))
        #expect(credentials.current.identity.fingerprint == pair.client.fingerprint)
    }

    @Test func theUpdateThatBeganLastWins() async throws {
        let authority = try authority.get()
        let gate = Gate()
        let slow = try authority.issue("slow").keptAtHome { () throws(ProviderError) in await gate.pass() }
        let fast = try authority.issue("fast")
        let credentials = RotatingCredentials(try TLSCredentials(authority.issue("first")))
        async let overtaken: Void = credentials.update(to: slow)
        // Before the end of the scope waits for the update, also when something here throws.
        defer { gate.open() }
        for await _ in gate.arrivals { break }
        try await credentials.update(to: fast)
        gate.open()
        try await overtaken
        #expect(credentials.current.identity.fingerprint == fast.fingerprint)
    }

    @Test("An update to a non-exportable key that the connections cannot use is refused")
    func refusesAKeyAtHomeThatTheConnectionsCannotUse() async throws {
        let authority = try authority.get()
        let credentials = RotatingCredentials(try TLSCredentials(authority.issue("first", kind: .p256)))
        let other = try authority.issue("other", kind: .p384).keptAtHome()
        await #expect { try await credentials.update(to: other) } throws: {
            ($0 as? ProviderError)?.code == .unsupportedAlgorithm
        }
        try await credentials.update(to: Pair.of(.rsa2048).server.keptAtHome())
    }
}

private final class Rotation: Sendable {
    let isOver = Atomic(false)
}
