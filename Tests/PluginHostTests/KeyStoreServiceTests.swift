import CertificateProviding
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import PluginHost
@testable import PluginProtocol

/// Requests about key stores, without a plugin's process.
@Suite(.timeLimit(.minutes(20))) struct KeyStoreServiceTests {
    @TaskLocal private static var isOnExecutor = false

    /// Has no key store, and notes where it is asked for one.
    private final class Services: PeerServices {
        let opened = Mutex<[Bool]>([])
        private let keyStores = BlockingMutex<KeyStoreService?>(nil)

        init() {
            let threads = BlockingExecutor.threads()
            let executor = BlockingExecutor { job in
                threads.submit { KeyStoreServiceTests.$isOnExecutor.withValue(true) { job() } }
            }
            let service = KeyStoreService(executor: executor, interaction: { _, _, _ in NoUserInteraction() }) {
                [weak self] _ throws(ProviderError) in
                self?.opened.withLock { $0.append(KeyStoreServiceTests.isOnExecutor) }
                throw ProviderError(.configurationInvalid, "There is no key store.")
            }
            keyStores.withLock { $0 = service }
        }

        func name(_ key: any IdentityKey) throws -> WireKey {
            try #require(keyStores.withLock { $0 }).name(key)
        }

        func receive(_ request: IncomingRequest, from peer: Peer) {
            _ = keyStores.withLock(\.self)?.answer(request, from: peer)
        }
        func receive(notice name: String, _ message: Message, from peer: Peer) {}
        func ended(_ error: ProviderError) {}
    }

    @Test("A plugin gets no file of a key of its host", arguments: [false, true])
    func wrappedKeys(isPlugin: Bool) throws {
        let key = WrappedTestKey(base: try Zoo.authority.get().issue("client").key)
        let service = KeyStoreService(
            executor: .threads(), handsOutWrapped: isPlugin, interaction: { _, _, _ in NoUserInteraction() }
        ) { _ throws(ProviderError) in throw ProviderError(.configurationInvalid, "There is no key store.") }
        #expect((service.name(key).wrapped != nil) == isPlugin)
    }

    private struct WrappedTestKey: IdentityKey {
        let base: any IdentityKey
        var publicKey: PublicKeyInfo { base.publicKey }
        var signatureSchemes: [SignatureScheme] { base.signatureSchemes }
        var location: KeyLocation { base.location }
        let wrapped: WrappedKey? = WrappedKey(label: "TSS2 PRIVATE KEY", der: SecretBytes(copying: [1]))
        func signature(for message: [UInt8], using scheme: SignatureScheme) async throws(ProviderError) -> [UInt8] {
            try await base.signature(for: message, using: scheme)
        }
    }

    @Test("A key store is looked for on a thread that may block", arguments: [true, false])
    func aKeyStoreIsLookedForOnAThreadThatMayBlock(mayAsk: Bool) async throws {
        let connection = try MessageChannelTests.Connection(Services())
        defer { connection.end() }
        let identity = try Zoo.authority.get().issue("client")
        let fields = KeyRequestFields(
            mayAsk: mayAsk, key: KeyReference(publicKey: identity.key.publicKey, uri: "test:key"),
            chain: [Data(identity.certificate.derRepresentation)])
        let params = String(decoding: try JSONEncoder().encode(fields), as: UTF8.self)
        let names = [
            "open", "holds", "find", "make", "import", "list", "identity", "storeChain", "keepOnly", "destroy",
            "announce",
        ]
        for (number, name) in names.enumerated() {
            try connection.send(#"{"id":\#(number),"request":"key.\#(name)","params":\#(params)}"#)
            // Not in this task: the threads of tasks are few.
            let answer = await withCheckedContinuation { continuation in
                Thread.detachNewThread { continuation.resume(returning: connection.line(atMost: 600_000)) }
            }
            #expect(answer?.contains("There is no key store.") == true, "\(name): \(answer ?? "")")
        }
        #expect(connection.services.opened.withLock(\.self) == names.map { _ in true })
    }

    @Test("A key signs the digests of the other side if it says so")
    func aKeySignsDigestsIfItSaysSo() async throws {
        let connection = try MessageChannelTests.Connection(Services())
        defer { connection.end() }
        let key = try SoftwareKey.generate(.p256, location: .file)
        let (named, other) = (
            try connection.services.name(key),
            try connection.services.name(SoftwareKey.generate(.ed25519, location: .file))
        )
        #expect(named.digestSchemes == named.schemes && named.use == ["sign"])
        #expect(other.digestSchemes == nil && other.use == ["sign"])
        func answer(_ id: String?, _ scheme: String, _ digest: [UInt8]) async throws -> String {
            let digest = Data(digest).base64EncodedString()
            try connection.send(
                #"{"id":7,"request":"key.signDigest","params":{"key":"\#(id ?? "")","scheme":"\#(scheme)","digest":"\#(digest)"}}"#
            )
            return await withCheckedContinuation { continuation in
                Thread.detachNewThread { continuation.resume(returning: connection.line(atMost: 600_000) ?? "") }
            }
        }
        struct Answer: Decodable { var result: SignatureAnswer }
        let (message, scheme) = (Array("message".utf8), SignatureScheme.ecdsaP256SHA256)
        let digest = DigestAlgorithm.sha256.digest(of: message)
        let line = try await answer(named.id, scheme.description, digest)
        let signature = try JSONDecoder().decode(Answer.self, from: Data(line.utf8)).result.signature
        #expect(key.publicKey.isValidSignature([UInt8](signature), for: message, using: scheme))
        for (id, scheme, digest, code) in [
            (named.id, scheme.description, Array(digest.dropLast()), "malformedData"),
            (named.id, "ed25519", digest, "unsupportedAlgorithm"), (named.id, "none", digest, "unsupportedAlgorithm"),
            (other.id, "ed25519", digest, "unsupportedAlgorithm"), ("unknown", scheme.description, digest, "notFound"),
        ] {
            let line = try await answer(id, scheme, digest)
            #expect(line.contains(#""code":"\#(code)""#), "\(line)")
        }
    }

    /// The fields that any of the requests needs.
    private struct KeyRequestFields: Encodable {
        var store = "test:"
        var uri = "test:key"
        let mayAsk: Bool
        let key: KeyReference
        let chain: [Data]
        var type = "p256"
        var label = "label"
        var pkcs8 = ["secret": ""]
    }

    private struct Nowhere: PeerSource {
        var livePeer: Peer? { nil }
        func peer() throws(ProviderError) -> Peer {
            throw ProviderError(.unavailable, "There is no other side.")
        }
        let timeout = Duration.seconds(20)
        let executor = BlockingExecutor.threads()
        func describing(_ error: ProviderError) -> ProviderError { error }
        var currentRequest: UInt64? { nil }
    }

    @Test(
        "The time that a key takes to sign is limited, whatever number it names",
        arguments: [
            ("1e30", 60), ("1.7e308", 60), ("61", 60), ("30", 30), ("2", 2), ("0", 20), ("-1e30", 20), ("null", 20),
        ])
    func theTimeOfASignatureIsLimited(number: String, seconds: Int) throws {
        let publicKey = try SoftwareKey.generate(.p256, location: .file).publicKey
        let text = Data(publicKey.derRepresentation).base64EncodedString()
        let wire = try JSONDecoder().decode(
            WireKey.self, from: Data(#"{"id":"k","publicKey":"\#(text)","schemes":[],"timeout":\#(number)}"#.utf8))
        let key = try RemoteKey(wire, Nowhere(), knownTo: nil) { _, _ in nil }
        #expect(key.signatureTimeout == .seconds(seconds))
    }

    @Test("A plugin chooses no library and no PIN file for an identity")
    func aPluginChoosesNoLibraryForAnIdentity() throws {
        let stores = UsableKeyStores(
            [:], in: .none, texts: ["pkcs11:token=a?module-path=/configured.so", "other"], sources: [])
        for uri in [
            "pkcs11:token=a;object=b", "pkcs11:token=a?module-path=/configured.so",
            // As a listing names the keys of that store.
            "pkcs11:token=a;object=b?module-path=/configured.so",
        ] { #expect(throws: Never.self, "\(uri)") { try stores.permit(uri) } }
        for uri in [
            "pkcs11:token=a?module-path=/of-the-plugin.so", "pkcs11:token=a?pin-source=/etc/shadow", "pkcs11:token=a?",
            "pkcs11:token=a?module-path=/configured.so&pin-source=/etc/shadow",
        ] {
            let error = #expect(throws: ProviderError.self, "\(uri)") { try stores.permit(uri) }
            #expect(error?.code == .operationNotAllowed)
        }
    }
}
