import CertificateProviderTesting
import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import PKCS12FileProvider
import PluginHost
import TestSupport
import Testing

/// The same conformance suite in process and through the protocol.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ConformanceTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Installs a program of this package as a plugin.
    private func host(_ id: String, _ program: String) throws -> PluginHost {
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: program).path
        try directory.install("certprov-plugin-\(id)", copying: built)
        return host()
    }

    private func host() -> PluginHost {
        PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
    }

    /// The one of the documentation.
    @Test func thePythonExample() async throws {
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../../Documentation/WritingAPlugin.md")
        let blocks = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "```")
        let program = try #require(blocks.first { $0.hasPrefix("python\n") }).dropFirst("python\n".count)
        try directory.install("certprov-plugin-files", program.utf8)
        _ = try file()
        try FileManager.default.moveItem(atPath: directory["chain.pem"], toPath: directory["cert.pem"])
        let parameters = ProviderParameters(["directory": .init(directory.path)])
        let host = host()
        await check(try #require(try host.provider(ProviderID("files"), parameters)), parameters)
        await host.shutdown()
    }

    private func file() throws -> ProviderParameters {
        let identity = try TestAuthority().issue("conformance")
        let key = try #require(identity.key.exporter).pkcs8Representation()
        try directory.write(key.withUnsafeBytes { Array($0) }, to: "key.der")
        try Subprocess.openssl("pkey", "-in", "key.der", "-out", "key.pem", in: directory.path)
        let pem = identity.certificateChain.map {
            "-----BEGIN CERTIFICATE-----\n"
                + Data($0.derRepresentation).base64EncodedString(options: .lineLength64Characters)
                + "\n-----END CERTIFICATE-----\n"
        }
        try directory.write(Array(pem.joined().utf8), to: "chain.pem")
        try directory.write(Array("pass-of-the-file".utf8), to: "password")
        try Subprocess.openssl(
            "pkcs12", "-export", "-inkey", "key.pem", "-in", "chain.pem", "-out", "identity.p12", "-passout",
            "file:password", in: directory.path)
        return ProviderParameters([
            "path": .init(directory["identity.p12"]), "password-source": .init("file:\(directory["password"])"),
        ])
    }

    private func check(
        _ descriptor: ProviderDescriptor, _ parameters: ProviderParameters, checks: Int = 13
    ) async {
        let storage = InMemoryStorage()
        let report = await ProviderConformance(descriptor, parameters, secrets: ["pass-of-the-file"]) {
            .testing(storage: storage)
        }.run()
        #expect(report.isPassed && report.results.count == checks, "\(report)")
    }

    @Test func aPKCS12FileInProcess() async throws { await check(PKCS12FileProvider.descriptor, try file()) }

    @Test func aPKCS12FileInAPlugin() async throws {
        let (host, parameters) = (try host("pkcs12", "ExamplePlugin"), try file())
        // PluginKit announces deletions for each provider.
        await check(try #require(try host.provider(ProviderID("pkcs12"), parameters)), parameters, checks: 14)
        await host.shutdown()
    }

    @Test func theSealedStoreInProcess() async throws {
        let storage = InMemoryStorage()
        let report = await KeyStoreConformance { SealedKeyStore(environment: .testing(storage: storage)) }.run()
        #expect(report.isPassed && report.results.count == 11, "\(report)")
    }

    @Test func theSealedStoreInAPlugin() async throws {
        let host = try host("keys", "TestPlugin")
        let storage = InMemoryStorage()
        let descriptor = try #require(try host.keyStore("keys", ProviderParameters()))
        // A busy machine may take its time.
        let parameters = ["keys": ProviderParameters(["timeout": .init("300")])]
        let stores = try ProviderRegistry(keyStores: [descriptor]).keyStores(parameters) { _ in
            .testing(storage: storage)
        }
        let report = await KeyStoreConformance { try stores.store("keys:") }.run()
        #expect(report.isPassed && report.results.count == 11, "\(report)")
        await host.shutdown()
    }

    /// The engine, with a server that does not exist.
    @Test func anInventedServersIdentityInAPluginsStore() async throws {
        let host = try host("keys", "TestPlugin")
        let storage = InMemoryStorage()
        let descriptor = try #require(try host.keyStore("keys", ProviderParameters()))
        var environment = ProviderEnvironment.testing(variables: ["PASS": "open sesame"])
        environment.keyStores = try ProviderRegistry(keyStores: [descriptor]).keyStores(
            ["keys": ProviderParameters(["timeout": .init("300")])]
        ) { _ in .testing(storage: storage) }
        try await InventedServer().checkEnrolment(in: environment, key: "keys:")
        #expect(try await environment.keyStores.store("keys:").list().isEmpty)
        await host.shutdown()
    }

    /// A key store that breaks one demand fails the checks that are about it, and no other.
    @Test(arguments: FlawedKeyStore.Flaw.allCases) func aFlawedKeyStoreFails(flaw: FlawedKeyStore.Flaw) async throws {
        let storage = InMemoryStorage()
        let report = await KeyStoreConformance([.p256, .rsa2048], place: FlawedKeyStore.place) {
            FlawedKeyStore(flaw, storage)
        }.run()
        #expect(Set(report.failures.map(\.name)) == flaw.failures, "\(report)")
        // Also what the failed checks have made.
        let left = try await SealedKeyStore(environment: .testing(storage: storage)).list()
        #expect(left.isEmpty, "\(left)")
    }

    /// Unless the description says that the parameter does not distinguish identities.
    @Test(arguments: [nil, ["role"], []] as [[String]?]) func aProviderWithOneIdentityForAllConfigurationsFails(
        names: [String]?
    ) async throws {
        let storage = InMemoryStorage()
        let report = await ProviderConformance(
            mixingProvider(distinguishedBy: names), ProviderParameters(["role": .init("web")])
        ) { .testing(storage: storage) }.run()
        #expect(report.failures.map(\.name) == (names == [] ? [] : ["configurationsAreApart"]), "\(report)")
        #expect(report.results.contains { $0.name == "configurationsAreApart" } == (names != []))
    }

    /// A provider that breaks each demand that can be broken without a trap.
    @Test func aBadProviderFails() async throws {
        let report = await ProviderConformance(
            badProvider(secret: "hunter2"), ProviderParameters(), secrets: ["hunter2"]
        ) { .testing() }.run()
        let failed = Set(report.failures.map(\.name))
        #expect(
            failed == [
                "descriptionsShowNoSecret", "synchronousCallsAreBounded", "storedEqualsObtained",
                "keySignsInEveryScheme",
                "concurrentUse", "forgettingTwice", "abilities",
            ], "\(report)")
    }
}

