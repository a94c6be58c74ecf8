import CertificateProviding
import FoundationEssentials
import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite struct ConnectionProbeTests {
    private func serverConfiguration(
        _ authority: TestAuthority, trusting anchors: TrustAnchors? = nil, dnsNames: [String] = ["localhost"]
    ) throws -> TLSConfiguration {
        try .makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("server", dnsNames: dnsNames)),
            demandingClientCertificatesFrom: anchors ?? authority.anchors)
    }

    private func probe(
        port: Int, presenting identity: Identity? = nil, trusting anchors: TrustAnchors? = nil
    ) throws -> ConnectionProbe {
        var probe = ConnectionProbe(
            host: "127.0.0.1", port: port,
            presenting: try identity.map { identity throws in try TLSCredentials(identity) },
            trusting: try anchors ?? authority.get().anchors)
        probe.serverName = "localhost"
        // Long enough for a busy machine: none of the tests waits for them, but the one of the silent server.
        probe.deadline = .seconds(60)
        probe.settlingTime = .seconds(60)
        return probe
    }

    private func expect(
        _ code: CertificateProviderError.Code, nativeCode: Int? = nil, _ body: () async throws -> ConnectionReport
    ) async {
        do {
            let report = try await body()
            Issue.record("succeeded: \(report)")
        } catch let error as CertificateProviderError {
            #expect(error.code == code, "\(error)")
            if let nativeCode { #expect(error.nativeCode == nativeCode, "\(error)") }
        } catch {
            Issue.record(error)
        }
    }

    @Test(arguments: Version.allCases) func reportsAnAcceptedCertificate(version: Version) async throws {
        let authority = try authority.get()
        var configuration = try serverConfiguration(authority).only(version)
        configuration.applicationProtocols = ["http/1.1"]
        try await withEventLoops { [configuration] group in
            try await withServer(configuration, on: group) { port in
                var probe = try probe(port: port, presenting: authority.issue("client"))
                probe.applicationProtocols = ["h2", "http/1.1"]
                let report = try await probe.run(on: group)
                #expect(report.tlsVersion == version.nio)
                #expect(report.applicationProtocol == "http/1.1")
                #expect(report.serverCertificate.subject == "CN=server,O=certprov tests")
                #expect(report.clientAuthentication == .accepted)
            }
        }
    }

    @Test func reportsThatNobodyAsked() async throws {
        let authority = try authority.get()
        var configuration = try serverConfiguration(authority)
        configuration.certificateVerification = .none
        try await withEventLoops { [configuration] group in
            try await withServer(configuration, on: group) { port in
                let report = try await probe(port: port, presenting: authority.issue("client")).run(on: group)
                #expect(report.clientAuthentication == .notRequested)
                #expect(report.applicationProtocol == nil)
            }
        }
    }

    @Test func doesNotWaitForAServerThatIsSilentAfterTheHandshake() async throws {
        let authority = try authority.get()
        let context = try NIOSSLContext(configuration: serverConfiguration(authority))
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
            } body: { port in
                var probe = try probe(port: port, presenting: authority.issue("client"))
                probe.settlingTime = .milliseconds(50)
                #expect(try await probe.run(on: group).clientAuthentication == .unopposed)
            }
        }
    }

    @Test(arguments: Version.allCases) func aRefusedCertificateIsRejected(version: Version) async throws {
        let authority = try authority.get()
        let stranger = try authority.issue("stranger").certificate
        let configuration = try serverConfiguration(authority, trusting: .certificates([stranger])).only(version)
        try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                await expect(.rejected, nativeCode: 48) {
                    try await probe(port: port, presenting: authority.issue("client")).run(on: group)
                }
                await expect(.rejected, nativeCode: version == .tls13 ? 116 : 40) {
                    try await probe(port: port).run(on: group)
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
                await expect(.rejected, nativeCode: 45) { try await probe(port: port, presenting: expired).run() }
            }
        }
    }

    @Test func anUntrustedServerIsAProtocolError() async throws {
        let authority = try authority.get()
        let (trusted, misnamed) = (
            try serverConfiguration(authority), try serverConfiguration(authority, dnsNames: ["other"])
        )
        try await withEventLoops { group in
            try await withServer(trusted, on: group) { port in
                await expect(.protocolError) {
                    try await probe(port: port, trusting: TestAuthority().anchors).run(on: group)
                }
            }
            try await withServer(misnamed, on: group) { port in
                await expect(.protocolError) { try await probe(port: port).run(on: group) }
            }
        }
    }

    @Test func aPlainTextServerIsAProtocolError() async throws {
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                channel.writeAndFlush(ByteBuffer(string: "220 mail.example ESMTP\r\n"), promise: nil)
            } body: { port in
                await expect(.protocolError) { try await probe(port: port).run(on: group) }
            }
            try await withServer(on: group) { channel in
                channel.close(promise: nil)
            } body: { port in
                await expect(.protocolError) { try await probe(port: port).run(on: group) }
            }
        }
    }

    @Test func aClosedPortIsUnavailable() async throws {
        // Bound, so that nobody else gets the port, but not listening. NIO's own sockets would be inherited by the
        // openssl processes of other tests, and stay open there.
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
        await expect(.unavailable) { try await probe(port: Int(UInt16(bigEndian: address.sin_port))).run() }
    }

    @Test func aSilentServerRunsIntoTheDeadline() async throws {
        try await withEventLoops { group in
            try await withServer(on: group) { _ in
            } body: { port in
                var probe = try probe(port: port)
                probe.deadline = .milliseconds(100)
                await expect(.timedOut) { [probe] in try await probe.run(on: group) }
            }
        }
    }

    @Test func refusesBadArguments() async throws {
        await expect(.configurationInvalid) { try await probe(port: 0).run() }
        await expect(.configurationInvalid) {
            var probe = try probe(port: 1)
            probe.serverName = "192.0.2.1"
            return try await probe.run()
        }
        await expect(.configurationInvalid) {
            var probe = try probe(port: 1)
            probe.applicationProtocols = ["é"]
            return try await probe.run()
        }
        await expect(.configurationInvalid) { try await probe(port: 1, trusting: .certificates([])).run() }
    }
}
