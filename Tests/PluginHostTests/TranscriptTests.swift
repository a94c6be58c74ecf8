import CertificateProviding
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import PluginHost
@testable import PluginProtocol

/// Documentation/PluginTranscript.md.
struct Transcript: Sendable {
    struct Line: Sendable {
        let isOfHost: Bool
        let json: Data
    }
    struct Block: Sendable {
        let name: String
        /// The block that comes before it.
        let before: String?
        let lines: [Line]
    }

    static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..").standardized
    static let path = root.appending(path: "Documentation/PluginTranscript.md").path
    static let page = Result { try Transcript(try text("Documentation/PluginTranscript.md")) }

    static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    let blocks: [Block]

    init(_ page: String) throws {
        blocks = try page.components(separatedBy: "```").filter { $0.hasPrefix("transcript\n") }.map { text in
            let head = try #require(text.firstMatch(of: /# ([\w-]+)(?:, after ([\w-]+))?\n/))
            let lines = text.matches(of: /(?m)^([<>]) (.*\n(?:[^<>#`].*\n)*)/)
            return Block(
                name: String(head.1), before: head.2.map(String.init),
                lines: lines.map { Line(isOfHost: $0.1 == ">", json: Data($0.2.utf8)) })
        }
    }

    subscript(name: String) -> Block? { blocks.first { $0.name == name } }

    /// The blocks of a session from the start of the plugin to its end.
    func session(_ name: String) throws -> [Block] {
        let block = try #require(self[name], "The page has no session '\(name)'.")
        return (try block.before.map(session) ?? []) + [block]
    }
}

/// The page agrees with the code and with the protocol's own page.
struct TranscriptTests {
    /// How the code reads and writes the messages.
    private static let forms:
        [String: (params: any (Codable & SendableMetatype).Type, result: any (Codable & SendableMetatype).Type)] = [
            "hello": (Hello.Request.self, Hello.self), "configure": (Configure.self, Nothing.self),
            "obtain": (MayAsk.self, IdentityAnswer.self), "stored": (Nothing.self, IdentityAnswer.self),
            "forget": (Nothing.self, Nothing.self), "list": (Nothing.self, WireList.self),
            "announceDeletions": (Nothing.self, Sentences.self),
            "discardReplaced": (DiscardReplaced.self, Nothing.self), "advice": (AdviceRequest.self, AdviceAnswer.self),
            "revoke": (Revoke.self, Nothing.self), "closeAccount": (MayAsk.self, Nothing.self),
            "shutdown": (Nothing.self, Nothing.self),
            "prompt": (Prompt.self, PromptAnswer.self), "secret": (SecretRequest.self, SecretAnswer.self),
            "record.read": (StorageRequest.self, RecordAnswer.self),
            "record.write": (StorageRequest.self, WriteAnswer.self),
            "entry.read": (StorageRequest.self, EntryAnswer.self), "entry.write": (StorageRequest.self, Nothing.self),
            "storage.list": (StorageListRequest.self, StorageNames.self),
            "entry.remove": (StorageRequest.self, Nothing.self), "lease.take": (StorageRequest.self, LeaseAnswer.self),
            "lease.look": (StorageRequest.self, LeaseAnswer.self), "lease.note": (StorageRequest.self, Nothing.self),
            "lease.release": (StorageRequest.self, Nothing.self), "remember": (Remember.self, Nothing.self),
            "key.open": (KeyRequest.self, KeyStoreAnswer.self), "key.holds": (KeyRequest.self, HoldsAnswer.self),
            "key.make": (KeyRequest.self, KeyAnswer.self), "key.import": (KeyRequest.self, KeyAnswer.self),
            "key.find": (KeyRequest.self, KeyAnswer.self), "key.list": (KeyRequest.self, KeysAnswer.self),
            "key.identity": (KeyRequest.self, IdentityAnswer.self), "key.storeChain": (KeyRequest.self, Nothing.self),
            "key.keepOnly": (KeyRequest.self, Nothing.self), "key.destroy": (KeyRequest.self, DestroyAnswer.self),
            "key.check": (KeyRequest.self, Nothing.self),
            "key.announce": (KeyRequest.self, Sentences.self), "key.sign": (Sign.self, SignatureAnswer.self),
            "key.signDigest": (SignDigest.self, SignatureAnswer.self),
            "key.decrypt": (Decrypt.self, DecryptAnswer.self), "key.attest": (Attest.self, AttestAnswer.self),
            "progress": (Progress.self, Nothing.self),
            "log": (LogLine.self, Nothing.self), "cancel": (MessageChannel.Cancel.self, Nothing.self),
            "updated": (Nothing.self, Nothing.self),
        ]

    @Test func thePageHasTheFieldsOfTheCodeAndNoOthers() throws {
        let page = try Transcript.page.get()
        let publicKey = try SoftwareKey.generate(.p256, location: .file).publicKey.derRepresentation
        var fields = Fields()
        for block in page.blocks {
            var requests: [String: String] = [:]
            for line in try page.session(block.name).flatMap(\.lines) {
                let text = String(decoding: line.json, as: UTF8.self)
                let json = try JSONSerialization.jsonObject(with: line.json)
                let message = try #require(
                    Self.concrete(json, Data(publicKey).base64EncodedString()) as? [String: Any], "\(text)")
                _ = try Message(line: [UInt8](try JSONSerialization.data(withJSONObject: message)))
                let name = message["request"] as? String ?? message["notice"] as? String
                if let id = message["id"], let name { requests["\(line.isOfHost) \(id)"] = name }
                if name?.hasPrefix("x-") == true { continue }
                let form: (any (Codable & SendableMetatype).Type)?
                if message["error"] != nil {
                    form = WireError.self
                } else if let name {
                    form = Self.forms[name]?.params
                } else {
                    form = requests["\(!line.isOfHost) \(message["id"] ?? 0)"].flatMap { Self.forms[$0]?.result }
                }
                let type = try #require(form, "\(text)")
                let value = try Self.check(message["error"] ?? message["params"] ?? message["result"], type, text)
                fields.add(value, of: line.isOfHost ? ">" : "<")
            }
        }
        #expect(fields.known.subtracting(fields.seen).symmetricDifference(Self.unused) == [])
    }

    /// The fields of messages, and of all that is in them, by the side that sends them.
    private struct Fields {
        var known: Set<String> = []
        var seen: Set<String> = []

        mutating func add(_ value: Any, of side: String) {
            let (mirror, type) = (Mirror(reflecting: value), String(reflecting: type(of: value)))
            for child in mirror.children {
                if mirror.displayStyle == .struct, type.hasPrefix("PluginProtocol."), let name = child.label {
                    let (field, text) = (Mirror(reflecting: child.value), "\(side) \(type.dropFirst(15)).\(name)")
                    known.insert(text)
                    if field.displayStyle != .optional || !field.children.isEmpty { seen.insert(text) }
                }
                add(child.value, of: side)
            }
        }
    }

    /// Not on the page: the host has no request of its own that belongs to one of the plugin's, and hands over no private key.
    /// Its errors have the same fields as those of plugins. No key on the page has a form that only its place can use.
    private static let unused: Set = [
        "> KeyRequest.for", "> WireIdentity.trust", "> WireIdentity.usage", "> WireKey.pkcs8", "> WireError.nativeCode",
        "> WireError.retryAfter",
        "> WireError.reason", "> WireKey.wrapped", "> WireKey.wrappedLabel", "< WireKey.wrapped",
        "< WireKey.wrappedLabel",
    ]

    /// Puts values in place of ellipses, and leaves out nulls.
    private static func concrete(_ json: Any, _ publicKey: String, _ name: String = "") -> Any {
        switch json {
        case let fields as [String: Any]:
            return fields.filter { $0.key != "…" && !($0.value is NSNull) }.reduce(into: [String: Any]()) {
                $0[$1.key] = concrete($1.value, publicKey, $1.key)
            }
        case let list as [Any]: return list.map { concrete($0, publicKey, name) }
        case let text as String where text == "…": return name == "publicKey" ? publicKey : "AAAA"
        default: return json
        }
    }

    /// A field that the type does not have is missing in what it writes.
    private static func check<Form: Codable>(_ fields: Any?, _ form: Form.Type, _ line: String) throws -> Any {
        let fields = try #require(fields as? [String: Any], "\(line)")
        let value = try JSONDecoder().decode(form, from: try JSONSerialization.data(withJSONObject: fields))
        let written = try JSONSerialization.jsonObject(with: try JSONEncoder().encode(value)) as? [String: Any]
        #expect(NSDictionary(dictionary: fields) == NSDictionary(dictionary: written ?? [:]), "\(line)")
        return value
    }

    @Test func thePageHasTheMessagesOfTheProtocolAndOfTheCode() throws {
        var page: [Bool: Set<String>] = [:]
        for line in try Transcript.page.get().blocks.flatMap(\.lines) {
            let message = try JSONSerialization.jsonObject(with: line.json) as? [String: Any]
            let name = message?["request"] as? String ?? message?["notice"] as? String ?? "x-"
            if !name.hasPrefix("x-") { page[line.isOfHost, default: []].insert(name) }
        }
        let sections = try Transcript.text("Documentation/PluginProtocol.md").components(separatedBy: "\n## ")
        func table(_ title: String) throws -> Set<String> {
            let rows = try #require(sections.first { $0.hasPrefix(title) }).matches(of: /\n\| (`.*?) \|/)
            return Set(rows.flatMap { $0.1.matches(of: /`([\w.]+)`/).map { String($0.1) } })
        }
        let (ofHost, ofPlugin) = (page[true] ?? [], page[false] ?? [])
        let both = try table("Key stores").union(["remember", "cancel"])
        #expect(try table("Requests of the host").union(both).symmetricDifference(ofHost) == [])
        #expect(try table("Requests of the plugin").union(both).symmetricDifference(ofPlugin) == [])

        func names(_ path: String) throws -> Set<String> {
            // The kinds of questions are not messages.
            let text = try Transcript.text("Sources/\(path)").components(separatedBy: "\nextension UserInteraction")[0]
            return Set(
                text.matches(of: /(?:case |request\.name == |\n {8})"([\w.]+)"(?: where [^:]*)?(?::| \{)/).map {
                    String($0.1)
                })
        }
        let common = try Set(KeyOperation.allCases.map(\.rawValue)).union(names("PluginProtocol/Peer.swift"))
        let server = try names("PluginKit/PluginServer.swift").union(common).subtracting(["prompt", "progress"])
        #expect(server.symmetricDifference(ofHost) == [])
        #expect(try names("PluginHost/HostServices.swift").union(common).symmetricDifference(ofPlugin) == [])
    }
}

/// The page is replayed: by the host with a scripted plugin, and by a plugin of PluginKit with a scripted host.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TranscriptReplayTests {
    private static let helper = Transcript.root.appending(path: "Tests/PluginHostTests/transcript.py").path
    /// The differences of PluginKit: it asks nothing without a user, sends no unknown messages, does not say how long an advice
    /// holds, and describes itself so that `key.open` follows.
    private static let notOfPluginKit: Set = ["unknown-to-host", "no-user", "keys-of-card", "no-advice"]
    private static let sessions = [
        "obtain", "obtain-own-key", "stored", "updated", "errors", "unknown-to-plugin", "unknown-to-host", "questions",
        "no-user", "secret", "records", "entries", "leases", "obtain-key-of-host", "other-keys-of-host",
        "keys-of-plugin", "other-keys-of-plugin", "keys-of-provider", "keys-of-card", "cancel",
        "advice", "no-advice",
    ]

    @Test func eachSessionIsPlayed() throws {
        let blocks = try Transcript.page.get().blocks
        #expect(Set(blocks.map(\.name)).subtracting(blocks.compactMap(\.before)) == Set(Self.sessions + ["end"]))
    }

    @Test(arguments: sessions.filter { !notOfPluginKit.contains($0) }) func aPluginPlays(_ session: String) throws {
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: "TestPlugin").path
        try Subprocess.run([
            "/usr/bin/python3", Self.helper, "host", Transcript.path, session, built, "transcript", session,
        ])
    }

    @Test(arguments: sessions) func theHostPlays(_ session: String) async throws {
        let stage = try Stage(session, Self.helper)
        do { try await Self.play(session, on: stage) } catch { Issue.record(error) }
        await stage.host.shutdown()
        // The first process was asked for its description.
        let report = try stage.report
        #expect(report == "played\nplayed\n", "\(report)")
    }

    private static let probe = Array("probe".utf8)

    /// A user who cannot be asked.
    private static func listener(_ onReport: @escaping @Sendable () -> Void) -> Person {
        Person(confirming: nil, canAsk: false, onReport: onReport)
    }

    private static func play(_ session: String, on stage: Stage) async throws {
        let (none, storage) = (NoUserInteraction(), stage.configuration)
        let user = Person { $0.contains("Your name") ? "alice" : "s3cret" }
        func isPending(_ interaction: Person) async throws {
            let provider = try stage.provider()
            #expect(await failure { _ = try await provider.getCertificate(interaction) }?.code == .pending)
        }
        switch session {
        case "obtain":
            let identity = try await stage.provider().getCertificate(none)
            #expect(identity.key.exporter != nil && identity.provenance.source == "https://vault.example.com")
        case "obtain-own-key":
            let key = try await stage.provider().getCertificate(none).key
            #expect(key.exporter == nil && key.signatureTimeout == .seconds(30))
            #expect(key.digestSigner?.digestSchemes == [.ecdsaP256SHA256] && key.use == .signing)
        case "stored":
            let provider = try stage.provider()
            let identity = try #require(try provider.getStoredCertificate())
            try await provider.replacement?.discardReplaced(by: identity, none)
            let list = try #require(await provider.listing?.listIdentities())
            #expect(list.identities.map(\.isStored) == [true, false] && list.identities[1].keyURI == "vault:mail")
            #expect(list.failures.map(\.code) == [.unavailable] && list.remarks.count == 1)
            #expect(list.otherObjects == ["vault:ca"])
            #expect(try list.choice?.get().alias == "web")
            #expect(try await provider.deletions?.announcedDeletions() == ["The certificate 'web' is revoked."])
            try provider.deleteStoredCertificate()
            #expect(try provider.getStoredCertificate() == nil)
            let choice = await provider.listing?.listIdentities().choice
            #expect(failure { _ = try choice?.get() }?.code == .notFound)
        case "advice":
            let provider = try stage.provider()
            let identity = try #require(try provider.getStoredCertificate())
            let advice = try #require(provider.advice)
            #expect(advice.advice(on: identity) == nil)
            #expect(await advice.refreshAdvice(on: identity))
            let window = Date(timeIntervalSince1970: 1_767_225_600)...Date(timeIntervalSince1970: 1_767_312_000)
            #expect(advice.advice(on: identity) == RenewalAdvice(window: window))
            #expect(await !advice.refreshAdvice(on: identity), "it holds for an hour")
            try await provider.revocation?.revokeStoredCertificate(.superseded, none)
            try await provider.revocation?.closeAccount(none)
        case "no-advice":
            let provider = try stage.provider()
            let identity = try #require(try provider.getStoredCertificate())
            #expect(await provider.advice?.refreshAdvice(on: identity) == true)
            #expect(provider.advice?.advice(on: identity) == nil)
            #expect(await provider.advice?.refreshAdvice(on: identity) == false)
        case "updated":
            let provider = try stage.provider()
            var updates = try #require(provider.updates).announcements().makeAsyncIterator()
            #expect(await updates.next() != nil)
            #expect(try provider.getStoredCertificate() == nil)
        case "errors":
            let provider = try stage.provider()
            let rejected = await failure { _ = try await provider.getCertificate(none) }
            #expect(rejected?.code == .rejected && rejected?.nativeCode == 403)
            #expect(await failure { _ = try await provider.getCertificate(none) }?.retryAfter == .seconds(60))
            let busy = await failure { _ = try await provider.getCertificate(none) }
            #expect(busy?.code == .operationNotAllowed && busy?.reason == .busy)
        case "unknown-to-plugin", "unknown-to-host":
            #expect(try stage.provider(sendingUnknown: session == "unknown-to-plugin").getStoredCertificate() == nil)
        case "questions":
            try await isPending(user)
            let heard = ["Connecting to vault.example.com", "Waiting for the approval 2.5 seconds"]
            #expect(user.reports == heard.map { "The plugin 'vault': \($0)" })
        case "no-user":
            let provider = try stage.provider()
            #expect(await failure { _ = try await provider.getCertificate(none) }?.code == .interactionRequired)
        case "secret":
            let provider = try stage.provider()
            #expect(await failure { _ = try await provider.getCertificate(none) }?.code == .rejected)
        case "records":
            let theirs = SecretBytes(utf8: "theirs")
            try await isPending(listener { try? storage.updateRecord(named: "orders") { _ in theirs } })
            #expect(try storage.record(named: "orders") == SecretBytes(utf8: "mine"))
            #expect(try stage.storage.record(named: "rejected") == SecretBytes(utf8: "mine"))
        case "entries":
            try await isPending(listener {})
        case "leases":
            try await isPending(listener { _ = try? storage.leaseRecord(named: "orders") })
            #expect(try storage.leaseRecord(named: "orders")?.isUnsettled == true)
        case "obtain-key-of-host":
            let identity = try await stage.provider().getCertificate(none)
            #expect(identity.key.uri == "hsm:web")
        case "other-keys-of-host":
            let store = try stage.environment.keyStores.store("hsm:")
            let old = try await store.make(NewKey(.p256, label: "old"), none) { _ in }
            _ = try await store.make(
                NewKey(.rsa2048, label: "rsa", use: [.signing, .pkcs1Decryption, .oaepDecryption]), none
            ) {
                _ in
            }
            let leaf = try Zoo.authority.get().certify(old.publicKey.derRepresentation, as: "old")
            try await store.storeChain([leaf, try Zoo.authority.get().intermediate], for: old, none)
            let provider = try stage.provider()
            #expect(await failure { _ = try await provider.getCertificate(none) }?.code == .notFound)
            #expect(try await store.list().map(\.reference.uri) == ["hsm:rsa", "hsm:web"])
        case "keys-of-plugin":
            try await useKeys(try stage.keyStore("vault:", pinSource: .environment("VAULT_PIN"), parameter: "key"))
        case "other-keys-of-plugin":
            try await useOtherKeys(try stage.keyStore("vault:"))
        case "keys-of-provider":
            let store = try #require(try stage.provider().keyStore)
            _ = try await store.make(NewKey(.p256, label: "web"), none) { _ in }
        case "keys-of-card":
            let store = try stage.keyStore("card:", ["slot": "3"])
            let reference = try #require(try await store.list().first?.reference)
            let key = try #require(try await store.key(for: reference, user))
            let signature = try await key.signature(for: probe, using: .ecdsaP256SHA256)
            #expect(key.publicKey.isValidSignature(signature, for: probe, using: .ecdsaP256SHA256))
            #expect(store.makes == [.p256: .signing] && store.location == .token && store.holds(keyURI: "card:1"))
            // It describes its key as plugins did that know no digests.
            #expect(key.digestSigner == nil && key.use == .signing)
            #expect(store.certificates == nil && store.properties.guarantees == [.neverExportable])
        case "cancel":
            let provider = try stage.provider()
            let user = Person { _ throws(ProviderError) in
                // Until the question is cancelled.
                try? await Task.sleep(for: .seconds(60))
                throw ProviderError(.userCancelled, "The question was cancelled.")
            }
            let task = Task { await failure { _ = try await provider.getCertificate(user) } }
            while user.timesAsked == 0 { await Task.yield() }
            task.cancel()
            #expect(await task.value?.code == .userCancelled)
        default: Issue.record("The host's part of the session '\(session)' is missing.")
        }
    }

    private static func useKeys(_ store: any KeyStore) async throws {
        let none = NoUserInteraction()
        let remembered = Mutex<String?>(nil)
        let key = try await store.make(NewKey(.p256, label: "web", guarantees: [.neverExportable]), none) { new in
            remembered.withLock { $0 = new.uri }
        }
        #expect(remembered.withLock(\.self) == "vault:web")
        let signature = try await key.signature(for: probe, using: .ecdsaP256SHA256)
        #expect(key.publicKey.isValidSignature(signature, for: probe, using: .ecdsaP256SHA256))
        let leaf = try Zoo.authority.get().certify(key.publicKey.derRepresentation, as: "web")
        try await store.storeChain([leaf, try Zoo.authority.get().intermediate], for: key, none)
        #expect(try await store.list().map(\.label) == ["web"])
        let reference = store.reference(to: key)
        #expect(try store.storedKey(for: reference)?.uri == "vault:web")
        #expect(try store.destroyStored(reference))
        #expect(try store.storedKey(for: reference) == nil)
    }

    private static func useOtherKeys(_ store: any KeyStore) async throws {
        let (none, identity) = (NoUserInteraction(), try Zoo.authority.get().issue("rsa", kind: .rsa2048))
        let pkcs8 = try #require(identity.key.exporter).pkcs8Representation()
        let key = try await store.make(NewKey(pkcs8: pkcs8, label: "rsa"), none) { _ in }
        #expect(key.decrypter?.decryptionSchemes == [.rsaOAEPSHA256, .rsaOAEPSHA1, .rsaPKCS1])
        #expect(
            try await key.decrypter?.decrypt([1, 2, 3], using: .rsaOAEPSHA256) == SecretBytes(utf8: "secret"))
        #expect(store.holds(keyURI: "vault:rsa"))
        try await store.storeChain(identity.certificateChain, for: key, none)
        let found = try await store.identity("vault:rsa", none)
        #expect(found.provenance.alias == "rsa" && found.key.publicKey == key.publicKey)
        let reference = store.reference(to: key)
        try await store.certificates?.removeOtherCertificates(than: found.certificate, of: reference, none)
        #expect(try await store.announceDestruction(of: reference).count == 1)
        try await store.check(none)
        let attestation = try await key.attester?.attestation(of: [UInt8](0..<32))
        #expect(attestation?.format == .tpm && attestation?.algorithm == -7 && attestation?.fields.count == 2)
    }
}

/// The host, and a plugin that plays a session.
private final class Stage: Sendable {
    let host: PluginHost
    let storage = InMemoryStorage()
    /// The part of the provider's configuration.
    var configuration: ConfigurationStorage {
        ConfigurationStorage(storage, distinguishedBy: ["url": "https://vault.example.com", "key": "hsm:"])
    }
    let environment: ProviderEnvironment
    private let folder: TemporaryDirectory
    private let session: String

