import CertificateProviding
import Glibc
import IdentityStore
import Synchronization
import TestSupport
import Testing

/// The key store `store:`.
@Suite struct SealedKeyStoreTests {
    private let storage = InMemoryStorage()

    private func store(_ storage: InMemoryStorage? = nil) -> SealedKeyStore {
        SealedKeyStore(environment: .testing(storage: storage ?? self.storage))
    }

    private func make(
        _ store: SealedKeyStore, _ type: KeyType = .p256, label: String = "key"
    ) async throws -> (any IdentityKey, KeyReference) {
        let written = Mutex<KeyReference?>(nil)
        let key = try await store.make(NewKey(type, label: label), NoUserInteraction()) { key in
            written.withLock { $0 = store.reference(to: key) }
        }
        return (key, try #require(written.withLock { $0 }))
    }

    private func isValid(_ key: any IdentityKey) async throws -> Bool {
        let scheme = try #require(key.signatureSchemes.first)
        let signature = try await key.signature(for: [1, 2, 3], using: scheme)
        return key.publicKey.isValidSignature(signature, for: [1, 2, 3], using: scheme)
    }

    @Test(arguments: KeyType.allCases.filter { $0 != .rsa3072 && $0 != .rsa4096 })
    func aKeyIsFoundAgainAfterARestart(type: KeyType) async throws {
        let (key, reference) = try await make(store(), type)
        #expect(key.location == .store && key.exporter != nil && key.uri == reference.uri)
        let later = store()
        #expect(later.holds(keyURI: reference.uri) && !later.holds(keyURI: "pkcs11:token=x"))
        let found = try #require(try later.storedKey(for: reference))
        #expect(found.publicKey == key.publicKey && found.uri == key.uri)
        #expect(try await isValid(found))
        let listed = try await later.list()
        #expect(listed.map(\.reference.uri) == [reference.uri] && listed.map(\.label) == ["key"])
    }

    @Test func destroyingTwiceSucceedsAndLeavesTheOthers() async throws {
        let store = store()
        let (_, first) = try await make(store)
        let (second, other) = try await make(store)
        for _ in 0..<2 {
            try store.destroyStored(first)
            try await store.destroy(first, NoUserInteraction())
            #expect(try store.storedKey(for: first) == nil)
        }
        #expect(try store.storedKey(for: other)?.publicKey == second.publicKey)
        try store.destroyStored(other)
        #expect(try storage.recordNames().isEmpty)
    }

    @Test("A key is destroyed, too, that a killed process has left beside its record", arguments: [true, false])
    func whatAKilledProcessLeftIsDestroyed(isOnlyThere: Bool) async throws {
        let fixture = try StoreFixture()
        let store = SealedKeyStore(environment: .testing(storage: fixture.storage(ProviderID("store"))))
        let (_, key) = try await make(store)
        let files = fixture.directory.contents().filter { $0.hasPrefix("state/records/store/keys-") }
        let file = fixture.directory[try #require(files.first)]
        let leftover = fixture.directory["state/records/store/.tmp-new"]
        #expect(isOnlyThere ? rename(file, leftover) == 0 : link(file, leftover) == 0)
        try store.destroyStored(key)
        #expect(!fixture.directory.contents().contains { $0.hasPrefix("state/records/store/") })
    }

    /// Neither where it cannot be written down, nor where the process ends before it is.
    @Test func aKeyThatIsNotWrittenDownIsNotStored() async throws {
        let store = store()
        await #expect(throws: ProviderError.self) {
            _ = try await store.make(NewKey(.p256, label: "key"), NoUserInteraction()) {
                _ throws(ProviderError) in
                #expect(try self.storage.recordNames().isEmpty)
                throw ProviderError(.storeWriteFailed, "The disk is full.")
            }
        }
        #expect(try await store.list().isEmpty)
    }

    @Test func aKeyThatCannotBeStoredIsAnError() async throws {
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        await #expect(throws: ProviderError.self) { _ = try await make(store()) }
        storage.fail(with: nil)
        #expect(try await store().list().isEmpty)
    }

    @Test func onlyRSADecrypts() async throws {
        #expect(
            store().makes[.p256] == .signing && store().makes[.rsa2048]?.decryptionSchemes == DecryptionScheme.known)
        for use in [KeyUse.pkcs1Decryption, .oaepDecryption] {
            await #expect {
                _ = try await store().make(NewKey(.p256, label: "", use: use), NoUserInteraction()) { _ in }
            } throws: { ($0 as? ProviderError)?.code == .unsupportedAlgorithm }
        }
    }

    @Test(arguments: [.signing, [.signing, .pkcs1Decryption], .pkcs1Decryption, .oaepDecryption] as [KeyUse])
    func aKeyDoesOnlyWhatItIsMadeFor(use: KeyUse) async throws {
        let key = try await store().make(NewKey(.rsa2048, label: "", use: use), NoUserInteraction()) { _ in }
        let found = try #require(try store().storedKey(for: store().reference(to: key)))
        for key in [key, found] {
            #expect((key.decrypter?.decryptionSchemes ?? []) == use.decryptionSchemes)
            #expect(key.signatureSchemes.isEmpty == !use.contains(.signing))
            for scheme in use.decryptionSchemes {
                let ciphertext = try scheme.opensslEncrypt([1, 2, 3], for: key.publicKey)
                #expect(try await key.decrypter?.decrypt(ciphertext, using: scheme) == SecretBytes(copying: [1, 2, 3]))
            }
        }
    }

    @Test("More keys are stored than one record of the store can have")
    func manyKeys() async throws {
        let directory = try TemporaryDirectory()
        let storage = IdentityStore(path: directory["state"]).storage(for: ProviderID("store"))
        let store = SealedKeyStore(environment: .testing(storage: storage))
        // A record has at most 1 MiB.
        let label = String(repeating: "x", count: 16 << 10)
        var references: [KeyReference] = []
        for _ in 0..<80 {
            let key = try await store.make(NewKey(.p256, label: label), NoUserInteraction()) { _ in }
            references.append(store.reference(to: key))
        }
        #expect(try await store.list().count == 80)
        for reference in references {
            #expect(try store.storedKey(for: reference)?.publicKey == reference.publicKey)
            try store.destroyStored(reference)
        }
        #expect(try await store.list().isEmpty)
    }

    /// One public key has several encodings: a certificate may have another one than the store.
    @Test func aKeyIsFoundByAnotherEncoding() async throws {
        let (key, reference) = try await make(store())
        var compressed = key.publicKey.derRepresentation
        let point = compressed.suffix(65)
        // The header of a point with 33 octets: SEQUENCE 57, BIT STRING 34.
        compressed =
            [0x30, 57] + compressed[2..<23] + [0x03, 34, 0] + [point.last.map { 2 + $0 & 1 } ?? 2]
            + point.dropFirst().prefix(32)
        let other = try PublicKeyInfo(derRepresentation: compressed)
        #expect(other.derRepresentation != key.publicKey.derRepresentation && other == key.publicKey)
        let found = KeyReference(publicKey: other, uri: reference.uri)
        #expect(try store().storedKey(for: found) != nil)
        try store().destroyStored(found)
        #expect(try await store().list().isEmpty)
    }

    @Test func aKeyIsTakenIn() async throws {
        let made = try SoftwareKey.generate(.p384, location: .file)
        let new = NewKey(pkcs8: try made.pkcs8Representation(), label: "made")
        let key = try await store().make(new, NoUserInteraction()) { _ in }
        #expect(key.publicKey == made.publicKey && key.location == .store)
        #expect(try store().storedKey(for: store().reference(to: key)) != nil)
    }

    @Test(
        "A damaged record of keys, and one of a newer version, is an error and stays",
        arguments: [
            [4], [0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 9], [0, 0, 0, 0, 1, 2], [1, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1] + [1, 2, 3, 4].flatMap { [$0, 0, 0, 0, 0] },
        ] as [[UInt8]])
    func aDamagedRecordIsAnErrorAndStays(record: [UInt8]) async throws {
        let names = (0..<256).map { "keys-" + [UInt8($0)].hexEncoded }
        for name in names { try storage.updateRecord(named: name) { _ in SecretBytes(copying: record) } }
        for work in [{ _ = try await self.make(self.store()) }, { _ = try await self.store().list() }] {
            await #expect {
                try await work()
            } throws: { ($0 as? ProviderError)?.code == .storeReadFailed }
        }
        for name in names { #expect(try storage.record(named: name) == SecretBytes(copying: record)) }
    }

    @Test(arguments: ["store:x", "store://x", "store:?pin-source=/x"]) func theURINamesNothingMore(uri: String) {
        #expect {
            _ = try ProviderEnvironment.testing().keyStores.store(uri)
        } throws: { ($0 as? ProviderError)?.code == .configurationInvalid }
    }

    @Test("The URI store: means the sealed key store", arguments: ["store:", "STORE:"])
    func itsURIIsTheScheme(uri: String) throws {
        #expect(try ProviderEnvironment.testing().keyStores.store(uri).scheme == "store")
    }

    @Test("The sealed key store refuses the source of a PIN")
    func itHasNoPIN() {
        #expect {
            _ = try ProviderEnvironment.testing().keyStores.store("store:", pinSource: .prompt)
        } throws: { ($0 as? ProviderError)?.message.contains("has no PIN") == true }
    }

    @Test("A check reads every record, and writes none")
    func aCheckReadsEveryRecord() async throws {
        try await store().check(NoUserInteraction())
        #expect(try storage.record(named: "keys-2a") == nil)
        try storage.updateRecord(named: "keys-2a") { _ in SecretBytes(copying: [99]) }
        await #expect {
            try await store().check(NoUserInteraction())
        } throws: { ($0 as? ProviderError)?.code == .storeReadFailed }
    }

    @Test("A destruction says whether the key was there")
    func aDestructionAnswers() async throws {
        let (_, reference) = try await make(store())
        #expect(try await store().destroy(reference, NoUserInteraction()))
        #expect(try !store().destroyStored(reference))
    }

    @Test("The sealed key store makes no key that can never be exported")
    func itRefusesWhatItCannotGuarantee() async throws {
        let keys = [
            NewKey(.p256, label: "", guarantees: [.neverExportable]),
            NewKey(pkcs8: SecretBytes(copying: [1]), label: "", guarantees: [.neverExportable]),
            NewKey(.p256, label: "", guarantees: [.exportable, KeyGuarantee(rawValue: "of a later version")]),
        ]
        for new in keys {
            await #expect {
                _ = try await store().make(new, NoUserInteraction()) { _ in }
            } throws: { ($0 as? ProviderError)?.code == .unsupportedAlgorithm }
        }
        let key = try await store().make(NewKey(.p256, label: "", guarantees: [.exportable]), NoUserInteraction()) {
            _ in
        }
        #expect(key.exporter != nil && store().certificates == nil)
    }

    @Test func chainsAreForTheirKeys() async throws {
        let (key, _) = try await make(store())
        await #expect {
            try await store().storeChain(
                [try TestAuthority().issue("other").certificate], for: key, NoUserInteraction())
        } throws: { ($0 as? ProviderError)?.code == .keyMismatch }
    }
}

extension SealedKeyStore {
    fileprivate func reference(to publicKey: PublicKeyInfo) -> KeyReference {
        KeyReference(publicKey: publicKey, uri: "store:\(publicKey.sha256.hexEncoded)")
    }
}
