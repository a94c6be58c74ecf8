import CertificateProviding
import Crypto
import Foundation
import IdentityStore
import NamedKeys
import Signing
import Synchronization
import TestSupport
import Testing

@Suite(.enabled(if: TestLength.hasSeconds)) struct NamedKeysTests {
    private let storage = InMemoryStorage()
    private let keys: NamedKeys
    private let name, other, old: KeyName
    private let nobody = NoUserInteraction()
    private let text = SigningContent(Array("Grüße".utf8))

    init() throws {
        keys = NamedKeys(.testing(storage: storage))
        name = try #require(KeyName("a"))
        other = try #require(KeyName("other"))
        old = try #require(KeyName("old"))
    }

    /// The private keys in `store:`.
    private func sealed(_ storage: any IdentityStorage) async throws -> Set<PublicKeyInfo> {
        let store = SealedKeyStore(environment: .testing(storage: storage))
        return Set(try await store.list().map(\.reference.publicKey))
    }

    @Test("A pair of each type signs, and OpenSSL verifies with the exported key", arguments: KeyType.allCases)
    func eachType(type: KeyType) async throws {
        let made = try await keys.create(name, type: type, nobody)
        #expect(made.type == type && !made.isConfirmed && made.name == name)
        #expect(try await keys.exists(name))
        let found = try await keys.pair(named: name)
        #expect(found.publicKey == made.publicKey && found.publicKeyBase64 == made.publicKeyBase64)
        #expect(Data(base64Encoded: made.publicKeyBase64) == Data(made.publicKey.derRepresentation))
        let directory = try TemporaryDirectory()
        try directory.write(made.publicKeyPEM.utf8, to: "key.pem")
        try directory.write(Array("Grüße".utf8), to: "text")
        for hash in type.isRSA ? [nil, DigestAlgorithm.sha256, .sha512] : [nil] {
            let signature = try await keys.sign(text, with: name, hash: hash, nobody)
            try directory.write(signature, to: "signature")
            if type == .ed25519 {
                try Subprocess.openssl(
                    "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "key.pem", "-in", "text", "-sigfile",
                    "signature", in: directory.path)
            } else {
                let digest =
                    try made.scheme(hash).digestAlgorithm == .sha512
                    ? "-sha512" : made.scheme(hash).digestAlgorithm == .sha384 ? "-sha384" : "-sha256"
                try Subprocess.openssl(
                    "dgst", digest, "-verify", "key.pem", "-signature", "signature", "text", in: directory.path)
            }
        }
        if type.isRSA {
            #expect(try made.scheme() == .rsaPKCS1SHA512 && made.scheme(.sha256) == .rsaPKCS1SHA256)
        }
        #expect(try await keys.delete(name, nobody))
        #expect(try await sealed(storage).isEmpty && storage.recordNames().isEmpty)
    }

    @Test("RSA 2048 is the default")
    func theDefault() async throws { #expect(try await keys.create(name, nobody).type == .rsa2048) }

    @Test("A hash that a key does not sign with is refused")
    func anotherHash() async throws {
        try await keys.create(name, type: .p384, nobody)
        let pair = try await keys.pair(named: name)
        #expect(try pair.scheme(.sha384) == .ecdsaP384SHA384)
        #expect(await code { try await keys.sign(text, with: name, hash: .sha256, nobody) } == .unsupportedAlgorithm)
        try await keys.create(other, type: .rsa2048, nobody)
        #expect(await code { try await keys.sign(text, with: other, hash: .sha384, nobody) } == .unsupportedAlgorithm)
    }

    @Test("A name that exists is refused and keeps its pair; a name that does not is notFound")
    func namesInUse() async throws {
        let first = try await keys.create(name, type: .p256, nobody)
        #expect(await code { try await keys.create(name, type: .p256, nobody) } == .alreadyExists)
        #expect(try await keys.pair(named: name).publicKey == first.publicKey)
        #expect(try await sealed(storage) == [first.publicKey])
        #expect(try await !keys.exists(other))
        #expect(await code { try await keys.sign(text, with: other, nobody) } == .notFound)
        #expect(await code { try await keys.pair(named: other) } == .notFound)
        #expect(try await !keys.delete(other, nobody))
        #expect(try await keys.delete(name, nobody))
        #expect(try await !keys.delete(name, nobody))
        let second = try await keys.create(name, type: .p256, nobody)
        #expect(second.publicKey != first.publicKey)
        #expect(try await keys.list().map(\.name) == [name])
    }

    @Test("Of many tasks that create one name, one gets it")
    func atOnce() async throws {
        let codes = await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<8 {
                tasks.addTask {
                    let own = NamedKeys(.testing(storage: storage))
                    return await code { try await own.create(name, type: .p256, nobody) }
                }
            }
            return await tasks.reduce(into: []) { $0.append($1) }
        }
        #expect(codes.count { $0 == nil } == 1 && codes.count { $0 == .alreadyExists } == 7, "\(codes)")
        #expect(try await sealed(storage).count == 1)
    }

    @Test("While another process changes pairs, a change waits, and gives up in the end")
    func theLeaseIsWaitedFor() async throws {
        var environment = ProviderEnvironment.testing(storage: storage)
        let lease = Mutex(try storage.leaseRecord(named: "named-keys"))
        let waits = Mutex(0)
        environment.sleep = { _ in
            if waits.withLock({ waits in
                waits += 1; return waits
            }) == 5 {
                lease.withLock { $0 = nil }
            }
        }
        let person = Person(confirming: true)
        try await NamedKeys(environment).create(name, type: .p256, person)
        #expect(waits.withLock(\.self) == 5 && person.reports.count == 1)
        let held = try storage.leaseRecord(named: "named-keys")
        environment.sleep = { _ in }
        let error = await failure { try await NamedKeys(environment).delete(name, nobody) }
        #expect(error?.code == .operationNotAllowed && error?.reason == .busy)
        withExtendedLifetime(held) {}
    }

    // MARK: - Consent

    @Test("A pair that is confirmed asks before each use, with its name and the SHA-256 of the data")
    func consent() async throws {
        let made = try await keys.create(name, type: .p521, isConfirmed: true, nobody)
        #expect(made.isConfirmed)
        let person = Person(confirming: true)
        for _ in 0..<2 { _ = try await keys.sign(text, with: name, person) }
        let digest = Data(SHA256.hash(data: Data("Grüße".utf8))).map { String(format: "%02x", $0) }.joined()
        #expect(
            person.questions
                == [String](
                    repeating: "Sign 7 bytes with the key pair 'a'? Their SHA-256 is \(digest).", count: 2))
        let decliner = Person(confirming: false)
        #expect(await code { try await keys.sign(text, with: name, decliner) } == .userCancelled)
        #expect(await code { try await keys.sign(text, with: name, nobody) } == .interactionRequired)
        // In another process, too.
        let other = NamedKeys(.testing(storage: storage))
        #expect(await code { try await other.sign(text, with: name, nobody) } == .interactionRequired)
        #expect(try await other.delete(name, nobody))
    }

    // MARK: - Content

    @Test("Large content is signed by its digest, and refused where the key needs it as a whole")
    func largeContent() async throws {
        let large = [UInt8](repeating: 7, count: 64 << 20) + [1]
        let directory = try TemporaryDirectory()
        let path = try directory.write(large, to: "large")
        func file() throws -> FileHandle { try FileHandle(forReadingFrom: URL(filePath: path)) }
        let pair = try await keys.create(name, type: .p256, nobody)
        let first = try file()
        let content = SigningContent(descriptor: first.fileDescriptor, name: path)
        let signature = try await keys.sign(content, with: name, nobody)
        #expect(pair.publicKey.isValidSignature(signature, for: large, using: .ecdsaP256SHA256))
        try await keys.create(other, type: .ed25519, nobody)
        let second = try file()
        let error = await failure {
            try await keys.sign(SigningContent(descriptor: second.fileDescriptor, name: path), with: other, nobody)
        }
        #expect(error?.code == .unsupportedAlgorithm && error?.message.contains("64 MiB") == true)
        _ = try await keys.sign(SigningContent([]), with: other, nobody)
        withExtendedLifetime((first, second)) {}
    }

    // MARK: - Import

    private func pem(_ arguments: String, encrypted: Bool = false) throws -> (PEMFile, [UInt8]) {
        let directory = try TemporaryDirectory()
        try Subprocess.run(
            ["openssl", "genpkey", "-out", "key.pem"] + arguments.split(separator: " ").map(String.init),
            in: directory.path)
        if encrypted {
            try Subprocess.openssl(
                "pkcs8", "-topk8", "-in", "key.pem", "-out", "encrypted.pem", "-passout", "pass:secret",
                in: directory.path)
        }
        let text = try directory.read("key.pem")
        return (try PEMFile(encrypted ? directory.read("encrypted.pem") : text, named: "key.pem"), text)
    }

    @Test(
        "A private key is imported, encrypted or not, and signs",
        arguments: [
            "-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "-algorithm EC -pkeyopt ec_paramgen_curve:P-384",
            "-algorithm ED25519",
        ], [false, true])
    func anImport(arguments: String, isEncrypted: Bool) async throws {
        let (file, _) = try pem(arguments, encrypted: isEncrypted)
        if isEncrypted {
            let wrong = SecretBytes(utf8: "wrong")
            #expect(
                await code { try await keys.importKey(name, from: file, password: wrong, nobody) } == .wrongPassword)
            #expect(await code { try await keys.importKey(name, from: file, nobody) } == .wrongPassword)
            #expect(try storage.recordNames().isEmpty)
        }
        let pair = try await keys.importKey(
            name, from: file, password: isEncrypted ? SecretBytes(utf8: "secret") : nil, nobody)
        let signature = try await keys.sign(text, with: name, nobody)
        #expect(try pair.publicKey.isValidSignature(signature, for: Array("Grüße".utf8), using: pair.scheme()))
        // A second name for one key would lose it with the first.
        let password = isEncrypted ? SecretBytes(utf8: "secret") : nil
        #expect(
            await code { try await keys.importKey(other, from: file, password: password, nobody) }
                == .alreadyExists)
        #expect(await code { try await keys.importKey(name, from: file, password: password, nobody) } == .alreadyExists)
        #expect(try await keys.delete(name, nobody))
        #expect(try await sealed(storage).isEmpty)
    }

    @Test("A key that is in the store for something else, or an identity's, is not imported")
    func keysOfOthers() async throws {
        let (file, text) = try pem("-algorithm EC -pkeyopt ec_paramgen_curve:P-256")
        let block = try #require(try PEMFile(text, named: "x").blocks.first?.secret)
        let store = SealedKeyStore(environment: .testing(storage: storage))
        let other = try await store.make(NewKey(pkcs8: block, label: "identity"), nobody) { _ in }
        #expect(await code { try await keys.importKey(name, from: file, nobody) } == .alreadyExists)
        #expect(try await sealed(storage) == [other.publicKey])
        let (another, _) = try pem("-algorithm ED25519")
        let identity = try await NamedKeys(.testing()).importKey(name, from: another, nobody).publicKey
        #expect(
            await code { try await keys.importKey(name, from: another, notAmong: [identity], nobody) } == .alreadyExists
        )
        #expect(try await keys.list().isEmpty)
    }

    @Test("A file without exactly one private key is refused")
    func otherFiles() async throws {
        let (_, one) = try pem("-algorithm ED25519")
        for text in [one + one, Array("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".utf8), []] {
            let file = try PEMFile(text, named: "key.pem")
            #expect(await code { try await keys.importKey(name, from: file, nobody) } == .malformedData)
        }
    }

    @Test("An RSA key that is too small for every relying party is refused at the import")
    func smallKeys() async throws {
        let (file, _) = try pem("-algorithm RSA -pkeyopt rsa_keygen_bits:1024")
        #expect(await code { try await keys.importKey(name, from: file, nobody) } == .unsupportedAlgorithm)
        #expect(try await keys.list().isEmpty)
    }

    // MARK: - The record

    @Test("A record that is damaged or of a newer version is left alone")
    func otherRecords() async throws {
        for (text, reason) in [("{", ProviderError.Reason?.some(.damaged)), (#"{"version":2}"#, nil)] {
            let record = SecretBytes(utf8: text)
            try storage.updateRecord(named: "named-keys") { _ in record }
            for error in [
                await failure { try await keys.list() }, await failure { try await keys.create(name, nobody) },
                await failure { try await keys.delete(name, nobody) },
            ] { #expect(error?.code == .storeReadFailed && error?.reason == reason) }
            #expect(try storage.record(named: "named-keys") == record)
        }
    }

    // MARK: - Key stores that fail

    @Test("A signature that does not verify never leaves, and a key that makes one gets no name")
    func aFalseSignature() async throws {
        let device = FaultyStore.Device()
        let own = NamedKeys(FaultyStore.environment(storage, device))
        try await own.create(name, type: .p256, in: "faulty:", nobody)
        _ = try await own.sign(text, with: name, nobody)
        device.state.withLock { $0.lies = true }
        #expect(await code { try await own.sign(text, with: name, nobody) } == .keyMismatch)
        #expect(await code { try await own.create(other, type: .p256, in: "faulty:", nobody) } == .keyMismatch)
        #expect(try await !own.exists(other))
        #expect(try await sealed(storage).count == 1)
    }

    @Test("A pair whose private key cannot be destroyed stays, and one whose key is gone can be deleted")
    func deletionsThatFail() async throws {
        let device = FaultyStore.Device()
        let own = NamedKeys(FaultyStore.environment(storage, device))
        try await own.create(name, type: .p256, in: "faulty:", nobody)
        for fault in [FaultyStore.Fault.destroy, .check] {
            device.state.withLock { $0.fault = fault }
            #expect(await code { try await own.delete(name, nobody) } == .deleteFailed)
            device.state.withLock { $0.fault = nil }
            #expect(try await own.exists(name))
            _ = try await own.sign(text, with: name, nobody)
        }
        // The token is lost.
        device.state.withLock { $0.fault = .check }
        #expect(try await own.delete(name, keepingKey: true, nobody))
        #expect(try await !own.exists(name))
        device.state.withLock { $0.fault = nil }
        let pair = try await own.create(other, type: .p256, in: "faulty:", nobody)
        let reference = KeyReference(publicKey: pair.publicKey, uri: "")
        try SealedKeyStore(environment: .testing(storage: storage)).destroyStored(reference)
        #expect(await code { try await own.sign(text, with: other, nobody) } == .notFound)
        #expect(try await own.delete(other, nobody))
    }

    @Test("The key of this host's store is destroyed, whatever is to be kept")
    func noKeyIsKeptHere() async throws {
        try await keys.create(name, type: .p256, nobody)
        #expect(try await keys.delete(name, keepingKey: true, nobody))
        #expect(try await sealed(storage).isEmpty)
    }

    // MARK: - Kills

    /// Runs a change again and again, each time killed one step later, until it ends.
    private func killed(
        _ change: (NamedKeys) async throws -> Void,
        then check: (NamedKeys, _ isKilled: Bool) async throws -> Void
    ) async throws {
        for steps in 0..<200 {
            let (memory, power) = (InMemoryStorage(), Power())
            try await NamedKeys(.testing(storage: memory)).create(old, type: .p256, nobody)
            let hooked = HookedStorage(memory) { call, record throws(ProviderError) in
                switch call {
                // The check of the store reads all of its records.
                case .record where record != "named-keys", .entry, .setEntry: break
                case .record, .updateRecord, .updatedRecord: try power.spend()
                }
            }
            let dying = NamedKeys(.testing(storage: hooked))
            power.cut(after: steps)
            try? await change(dying)
            let isKilled = power.isOff
            let after = memory.afterCrash()
            let next = NamedKeys(.testing(storage: after))
            // Each name can be used.
            for pair in try await next.list() { _ = try await next.sign(text, with: pair.name, nobody) }
            try await check(next, isKilled)
            // The next change leaves no key without a name.
            try await next.create(other, type: .ed25519, nobody)
            #expect(try await sealed(after) == Set(try await next.list().map(\.publicKey)), "after \(steps) steps")
            if !isKilled {
                #expect(steps > 5)
                return
            }
        }
        Issue.record("The steps do not end.")
    }

    @Test func aCreationThatIsKilledAtAnyMomentLeavesNothing() async throws {
        try await killed {
            try await $0.create(name, type: .p256, nobody)
        } then: { next, isKilled in
            if try await !next.exists(name) {
                #expect(isKilled)
                try await next.create(name, type: .p256, nobody)
            }
            _ = try await next.sign(text, with: name, nobody)
        }
    }

    @Test func anImportThatIsKilledAtAnyMomentLeavesNothing() async throws {
        let (file, _) = try pem("-algorithm EC -pkeyopt ec_paramgen_curve:P-256")
        try await killed {
            try await $0.importKey(name, from: file, nobody)
        } then: { next, isKilled in
            if try await !next.exists(name) {
                #expect(isKilled)
                try await next.importKey(name, from: file, nobody)
            }
            _ = try await next.sign(text, with: name, nobody)
        }
    }

    @Test func aDeletionThatIsKilledAtAnyMomentIsCompletedByTheNextChange() async throws {
        try await killed {
            try await $0.delete(old, nobody)
        } then: { next, isKilled in
            let isThere = try await next.exists(old)
            #expect(isKilled || !isThere)
        }
    }
}

/// The key store `store:` under another name, with a fault.
private struct FaultyStore: KeyStore {
    enum Fault { case destroy, check }
    final class Device: Sendable {
        let state = Mutex<(lies: Bool, fault: Fault?)>((false, nil))
    }

    let store: SealedKeyStore
    let device: Device

    static func environment(_ storage: any IdentityStorage, _ device: Device) -> ProviderEnvironment {
        var environment = ProviderEnvironment.testing(storage: storage)
        environment.keyStores = KeyStores(schemes: ["faulty"]) { location in
            guard location.scheme == "faulty" else { return nil }
            return FaultyStore(store: SealedKeyStore(environment: .testing(storage: storage)), device: device)
        }
        return environment
    }

    var properties: KeyStoreProperties {
        KeyStoreProperties(scheme: "faulty", location: .token, makes: [.p256: .signing])
    }
    func holds(keyURI: String) -> Bool { keyURI.hasPrefix("faulty:") }

    private func fail(_ fault: Fault) throws(ProviderError) {
        if device.state.withLock({ $0.fault == fault }) { throw ProviderError(.deleteFailed, "It fails.") }
    }

    func check(_ interaction: any UserInteraction) async throws(ProviderError) { try fail(.check) }

    private func wrapped(_ key: any IdentityKey) -> any IdentityKey {
        TestKey(key, uri: "faulty:\(key.uri ?? "")") { [device] message, scheme throws(ProviderError) in
            let message = device.state.withLock(\.lies) ? message + [0] : message
            return try await key.signature(for: message, using: scheme)
        }
    }

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        wrapped(
            try await store.make(new, interaction) { key throws(ProviderError) in
                try await remember(wrapped(key))
            })
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? { try storedKey(for: key) }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try store.storedKey(for: key).map { wrapped($0) }
    }

    func list() async throws(ProviderError) -> [KeyDescription] { try await store.list() }

    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { try destroyStored(key) }

    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        try fail(.destroy)
        return try store.destroyStored(key)
    }
}