    init(_ session: String, _ helper: String) throws {
        (self.session, folder) = (session, try TemporaryDirectory())
        let page = try Transcript.page.get()
        let blocks = try page.session(session)
        let id = session == "keys-of-card" ? "card" : "vault"
        let program = """
            #!/bin/sh
            exec /usr/bin/python3 '\(helper)' plugin '\(Transcript.path)' "$(cat '\(folder["session"])')" '\(folder["report"])'
            """
        try folder.install("certprov-plugin-\(id)", program.utf8)
        let logger = ProviderEnvironment.testing().logger
        host = PluginHost(PluginDirectories([folder.path]), logger: logger).sendingUnknownMessages(false)
        environment = .testing(
            storage: storage, variables: ["VAULT_TOKEN": "s3cret", "VAULT_PIN": "1234"],
            keyStores: [(ExampleKeyStore.descriptor(ProviderID("hsm")), InMemoryStorage())])
        // It describes itself in a process of its own.
        try folder.write(Array(blocks[0].name.utf8), to: "session")
        _ = try host.describe(try #require(ProviderID(rawValue: id)))
        try folder.write(Array(session.utf8), to: "session")
    }

    var report: String { get throws { String(decoding: try folder.read("report"), as: UTF8.self) } }

    func provider(sendingUnknown: Bool = false) throws -> any CertificateProvider {
        let parameters = ProviderParameters([
            "url": .init("https://vault.example.com"), "token-source": .init("env:VAULT_TOKEN"), "key": .init("hsm:"),
            "timeout": .init("60"),
        ])
        let host = host.sendingUnknownMessages(sendingUnknown)
        let descriptor = try #require(try host.provider(ProviderID("vault"), parameters))
        return try descriptor.makeProvider(environment, parameters)
    }

    func keyStore(
        _ uri: String, _ settings: [String: String] = [:], pinSource: SecretSource? = nil, parameter: String? = nil
    ) throws -> any KeyStore {
        let scheme = String(uri.dropLast())
        let parameters = ProviderParameters(settings.merging(["timeout": "60"]) { $1 }.mapValues { .init($0) })
        let descriptor = try #require(try host.keyStore(scheme, parameters))
        let environment = environment
        let stores = try ProviderRegistry(keyStores: [descriptor]).keyStores([scheme: parameters]) { _ in environment }
        return try stores.store(uri, pinSource: pinSource, parameter: parameter)
    }
}