/// The store `store:` with one flaw.
struct FlawedKeyStore: KeyStore {
    enum Flaw: CaseIterable {
        case decryptsWithEveryKey, decryptsWithNone, decryptsByEveryScheme, storesAnyChain, keepsWhatIsNotWrittenDown,
            destroysOnce, listsNothing, hasNoIdentity, keepsNoOther, announcesNothing, importsNothing, deniesKeys,
            guaranteesAnything, findsNothingWithoutURI, findsAnythingWithoutURI, hashesTheDigest, takesAnyDigest,
            saysThatItDecrypts, takesThePlaceForAKey, failsAtItsPlace, attestsNothing, attestsOtherData,
            attestsAnyLength

        var failures: Set<String> {
            switch self {
            case .decryptsWithEveryKey: ["rsa2048"]
            case .decryptsWithNone, .decryptsByEveryScheme: ["decryption"]
            case .storesAnyChain, .destroysOnce, .listsNothing, .hasNoIdentity, .keepsNoOther, .announcesNothing,
                .deniesKeys, .takesThePlaceForAKey, .failsAtItsPlace, .findsNothingWithoutURI, .findsAnythingWithoutURI,
                .hashesTheDigest, .takesAnyDigest:
                ["p256", "rsa2048"]
            case .saysThatItDecrypts: ["p256", "rsa2048", "decryption"]
            case .importsNothing: ["import"]
            case .guaranteesAnything: ["guarantees"]
            case .attestsNothing, .attestsOtherData, .attestsAnyLength: ["attestation"]
            case .keepsWhatIsNotWrittenDown: ["aKeyThatIsNotWrittenDownIsGone"]
            }
        }
    }
    static let place = "store:flawed"
    private let flaw: Flaw
    private let store: SealedKeyStore

