import CertprovKit
import Foundation
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

/// The short way in: identity, trust and peers of a property file, in running servers.
@Suite(.timeLimit(.minutes(20))) struct TrustRotationTests {
    /// Says which peer has come.
    private final class Namer: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .some(.handshakeCompleted) = event as? TLSUserEvent else { return }
            let name = try? context.pipeline.syncOperations.tlsPeer()?.commonNames.first
            let channel = context.channel
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: "hello \(name ?? "nobody")\n")))
                .whenComplete { _ in channel.close(promise: nil) }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private func withServer(_ tls: TLSServer, _ body: (Int) async throws -> Void) async throws {
        let listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(tls.makeHandler(for: channel))
                    try channel.pipeline.syncOperations.addHandler(Namer())
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        do { try await body(listener.localAddress?.port ?? 0) } catch {
            try await listener.close()
            throw error
        }
        try await listener.close()
    }

    /// Connects with curl's library of TLS, OpenSSL, and returns whether the server greets.
    private func isGreeted(
        _ client: Identity, port: Int, in directory: TemporaryDirectory
    ) async throws -> Bool {
        let key = try #require(client.key.exporter).pkcs8Representation().withUnsafeBytes { Array($0) }
        try directory.write(key, to: "peer.p8")
        try directory.write(client.certificateChain.map(\.pemRepresentation).joined().utf8, to: "peer.pem")
        let output = try await BlockingExecutor.threads().run { () throws(ProviderError) -> Output in
            do {
                return try Subprocess(
                    [
                        "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-cert", "peer.pem", "-cert_chain",
                        "peer.pem",
                        "-key", "peer.p8", "-keyform", "DER", "-quiet",
                    ], in: directory.path, .captured(), seconds: 300
                ).wait()
            } catch { throw ProviderError(.internal, "\(error)") }
        }
        return output.stdout.contains("hello ")
    }

    @Test("A running server follows TrustAnchors and Peers of the property file, and the files that it names")
    func aServerFollowsThePropertyFile() async throws {
        let host = try await ReloadHost()
        let (old, new) = (host.authority, try TestAuthority("New"))
        let (oldClient, newClient) = (try old.issue("old-client"), try new.issue("new-client"))
        let tls = try await host.logon.tls()
        #expect(try await host.logon.tls() === tls)
        let renewal = Task { [logon = host.logon] in try await logon.renewal.run() }
        let looks = { host.time.sleeps(of: .seconds(3)) }
        func passTwoLooks() async throws {
            for _ in 0..<3 {
                let before = looks()
                host.time.pass(.seconds(3))
                try await eventually { looks() > before }
            }
        }
        try await eventually { looks() > 0 }
        try await withServer(try tls.server()) { port in
            func expect(_ isOldGreeted: Bool, _ isNewGreeted: Bool, _ what: String) async throws {
                #expect(try await isGreeted(oldClient, port: port, in: host.directory) == isOldGreeted, "\(what)")
                #expect(try await isGreeted(newClient, port: port, in: host.directory) == isNewGreeted, "\(what)")
            }
            try await expect(true, false, "at first")
            try host.directory.write((old.root.pemRepresentation + new.root.pemRepresentation).utf8, to: "ca.pem")
            try await passTwoLooks()
            try await expect(true, true, "both CAs")
            try host.configure(["Peers.allow.1": "dns:nowhere.example", "Peers.allow.2": "cn:new-client"])
            #expect(try await host.logon.reload())
            try await expect(false, true, "Peers.allow")
            try host.configure(["Peers.allow": "new-client"])
            await #expect(throws: ProviderError.self) { try await host.logon.reload() }
            try host.configure(["TrustAnchors": "/nonexistent"])
            await #expect(throws: ProviderError.self) { try await host.logon.reload() }
            try host.configure(["TrustAnchors": nil])
            await #expect(throws: ProviderError.self) { try await host.logon.reload() }
            try await expect(false, true, "a mistake changes nothing")
            try host.configure()
            #expect(try await host.logon.reload())
            try host.directory.write(new.root.pemRepresentation.utf8, to: "ca.pem")
            try await passTwoLooks()
            try await expect(false, true, "the new CA")
        }
        renewal.cancel()
        try await renewal.value
        await host.end()
    }

    @Test("TrustAnchors = provider trusts the CAs that come with the identity")
    func trustFromTheProvider() async throws {
        let host = try await ReloadHost(.properties, ["TrustAnchors": "provider"])
        let error = await #expect(throws: ProviderError.self) { _ = try await host.logon.tls() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("TrustAnchors = provider") == true)
        let other = try TestAuthority("Other")
        let identity = try other.issue("client")
        let withTrust = try Identity(
            certificateChain: identity.certificateChain, key: identity.key, trust: TrustBundle([other.root]),
            provenance: identity.provenance)
        host.maker.state.withLock { $0.identities["b"] = withTrust }
        try host.configure(["TrustAnchors": "provider", "CertificateProvider.test.path": "b"])
        #expect(try await host.logon.reload())
        try await withServer(try await host.logon.tls().server()) { port in
            let isOwnGreeted = try await isGreeted(other.issue("peer"), port: port, in: host.directory)
            let isOtherGreeted = try await isGreeted(host.authority.issue("peer"), port: port, in: host.directory)
            #expect(isOwnGreeted && !isOtherGreeted)
        }
        await host.end()
    }
}
