import CertificateProviding
import NIOSSL
import SigningRequests
import Synchronization
import TestSupport
import Testing

@testable import CertificateTLS

/// The messages that a key signs in handshakes with OpenSSL: if one came as a challenge, its signature would complete the handshake of
/// another party.
@Suite(.timeLimit(.minutes(20))) struct HandshakeForgeryTests {
    private final class Messages: Sendable {
        private let all = Mutex<[[UInt8]]>([])
        func add(_ message: [UInt8]) { all.withLock { $0.append(message) } }
        var taken: [[UInt8]] { all.withLock(\.self) }
    }

    /// An identity whose key signs whatever it is given, and shows it.
    private func watched(_ identity: Identity) throws -> (Identity, Messages) {
        let messages = Messages()
        let watched = try identity.with(
            TestKey(identity.key) { message, _ throws(ProviderError) in
                messages.add(message)
                return try await identity.key.signature(for: message, using: .ecdsaP256SHA256)
            })
        return (watched, messages)
    }

    private func expectRefused(_ messages: Messages, as text: String) {
        let message = messages.taken.first ?? []
        #expect(messages.taken.count == 1 && message.count <= SigningRequest.maximumChallenge, "\(messages.taken)")
        #expect(ChallengeFilter.refusal(of: message)?.contains(text) == true, "\(message)")
    }

    @Test("A client's CertificateVerify is not signed as a challenge", arguments: Version.allCases)
    func client(version: Version) async throws {
        let authority = try authority.get()
        let server = try Pair.of(.p256).server
        let (client, messages) = try watched(Pair.of(.p256).client)
        let configuration = try TLSConfiguration.makeClientConfiguration(
            presenting: TLSCredentials(client), trusting: authority.anchors)
        try await OpenSSL.withFiles(of: server, authority: authority) { options in
            try await OpenSSL.server(options, version: version) { port in
                try await withEventLoops(1) { group in
                    let encounter = try await connect(
                        try NIOSSLContext(configuration: configuration), port: port, on: group, greeting: "drawer\n")
                    #expect(encounter.message == "reward")
                }
            }
        }
        expectRefused(messages, as: version == .tls13 ? "TLS 1.3" : "TLS 1.2 handshake")
    }

    @Test(
        "A server's CertificateVerify or ServerKeyExchange is not signed as a challenge", arguments: Version.allCases,
        ["X25519:P-256", "P-256", "P-384:P-256"])
    func server(version: Version, curve: String) async throws {
        let authority = try authority.get()
        let client = try Pair.of(.p256).client
        let (server, messages) = try watched(Pair.of(.p256).server)
        let configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(server), demandingClientCertificatesFrom: authority.anchors)
        try await withEventLoops(1) { group in
            try await withServer(configuration, on: group) { port in
                let output = try await OpenSSL.withFiles(of: client, authority: authority) { options in
                    try await OpenSSL.client(options + ["-curves", curve], version: version, port: port)
                }
                #expect(output.contains(client.fingerprint), "\(output)")
            }
        }
        expectRefused(messages, as: version == .tls13 ? "TLS 1.3" : "key-exchange parameters")
    }
}