    init(_ flaw: Flaw, _ storage: InMemoryStorage) {
        (self.flaw, store) = (flaw, SealedKeyStore(environment: .testing(storage: storage)))
    }

    var properties: KeyStoreProperties {
        let own = store.properties
        return KeyStoreProperties(
            scheme: own.scheme, location: own.location, makes: own.makes, importsKeys: own.importsKeys,
            attestsKeys: [.attestsNothing, .attestsOtherData, .attestsAnyLength].contains(flaw),
            guarantees: own.guarantees, query: own.query)
    }
    func check(_ interaction: any UserInteraction) async throws(ProviderError) {}
    func holds(keyURI: String) -> Bool { store.holds(keyURI: keyURI) }

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        guard let type = new.type else {
            if flaw == .importsNothing { throw Self.unsupported }
            return try await store.make(new, interaction, remember: remember)
        }
        var use = new.use
        if flaw == .decryptsWithEveryKey, type.isRSA, use == .signing { use = [.signing, .pkcs1Decryption] }
        if flaw == .decryptsWithNone { use = .signing }
        if flaw == .decryptsByEveryScheme, !use.decryptionSchemes.isEmpty { use = makes[type] ?? use }
        let guarantees = flaw == .guaranteesAnything ? [] : new.guarantees
        let flawed = NewKey(type, label: new.label, use: use, guarantees: guarantees)
        guard flaw == .keepsWhatIsNotWrittenDown else {
            return self.key(try await store.make(flawed, interaction, remember: remember))
        }
        let key = try await store.make(flawed, interaction) { _ in }
        try await remember(key)
        return key
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        if flaw == .findsNothingWithoutURI, key.uri.isEmpty { return nil }
        if flaw == .takesThePlaceForAKey, key.uri == Self.place { return nil }
        return try await store.key(for: key, interaction).map(self.key)
    }

    private func key(_ key: any IdentityKey) -> any IdentityKey {
        switch flaw {
        case .hashesTheDigest, .takesAnyDigest, .saysThatItDecrypts: FlawedKey(key: key, flaw: flaw)
        default: key
        }
    }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        if flaw == .findsAnythingWithoutURI, key.uri.isEmpty, try store.storedKey(for: key) == nil {
            return try SoftwareKey.generate(.p256, location: location)
        }
        return try store.storedKey(for: key).map(self.key)
    }

    func list() async throws(ProviderError) -> [KeyDescription] {
        flaw == .listsNothing ? [] : try await store.list()
    }

    var certificates: (any CertificateStoring)? {
        [.storesAnyChain, .hasNoIdentity, .keepsNoOther, .failsAtItsPlace].contains(flaw) ? self : nil
    }

    func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] {
        if flaw == .announcesNothing { throw Self.unsupported }
        return []
    }

    fileprivate static let unsupported = ProviderError(
        .protocolError, "The plugin does not support the request.")

    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { try destroyStored(key) }

    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        if flaw == .destroysOnce, try store.storedKey(for: key) == nil {
            throw ProviderError(.notFound, "There is no such key.")
        }
        return try store.destroyStored(key) && flaw != .deniesKeys
    }
}

