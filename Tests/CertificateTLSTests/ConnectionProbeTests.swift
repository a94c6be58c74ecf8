import CertificateProviding
import FoundationEssentials
import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct ConnectionProbeTests {
    @Test(arguments: Version.allCases) func reportsAnAcceptedCertificate(version: Version) async throws {
        let authority = try authority.get()
        var configuration = try authority.serverConfiguration().only(version)
        configuration.applicationProtocols = ["http/1.1"]
        try await withEventLoops { [configuration] group in
            try await withServer(configuration, on: group) { port in
                var probe = try makeProbe(port: port, presenting: authority.issue("client"))
                probe.applicationProtocols = ["h2", "http/1.1"]
                let report = try await probe.run(on: group)
                #expect(report.tlsVersion == version.nio)
                #expect(report.applicationProtocol == "http/1.1")
                #expect(report.serverCertificate.subject == "CN=server,O=certprov tests")
                #expect(report.clientAuthentication == .completed)
            }
        }
    }

    /// As of a token that knows no PSS, without which TLS 1.3 has nothing for an RSA key.
    @Test(arguments: Version.allCases) func aKeyWithoutPSSIsNotForTLS13(version: Version) async throws {
        let issued = try Pair.of(.rsa2048).client
        let identity = try issued.with(TestKey(issued.key, signatureSchemes: [.rsaPKCS1SHA256]))
        let configuration = try authority.get().serverConfiguration().only(version)
        try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                let probe = try makeProbe(port: port, presenting: identity)
                if version == .tls13 {
                    await expect(.unsupportedAlgorithm, "works with TLS 1.2", nativeCode: 70) {
                        try await probe.run(on: group)
                    }
                } else {
                    #expect(try await probe.run(on: group).clientAuthentication == .completed)
                }
            }
        }
    }

    @Test("The advice for RSA keys without PSS is not for an Ed25519 key that the server does not know")
    func ed25519NeedsNoPSS() async throws {
        let authority = try authority.get()
        var configuration = try authority.serverConfiguration()
        configuration.verifySignatureAlgorithms = [.ecdsaSecp256R1Sha256]
        try await withEventLoops { [configuration] group in
            try await withServer(configuration, on: group) { port in
                let probe = try makeProbe(port: port, presenting: authority.issue("client", kind: .ed25519))
                let failure = await #expect(throws: ProviderError.self) { try await probe.run(on: group) }
                #expect(failure?.code == .unsupportedAlgorithm, "\(String(describing: failure))")
                #expect(failure?.message.contains("(Ed25519)") == true, "\(String(describing: failure))")
                #expect(failure?.message.contains("RSA") == false, "\(String(describing: failure))")
            }
        }
    }

    @Test("The probe reports that the server requested no client certificate")
    func reportsThatNobodyAsked() async throws {
        let authority = try authority.get()
        var configuration = try authority.serverConfiguration()
        configuration.certificateVerification = .none
        try await withEventLoops { [configuration] group in
            try await withServer(configuration, on: group) { port in
                let report = try await makeProbe(port: port, presenting: authority.issue("client")).run(on: group)
                #expect(report.clientAuthentication == .notRequested)
                #expect(report.applicationProtocol == nil)
            }
        }
    }

    @Test(arguments: Version.allCases) func aRefusedCertificateIsRejected(version: Version) async throws {
        let authority = try authority.get()
        let stranger = try TestAuthority("Stranger")
        let configuration = try authority.serverConfiguration(trusting: stranger.anchors).only(version)
        try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                await expect(.rejected, "refused the client certificate 'CN=client", nativeCode: 48) {
                    try await makeProbe(port: port, presenting: authority.issue("client")).run(on: group)
                }
                await expect(.rejected, "requires a client certificate", nativeCode: version == .tls13 ? 116 : 40) {
                    try await makeProbe(port: port).run(on: group)
                }
            }
        }
    }

    @Test("The probe tells a signature that does not verify from an unknown CA")
    func aSignatureThatDoesNotVerifyIsToldApart() async throws {
        let configuration = try authority.get().serverConfiguration(trusting: TestAuthority().anchors)
        try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                await expect(.rejected, "could not verify a signature", nativeCode: 51) {
                    try await makeProbe(port: port, presenting: authority.get().issue("client")).run(on: group)
                }
            }
        }
    }

    @Test(arguments: Version.allCases) func anOpenSSLServersRefusalIsRejected(version: Version) async throws {
        let authority = try authority.get()
        try await OpenSSL.withFiles(of: try authority.issue("server"), authority: authority) { options in
            try await OpenSSL.server(options, version: version) { port in
                let expired = try authority.issue(
                    "client", notBefore: Date(timeIntervalSinceNow: -7200), notAfter: Date(timeIntervalSinceNow: -3600))
                await expect(.rejected, "with the alert certificate_expired; renew the certificate", nativeCode: 45) {
                    try await makeProbe(port: port, presenting: expired).run()
                }
            }
        }
    }

    @Test func anUntrustedServerIsCalledThat() async throws {
        let configuration = try authority.get().serverConfiguration()
        try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                await expect(.serverNotTrusted, "(trust anchors: the given certificates); check the trust anchors") {
                    try await makeProbe(port: port, trusting: TestAuthority("Stranger").anchors).run(on: group)
                }
            }
        }
    }

    @Test("The probe sends a request and reports the status", arguments: Version.allCases)
    func reportsTheStatusOfARequest(version: Version) async throws {
        let answers: [(String, Int?)] = [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", 400), ("HTTP/1.0 200\r\n", 200), ("SSH-2.0-x\r\n", nil),
            ("HTTP/1.1 2000 x\r\n", nil),
            ("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 403 Forbidden\r\n", 403),
        ]
        for (answer, status) in answers {
            let context = try NIOSSLContext(configuration: authority.get().serverConfiguration().only(version))
            try await withEventLoops { group in
                try await withServer(on: group) { channel in
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOSSLServerHandler(context: context), Answerer(answer),
                    ])
                } body: { port in
                    var probe = try makeProbe(port: port, presenting: authority.get().issue("client"))
                    probe.sendsHTTPRequest = true
                    if let status {
                        let report = try await probe.run(on: group)
                        #expect(report.httpStatus == status && report.clientAuthentication == .completed)
                    } else {
                        await expect(.protocolError, "is not HTTP/1.1") { [probe] in try await probe.run(on: group) }
                    }
                }
            }
        }
    }

    @Test func aServerWithoutAnAnswerIsUnavailable() async throws {
        let context = try NIOSSLContext(configuration: authority.get().serverConfiguration().only(.tls12))
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandlers([
                    NIOSSLServerHandler(context: context), Answerer(nil),
                ])
            } body: { port in
                var probe = try makeProbe(port: port, presenting: authority.get().issue("client"))
                probe.sendsHTTPRequest = true
                await expect(.unavailable, "without an answer to GET /") { [probe] in try await probe.run(on: group) }
            }
        }
    }

    @Test("The probe reads the file of the trust anchors once")
    func readsTheTrustAnchorsOnce() async throws {
        let folder = try TemporaryDirectory()
        try folder.write(authority.get().root.pemRepresentation.utf8, to: "anchors.pem")
        let file = folder["anchors.pem"]
        let context = try NIOSSLContext(configuration: authority.get().serverConfiguration().only(.tls12))
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try FileManager.default.removeItem(atPath: file)
                try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
            } body: { port in
                let probe = try makeProbe(
                    port: port, presenting: authority.get().issue("client"), trusting: .pemFile(file))
                #expect(try await probe.run(on: group).clientAuthentication == .completed)
            }
        }
    }

    @Test func aPlainTextServerIsAProtocolError() async throws {
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                channel.writeAndFlush(ByteBuffer(string: "220 mail.example ESMTP\r\n"), promise: nil)
            } body: { port in
                await expect(.protocolError, "does not speak TLS") {
                    try await makeProbe(port: port).run(on: group)
                }
            }
            try await withServer(on: group) { channel in
                channel.close(promise: nil)
            } body: { port in
                await expect(.protocolError, "closed the connection during") {
                    try await makeProbe(port: port).run(on: group)
                }
            }
        }
    }

    @Test func aClosedPortIsUnavailable() async throws {
        // Bound, so that no other process gets the port, but not listening. NIO's own sockets would be inherited by the openssl
        // processes of other tests, and stay open there.
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(INADDR_LOOPBACK).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let bound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && getsockname(descriptor, $0, &size) == 0
            }
        }
        try #require(bound)
        let port = Int(UInt16(bigEndian: address.sin_port))
        await expect(.unavailable, "Connection refused") { try await makeProbe(port: port).run() }
    }

    @Test func aSilentServerRunsIntoTheDeadline() async throws {
        try await withEventLoops { group in
            try await withServer(on: group) { _ in
            } body: { port in
                var probe = try makeProbe(port: port)
                probe.deadline = .milliseconds(100)
                await expect(.timedOut, "did not complete a TLS handshake") { [probe] in try await probe.run(on: group)
                }
            }
        }
    }

    @Test("The probe refuses an invalid port, server name, ALPN name or trust anchor list")
    func refusesBadArguments() async throws {
        await expect(.configurationInvalid, "not a TCP port") { try await makeProbe(port: 0).run() }
        await expect(.configurationInvalid, "is an IP address") {
            var probe = try makeProbe(port: 1)
            probe.serverName = "192.0.2.1"
            return try await probe.run()
        }
        await expect(.configurationInvalid, "xn--") {
            var probe = try makeProbe(port: 1)
            probe.serverName = "bücher.example"
            return try await probe.run()
        }
        await expect(.configurationInvalid, "255 ASCII") {
            var probe = try makeProbe(port: 1)
            probe.applicationProtocols = ["é"]
            return try await probe.run()
        }
        await expect(.configurationInvalid, "is empty") {
            try await makeProbe(port: 1, trusting: .certificates([])).run()
        }
    }
}

/// Answers the first request with a text, or with the end of the connection.
private final class Answerer: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let answer: String?

    init(_ answer: String?) { self.answer = answer }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let request = String(buffer: unwrapInboundIn(data))
        guard let answer, request.hasPrefix("GET / HTTP/1.1\r\nHost: localhost:") else {
            return context.close(promise: nil)
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: answer)), promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
