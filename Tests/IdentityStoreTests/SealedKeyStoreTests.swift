import CertificateProviding
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
        let key = try await store.make(type, label: label, use: .signing, NoUserInteraction()) { key in
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
        #expect(found.publicKey.isSameKey(as: key.publicKey) && found.uri == key.uri)
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
        #expect(try store.storedKey(for: other)?.publicKey.isSameKey(as: second.publicKey) == true)
    }

    /// Neither where it cannot be written down, nor where the process ends before it is.
    @Test func aKeyThatIsNotWrittenDownIsNotStored() async throws {
        let store = store()
        await #expect(throws: CertificateProviderError.self) {
            _ = try await store.make(.p256, label: "key", use: .signing, NoUserInteraction()) {
                _ throws(CertificateProviderError) in
                #expect(try store.list(self.storage).isEmpty)
                throw CertificateProviderError(.storeWriteFailed, "The disk is full.")
            }
        }
        #expect(try await store.list().isEmpty)
    }

    @Test func aKeyThatCannotBeStoredIsAnError() async throws {
        storage.fail(with: CertificateProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        await #expect(throws: CertificateProviderError.self) { _ = try await make(store()) }
        storage.fail(with: nil)
        #expect(try await store().list().isEmpty)
    }

    @Test func onlyRSADecrypts() async throws {
        #expect(
            store().makes[.p256] == .signing && store().makes[.rsa2048]?.decryptionSchemes == DecryptionScheme.known)
        for use in [KeyUse.pkcs1Decryption, .oaepDecryption] {
            await #expect {
                _ = try await store().make(.p256, label: "", use: use, NoUserInteraction()) { _ in }
            } throws: { ($0 as? CertificateProviderError)?.code == .unsupportedAlgorithm }
        }
    }

    @Test(arguments: [.signing, [.signing, .pkcs1Decryption], .pkcs1Decryption, .oaepDecryption] as [KeyUse])
    func aKeyDoesOnlyWhatItIsMadeFor(use: KeyUse) async throws {
        let key = try await store().make(.rsa2048, label: "", use: use, NoUserInteraction()) { _ in }
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

    /// Records of the first format, which had no uses, are read, and written anew with the next key.
    /// In the second one they had them, without OAEP: certprov of that time refuses the record that is written now.
    @Test(arguments: [1, 2] as [UInt8]) func aKeyOfAnOlderFormatStaysAndMayDoWhatItMight(format: UInt8) async throws {
        let old = try SoftwareKey.generate(.rsa2048, location: .store)
        let fields =
            [
                SecretBytes(copying: old.publicKey.derRepresentation), SecretBytes(utf8: "old"),
                try old.pkcs8Representation(),
            ] + (format == 1 ? [] : [SecretBytes(copying: [3])])
        let record = fields.reduce([format]) { record, field in
            record + withUnsafeBytes(of: UInt32(field.count).bigEndian, Array.init) + field.withUnsafeBytes(Array.init)
        }
        try storage.updateRecord(named: "keys") { _ in SecretBytes(copying: record) }
        let reference = KeyReference(publicKey: old.publicKey, uri: "store:\(old.publicKey.sha256.hexEncoded)")
        #expect(try store().storedKey(for: reference)?.decrypter?.decryptionSchemes == [.rsaPKCS1])
        let (_, new) = try await make(store(), .rsa2048, label: "new")
        #expect(try storage.record(named: "keys")?.withUnsafeBytes { $0.first } == 3)
        #expect(try await store().list().map(\.label) == ["old", "new"])
        let kept = try #require(try store().storedKey(for: reference))
        #expect(kept.decrypter?.decryptionSchemes == [.rsaPKCS1] && !kept.signatureSchemes.isEmpty)
        #expect(try store().storedKey(for: new)?.decrypter == nil)
        try store().destroyStored(reference)
        #expect(try await store().list().map(\.label) == ["new"])
    }

    @Test func aKeyIsTakenIn() async throws {
        let made = try SoftwareKey.generate(.p384, location: .file)
        let importer = try #require(store().importer)
        let key = try await importer.importKey(pkcs8: try made.pkcs8Representation(), label: "made") { _ in }
        #expect(key.publicKey.isSameKey(as: made.publicKey) && key.location == .store)
        #expect(try store().storedKey(for: store().reference(to: key)) != nil)
    }

    @Test(arguments: [[4], [0], [1, 0, 0, 0, 9], [1, 0, 0], [1, 0, 0, 0, 0]] as [[UInt8]])
    func aDamagedRecordIsAnErrorAndStays(record: [UInt8]) async throws {
        try storage.updateRecord(named: "keys") { _ in SecretBytes(copying: record) }
        await #expect {
            _ = try await make(store())
        } throws: { ($0 as? CertificateProviderError)?.code == .storeReadFailed }
        #expect(try storage.record(named: "keys") == SecretBytes(copying: record))
    }

    @Test(arguments: ["store:x", "store://x", "store:?pin-source=/x"]) func theURINamesNothingMore(uri: String) {
        #expect {
            _ = try ProviderEnvironment.testing().keyStores.store(uri)
        } throws: { ($0 as? CertificateProviderError)?.code == .configurationInvalid }
    }

    @Test("The URI store: means the sealed key store", arguments: ["store:", "store", "STORE:"])
    func itsURIIsTheScheme(uri: String) throws {
        #expect(try ProviderEnvironment.testing().keyStores.store(uri).scheme == "store")
    }

    @Test("The sealed key store refuses the source of a PIN")
    func itHasNoPIN() {
        #expect {
            _ = try ProviderEnvironment.testing().keyStores.store("store:", pinSource: .prompt)
        } throws: { ($0 as? CertificateProviderError)?.message.contains("has no PIN") == true }
    }

    @Test func chainsAreForTheirKeys() async throws {
        let (key, _) = try await make(store())
        await #expect {
            try await store().storeChain(
                [try TestAuthority().issue("other").certificate], for: key, NoUserInteraction())
        } throws: { ($0 as? CertificateProviderError)?.code == .keyMismatch }
    }
}

extension SealedKeyStore {
    /// The keys in a storage now.
    fileprivate func list(_ storage: InMemoryStorage) throws(CertificateProviderError) -> [UInt8] {
        try storage.record(named: "keys").map { $0.withUnsafeBytes { Array($0) } } ?? []
    }
}