extension FlawedKeyStore: CertificateStoring {
    func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        if flaw != .storesAnyChain { try await store.storeChain(chain, for: key, interaction) }
    }

    func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        if flaw == .hasNoIdentity || flaw == .failsAtItsPlace && uri == Self.place { throw Self.unsupported }
        return try await store.identity(uri, interaction)
    }

    func removeOtherCertificates(
        than leaf: X509Certificate, of key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        if flaw == .keepsNoOther { throw Self.unsupported }
    }
}

private struct FlawedKey: IdentityKey {
    let key: any IdentityKey
    let flaw: FlawedKeyStore.Flaw
    var publicKey: PublicKeyInfo { key.publicKey }
    var signatureSchemes: [SignatureScheme] { key.signatureSchemes }
    var location: KeyLocation { key.location }
    var uri: String? { key.uri }
    var use: KeyUse { flaw == .saysThatItDecrypts ? key.use.union(.oaepDecryption) : key.use }
    var decrypter: (any KeyDecrypting)? { key.decrypter }
    var digestSigner: (any DigestSigning)? { self }
    var attester: (any KeyAttesting)? { flaw == .attestsNothing ? nil : self }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] { try await key.signature(for: message, using: scheme) }
}

extension FlawedKey: KeyAttesting {
    private static let (tpm, other) = (try? InventedTPM(), try? InventedTPM(.otherData))

    func attestation(of data: [UInt8]) async throws(ProviderError) -> KeyAttestation {
        guard let tpm = flaw == .attestsOtherData ? Self.other : Self.tpm else {
            throw ProviderError(.internal, "The invented TPM cannot be made.")
        }
        let data = flaw == .attestsAnyLength ? Array((data + [UInt8](repeating: 0, count: 32)).prefix(32)) : data
        return try await tpm.attester(of: publicKey).attestation(of: data)
    }
}

extension FlawedKey: DigestSigning {
    var digestSchemes: [SignatureScheme] { key.digestSigner?.digestSchemes ?? [] }

    func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        if flaw == .hashesTheDigest {
            try requireDigest(digest, for: scheme)
            return try await key.signature(for: digest, using: scheme)
        }
        var digest = digest
        if flaw == .takesAnyDigest, let size = scheme.digestAlgorithm?.size {
            digest = digest.prefix(size) + [UInt8](repeating: 0, count: max(0, size - digest.count))
        }
        guard let signer = key.digestSigner else {
            throw ProviderError(.unsupportedAlgorithm, "The key signs no digests.")
        }
        return try await signer.signature(forDigest: digest, using: scheme)
    }
}

/// Stores the identity of each role under one name.
private func mixingProvider(distinguishedBy names: [String]?) -> ProviderDescriptor {
    let id = ProviderID("mixing")
    return ProviderDescriptor(
        id: id, displayName: "Mixing", summary: "Has one identity.",
        parameters: [Parameter.required("role", summary: "The role.").descriptor], distinguishedBy: names
    ) { environment, _ in
        StoringProvider(id, environment.storage) { try Zoo.authority.get().issue("mixing", provider: id) }
    }
}

/// Obtains another identity each time, stores none, announces deletions all the same, and signs with one scheme of two.
private func badProvider(secret: String) -> ProviderDescriptor {
    let provider = ScriptedProvider(ProviderID("bad"), path: secret)
    provider.get { _ throws(ProviderError) in
        do {
            let identity = try Zoo.authority.get().issue("bad", provider: ProviderID("bad"))
            let key = identity.key
            return try Identity(
                certificateChain: identity.certificateChain,
                key: TestKey(key, signatureSchemes: key.signatureSchemes + [.ed25519], location: key.location) {
                    message, _ throws(ProviderError) in try await key.signature(for: message, using: .ecdsaP256SHA256)
                }, provenance: identity.provenance)
        } catch { throw ProviderError(.internal, "\(error)") }
    }
    provider.deletion(.failure(ProviderError(.deleteFailed, "Nothing is stored.")))
    return provider.descriptor()
}
