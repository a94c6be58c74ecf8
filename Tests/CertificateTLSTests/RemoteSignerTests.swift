import CertificateProviding
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct RemoteSignerTests {
    /// Eight handshakes wait for a token on both event loops of a server, which goes on serving others at the same time.
    @Test(arguments: Version.allCases) func aSlowKeyDoesNotBlockTheEventLoops(version: Version) async throws {
        let authority = try authority.get()
        let gate = Gate()
        let slow = try authority.issue("slow").keptAtHome { () throws(ProviderError) in await gate.pass() }
        let fast = try authority.issue("fast")
        let anchors = authority.anchors
        let slowly = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(slow), demandingClientCertificatesFrom: anchors)
        let swiftly = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(fast), demandingClientCertificatesFrom: anchors)
        let connecting = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(authority.issue("client")), trusting: anchors)
        let context = try NIOSSLContext(configuration: connecting.only(version))
        try await withEventLoops(2) { group in
            try await withServer(slowly, on: group) { slowPort in
                try await withServer(swiftly, on: group) { fastPort in
                    try await withThrowingTaskGroup(of: String.self) { tasks in
                        // Before the group waits for its tasks, also when something here throws.
                        defer { gate.open() }
                        for _ in 0..<8 {
                            tasks.addTask { try await connect(context, port: slowPort, on: group).server }
                        }
                        var waiting = 0
                        for await _ in gate.arrivals {
                            waiting += 1
                            if waiting == 8 { break }
                        }
                        for eventLoop in group.makeIterator() {
                            #expect(try await eventLoop.submit { true }.get())
                        }
                        for _ in 0..<8 {
                            let encounter = try await connect(context, port: fastPort, on: group)
                            #expect(encounter.server == fast.fingerprint)
                        }
                        gate.open()
                        for try await server in tasks { #expect(server == slow.fingerprint) }
                    }
                }
            }
        }
    }

    @Test(arguments: Version.allCases) func theKeysOwnErrorSurfaces(version: Version) async throws {
        let authority = try authority.get()
        let client = try authority.issue("client").keptAtHome { () throws(ProviderError) in
            throw ProviderError(.tokenNotPresent, "The token was pulled out; put it back.")
        }
        let accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("server")), demandingClientCertificatesFrom: authority.anchors)
        let connecting = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(client), trusting: authority.anchors)
        let context = try NIOSSLContext(configuration: connecting.only(version))
        try await withEventLoops(1) { group in
            try await withServer(accepting, on: group) { port in
                await #expect { try await connect(context, port: port, on: group) } throws: {
                    ($0 as? ProviderError)?.code == .tokenNotPresent
                }
            }
        }
    }
}
