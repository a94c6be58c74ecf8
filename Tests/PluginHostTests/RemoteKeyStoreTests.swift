import CertificateProviding
import CertificateTLS
import Foundation
import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import PluginHost
import Synchronization
import TestSupport
import Testing

/// A key store in a plugin, as the host uses it.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct RemoteKeyStoreTests {
    private let directory: TemporaryDirectory
    private let host: PluginHost
    private let store: any KeyStore

    init() throws {
        directory = try TemporaryDirectory()
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: "TestPlugin").path
        try directory.install("certprov-plugin-keys", copying: built)
        host = PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
        let storage = InMemoryStorage()
        let descriptor = try #require(try host.keyStore("keys", ProviderParameters()))
        store = try ProviderRegistry(keyStores: [descriptor]).keyStores { _ in .testing(storage: storage) }.store(
            "keys:")
    }

    private func key() async throws -> any IdentityKey {
        try await store.make(NewKey(.p256, label: "test"), NoUserInteraction()) { _ in }
    }

    /// A deletion would report success otherwise, and leave the key.
    @Test func aStoreThatDoesNotAnswerStillHasItsKeys() async throws {
        let reference = store.reference(to: try await key())
        await host.shutdown()
        try directory.install("certprov-plugin-keys", "#!/bin/sh\nexit 3\n".utf8)
        #expect(store.holds(keyURI: reference.uri))
        #expect(!store.holds(keyURI: "other:x"))
        let failure = failure { try store.destroyStored(reference) }
        #expect(
            failure?.code == .unavailable && failure?.message.contains("status 3") == true,
            "\(String(describing: failure))")
    }

    /// A plugin in another language with one key, which notes the requests that it gets.
    ///
    /// - Parameter more: Fields of its description, as Python has them.
    private func oneKey(_ more: String) throws -> (any KeyStore, KeyReference, SoftwareKey) {
        let key = try SoftwareKey.generate(.p256, location: .file)
        try key.pkcs8Representation().withUnsafeBytes { _ = try directory.write(Array($0), to: "key.der") }
        let public64 = Data(key.publicKey.derRepresentation).base64EncodedString()
        try directory.install(
            "certprov-plugin-one",
            """
            #!/usr/bin/env python3
            import base64, json, subprocess, sys
            key = {"id": "k", "uri": "one:k", "publicKey": "\(public64)", "schemes": ["ecdsa_secp256r1_sha256"]}
            store = {"scheme": "one", "displayName": "One", "summary": "One key.", "parameters": [],
                     "makes": {"p256": ["sign"]}}
            store.update(\(more))
            def answer(name, params):
                if name == "hello":
                    return {"version": 1, "id": "one", "keyStores": [store]}
                open("\(directory["requests"])", "a").write(name + "\\n")
                if name == "key.sign":
                    command = ["openssl", "dgst", "-sha256", "-keyform", "DER", "-sign", "\(directory["key.der"])"]
                    done = subprocess.run(command, input=base64.b64decode(params["message"]), capture_output=True)
                    return {"signature": base64.b64encode(done.stdout).decode()}
                if name == "key.find":
                    return {"key": key if params["key"]["publicKey"] == key["publicKey"] else None}
                return {"destroyed": False} if name == "key.destroy" and "certificates" in store else {}
            for line in sys.stdin:
                message = json.loads(line)
                if "request" in message:
                    result = answer(message["request"], message["params"])
                    print(json.dumps({"id": message["id"], "result": result}), flush=True)

            """.utf8)
        let descriptor = try #require(try host.keyStore("one", ProviderParameters()))
        let store = try ProviderRegistry(keyStores: [descriptor]).keyStores { _ in .testing() }.store("one:")
        return (store, KeyReference(publicKey: key.publicKey, uri: "one:k"), key)
    }

    private func requests() throws -> [String] {
        let text = try String(contentsOfFile: directory["requests"], encoding: .utf8)
        try FileManager.default.removeItem(atPath: directory["requests"])
        // The host sends a request that it does not mean now and then.
        return text.split(separator: "\n").map(String.init).filter { $0 != "configure" && !$0.hasPrefix("x-") }
    }

    @Test("A plugin that knows nothing of checks, guarantees and stores without certificates works as before")
    func anEarlierPluginWorks() async throws {
        let (store, reference, key) = try oneKey("{}")
        try await store.check(NoUserInteraction())
        #expect(try requests() == ["key.find"])
        let refused = await failure {
            let new = NewKey(.p256, label: "", guarantees: [.neverExportable])
            _ = try await store.make(new, NoUserInteraction()) { _ in }
        }
        #expect(refused?.code == .unsupportedAlgorithm)
        let found = try #require(try store.storedKey(for: reference))
        let chain = [try Zoo.authority.get().certify(key.publicKey.derRepresentation, as: "one")]
        #expect(store.certificates != nil)
        try await store.storeChain(chain, for: found, NoUserInteraction())
        #expect(await failure { _ = try await store.identity("one:k", NoUserInteraction()) }?.code == .notFound)
        #expect(try store.destroyStored(reference))
        #expect(try requests() == ["key.find", "key.storeChain", "key.destroy"])
        await host.shutdown()
    }

    @Test("A plugin that keeps no certificates gets none, and its key is tested all the same")
    func aPluginWithoutCertificatesGetsNone() async throws {
        let (store, reference, key) = try oneKey(#"{"certificates": False, "can": ["key.check"]}"#)
        try await store.check(NoUserInteraction())
        let found = try #require(try store.storedKey(for: reference))
        let authority = try Zoo.authority.get()
        #expect(store.certificates == nil)
        let chain = [try authority.certify(key.publicKey.derRepresentation, as: "one")]
        try await store.storeChain(chain, for: found, NoUserInteraction())
        let other = await failure {
            try await store.storeChain([authority.root], for: found, NoUserInteraction())
        }
        #expect(other?.code == .keyMismatch)
        #expect(try await !store.destroy(reference, NoUserInteraction()))
        #expect(try requests() == ["key.check", "key.find", "key.sign", "key.destroy"])
        await host.shutdown()
    }

    /// A plugin in another language that knows `decrypts` alone decrypts by RSAES-PKCS1-v1_5, whatever else it is sent.
    @Test func anOldPluginDecryptsByPKCS1() async throws {
        let key = try SoftwareKey.generate(.rsa2048, location: .file)
        try key.pkcs8Representation().withUnsafeBytes { _ = try directory.write(Array($0), to: "key.der") }
        let public64 = Data(key.publicKey.derRepresentation).base64EncodedString()
        try directory.install(
            "certprov-plugin-old",
            """
            #!/usr/bin/env python3
            import base64, json, subprocess, sys
            key = {"id": "k", "uri": "old:k", "publicKey": "\(public64)", "schemes": [], "decrypts": True}
            def answer(name, params):
                if name == "hello":
                    store = {"scheme": "old", "displayName": "Old", "summary": "Old.", "parameters": [],
                             "makes": {"rsa2048": ["sign", "decrypt"]}}
                    return {"version": 1, "id": "old", "keyStores": [store]}
                if name == "key.decrypt":
                    command = ["openssl", "pkeyutl", "-decrypt", "-keyform", "DER", "-inkey", "\(directory["key.der"])"]
                    done = subprocess.run(command, input=base64.b64decode(params["ciphertext"]), capture_output=True)
                    return {"plaintext": {"secret": base64.b64encode(done.stdout).decode()}}
                return {"key": key} if name == "key.find" else {}
            for line in sys.stdin:
                message = json.loads(line)
                if "request" in message:
                    result = answer(message["request"], message["params"])
                    print(json.dumps({"id": message["id"], "result": result}), flush=True)

            """.utf8)
        let descriptor = try #require(try host.keyStore("old", ProviderParameters()))
        let store = try ProviderRegistry(keyStores: [descriptor]).keyStores { _ in .testing() }.store("old:")
        #expect(store.makes == [.rsa2048: [.signing, .pkcs1Decryption]])
        let found = try #require(try store.storedKey(for: KeyReference(publicKey: key.publicKey, uri: "old:k")))
        let decrypter = try #require(found.decrypter)
        #expect(decrypter.decryptionSchemes == [.rsaPKCS1])
        #expect(found.use == .pkcs1Decryption && found.digestSigner == nil)
        let ciphertext = try DecryptionScheme.rsaPKCS1.opensslEncrypt([1, 2, 3], for: key.publicKey)
        #expect(try await decrypter.decrypt(ciphertext, using: .rsaPKCS1) == SecretBytes(copying: [1, 2, 3]))
        let scheme = await failure { _ = try await decrypter.decrypt(ciphertext, using: .rsaOAEPSHA256) }
        #expect(scheme?.code == .unsupportedAlgorithm)
        let use = await failure {
            _ = try await store.make(NewKey(.rsa2048, label: "", use: .oaepDecryption), NoUserInteraction()) { _ in }
        }
        #expect(use?.code == .unsupportedAlgorithm)
        await host.shutdown()
    }

    /// Messages that OpenSSL's command has encrypted, for keys of a plugin in Swift.
    @Test(arguments: [KeyUse.oaepDecryption, [.signing, .pkcs1Decryption]]) func aPluginDecrypts(use: KeyUse)
        async throws
    {
        let key = try await store.make(NewKey(.rsa2048, label: "test", use: use), NoUserInteraction()) { _ in }
        let decrypter = try #require(key.decrypter)
        #expect(decrypter.decryptionSchemes == use.decryptionSchemes)
        for scheme in decrypter.decryptionSchemes {
            var ciphertext = try scheme.opensslEncrypt([1, 2, 3], for: key.publicKey)
            #expect(try await decrypter.decrypt(ciphertext, using: scheme) == SecretBytes(copying: [1, 2, 3]))
            ciphertext[100] ^= 1
            #expect(
                await failure { _ = try await decrypter.decrypt(ciphertext, using: scheme) }?.code == .malformedData)
        }
        await host.shutdown()
    }

    /// A request has 1 MiB at most.
    @Test("A plugin's key signs a message of 100 MB by its digest", arguments: [KeyType.p256, .rsa2048])
    func aPluginsKeySignsLargeData(type: KeyType) async throws {
        let key = try await store.make(NewKey(type, label: "test"), NoUserInteraction()) { _ in }
        let signer = try #require(key.digestSigner)
        #expect(signer.digestSchemes == key.signatureSchemes && key.use == .signing)
        let message = [UInt8](repeating: 7, count: 100_000_000)
        for scheme in key.signatureSchemes {
            let digest = try #require(scheme.digestAlgorithm).digest(of: message)
            let signatures = [
                try await key.signature(for: message, using: scheme),
                try await signer.signature(forDigest: digest, using: scheme),
            ]
            for signature in signatures { try scheme.opensslVerify(signature, ofDigest: digest, by: key.publicKey) }
            let short = await failure { _ = try await signer.signature(forDigest: digest.dropLast(), using: scheme) }
            #expect(short?.code == .malformedData)
        }
        await host.shutdown()
    }

    @Test("A plugin's Ed25519 key, which has no digest, refuses a message that is larger than a request")
    func anEd25519KeyOfAPluginSignsWholeMessages() async throws {
        let key = try await store.make(NewKey(.ed25519, label: "test"), NoUserInteraction()) { _ in }
        #expect(key.digestSigner == nil && key.use == .signing)
        let large = await failure {
            _ = try await key.signature(for: [UInt8](repeating: 7, count: 2_000_000), using: .ed25519)
        }
        #expect(large?.message.contains("larger than 1048576 bytes") == true, "\(String(describing: large))")
        let signature = try await key.signature(for: [7], using: .ed25519)
        #expect(key.publicKey.isValidSignature(signature, for: [7], using: .ed25519))
        await host.shutdown()
    }

    @Test("A plugin signs 100 MB with a key of the host")
    func aPluginSignsLargeDataWithAKeyOfTheHost() async throws {
        try directory.install(
            "certprov-plugin-large", "#!/bin/sh\nexec '\(directory["certprov-plugin-keys"])' large\n".utf8)
        let parameters = ProviderParameters(["key": .init("hsm:"), "timeout": .init("300")])
        let environment = ProviderEnvironment.testing(
            keyStores: [(ExampleKeyStore.descriptor(ProviderID("hsm")), InMemoryStorage())])
        let descriptor = try #require(try host.provider(ProviderID("large"), parameters))
        let provider = try descriptor.makeProvider(environment, parameters)
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(identity.key.uri == "hsm:large")
        await provider.shutdown()
        await host.shutdown()
    }

    /// One process signs for all of them.
    @Test func aThousandHandshakesAtOnce() async throws {
        let count = 1000
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = max(limit.rlim_cur, min(limit.rlim_max, rlim_t(4 * count)))
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        try #require(limit.rlim_cur >= 4 * count)

        let authority = try TestAuthority()
        let key = try await key()
        let chain = [
            try authority.certify(key.publicKey.derRepresentation, as: "client"), authority.intermediate,
        ]
        let identity = try Identity(certificateChain: chain, key: key, provenance: .init(provider: ProviderID("keys")))
        let server = try authority.issue("localhost")
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let trust = TrustAnchors.certificates([authority.root])
        let context = try NIOSSLContext(
            configuration: .makeServerConfiguration(
                presenting: try TLSCredentials(server), demandingClientCertificatesFrom: trust))
        let own = try NIOSSLContext(
            configuration: .makeClientConfiguration(presenting: try TLSCredentials(identity), trusting: trust))
        let listener = try await ServerBootstrap(group: group).serverChannelOption(.backlog, value: 4096)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([NIOSSLServerHandler(context: context), Greeter()])
                }
            }.bind(host: "127.0.0.1", port: 0).get()
        let address = try #require(listener.localAddress)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<count {
                tasks.addTask {
                    let greeted = group.next().makePromise(of: Void.self)
                    let connected = ClientBootstrap(group: group).connectTimeout(.minutes(10)).channelInitializer {
                        channel in
                        channel.eventLoop.makeCompletedFuture {
                            try channel.pipeline.syncOperations.addHandlers([
                                try NIOSSLClientHandler(context: own, serverHostname: "localhost"), Greeted(greeted),
                            ])
                        }
                    }.connect(to: address)
                    connected.whenFailure { greeted.fail($0) }
                    try await greeted.futureResult.get()
                    try await connected.get().close()
                }
            }
            try await tasks.waitForAll()
        }
        let all = try FileManager.default.contentsOfDirectory(atPath: "/proc")
        let plugins = all.count { process in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(process)/exe"))
                == directory["certprov-plugin-keys"]
        }
        #expect(plugins == 1)
        try await listener.close()
        try await group.shutdownGracefully()
        await host.shutdown()
    }
}

/// Sends one byte when the handshake is done: the server has verified the client then.
private final class Greeter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted? = event as? TLSUserEvent {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: [0])), promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// Waits for that byte.
private final class Greeted: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let promise: EventLoopPromise<Void>

    init(_ promise: EventLoopPromise<Void>) { self.promise = promise }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { promise.succeed() }
    func channelInactive(context: ChannelHandlerContext) { promise.fail(ChannelError.eof) }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { promise.fail(error) }
}
