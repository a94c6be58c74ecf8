public import CertificateProviding
import Crypto
import FoundationEssentials
import Synchronization

/// The key store `store:`: private keys in this host's identity store, sealed like identities.
///
/// The keys rest in 256 records, by the first octet of the SHA-256 of the public key: a record has a maximum size, and
/// is written whole. A key is written after its owner has written the key's URI down, so that a process that ends in between
/// leaves no key.
package final class SealedKeyStore: KeyStore {
    /// The scheme of its URIs: `store`.
    package static let scheme = "store"
    /// The part of the identity store that has the keys.
    package static let storageID = ProviderID("store")
    static let recordPrefix = "keys-"
    private static let records = (UInt8.min...UInt8.max).map { record(beginningWith: $0) }

    private let storage: any IdentityStorage
    private let executor: BlockingExecutor

    /// Creates the store. Does no I/O.
    ///
    /// - Parameter environment: With the part of the identity store that ``descriptor`` names.
    package init(environment: ProviderEnvironment) {
        storage = environment.storage
        executor = environment.executor
    }

    /// The entry of the key store for a ``/CertificateProviding/ProviderRegistry``. It has no parameters and no PIN.
    package static var descriptor: KeyStoreDescriptor {
        KeyStoreDescriptor(
            scheme: scheme, id: storageID, displayName: "Identity store",
            summary: "Private keys in this host's identity store, encrypted.", parameters: [], isExternal: false
        ) { environment, location, _ throws(ProviderError) in
            guard location.pinSource == nil else {
                throw ProviderError(
                    .configurationInvalid, "The key store 'store:' has no PIN; remove the source of one.")
            }
            let isPlace = location.uri.utf8.count == scheme.utf8.count + 1
            guard isPlace || SealedKey.isURI(location.uri) else {
                throw ProviderError(
                    .configurationInvalid,
                    "The URI of this host's key store is 'store:', with nothing behind the colon.")
            }
            return SealedKeyStore(environment: environment)
        }
    }

    package var properties: KeyStoreProperties {
        let makes = KeyType.allCases.map { type -> (KeyType, KeyUse) in
            (type, type.isRSA ? [.signing, .pkcs1Decryption, .oaepDecryption] : .signing)
        }
        return KeyStoreProperties(
            scheme: Self.scheme, location: .store, makes: Dictionary(uniqueKeysWithValues: makes), importsKeys: true,
            guarantees: [.exportable])
    }

    package func holds(keyURI: String) -> Bool { SealedKey.isURI(keyURI) }

    /// Reads all records.
    package func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await executor.run { [storage] () throws(ProviderError) in
            for name in Self.records { _ = try SealedKeys.read(name, from: storage) }
        }
    }

    /// Generates a key in memory, or reads one, and seals it. RSA takes a second or more, on the environment's executor.
    ///
    /// - Throws: `unsupportedAlgorithm`, for decryption with a key that is not RSA say; `malformedData` for a key to take in;
    ///   `storeReadFailed`; `storeWriteFailed`; the error that `remember` throws.
    package func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        var key = try await executor.run { () throws(ProviderError) in
            try SoftwareKey(new, location: .store)
        }
        key.uri = SealedKey.uri(of: key.publicKey)
        try await remember(key)
        let sealed = try SealedKey(key, label: new.label)
        try await executor.run { [storage] () throws(ProviderError) in
            try SealedKeys.change(Self.record(of: sealed.publicKey), in: storage) { keys in
                keys.removeAll { $0.publicKey == sealed.publicKey }
                keys.append(sealed)
            }
        }
        return key
    }

    package func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await executor.run { [self] () throws(ProviderError) in try storedKey(for: key) }
    }

    package func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try SealedKeys.read(Self.record(of: key.publicKey), from: storage).first { $0.publicKey == key.publicKey }
            .map { key throws(ProviderError) in try key.key() }
    }

    /// Returns all keys of the store, in no order. Reads all records, on the environment's executor.
    ///
    /// - Throws: `storeReadFailed` for a damaged record or one of a newer version; errors of the source of the sealing
    ///   key.
    package func list() async throws(ProviderError) -> [KeyDescription] {
        try await executor.run { [storage] () throws(ProviderError) in
            var keys: [KeyDescription] = []
            for name in Self.records {
                keys += try SealedKeys.read(name, from: storage).map { key in
                    KeyDescription(
                        KeyReference(publicKey: key.publicKey, uri: key.uri), label: key.label, location: .store)
                }
            }
            return keys
        }
    }

    @discardableResult package func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        try await executor.run { [self] () throws(ProviderError) in try destroyStored(key) }
    }

    @discardableResult package func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        let name = Self.record(of: key.publicKey)
        // Without a key there is nothing to write, and so no right to write is needed.
        guard try SealedKeys.read(name, from: storage).contains(where: { $0.publicKey == key.publicKey }) else {
            // A process that was killed may have left it beside the record, and an earlier removal may not be on disk. If
            // the store cannot be written, nothing is destroyed.
            try? storage.updateRecord(named: name) { $0 == nil ? SecretBytes(copying: []) : nil }
            return false
        }
        try SealedKeys.change(name, in: storage) { $0.removeAll { $0.publicKey == key.publicKey } }
        return true
    }

    private static func record(beginningWith octet: UInt8) -> String { "\(recordPrefix)\([octet].hexEncoded)" }

    private static func record(of publicKey: PublicKeyInfo) -> String {
        record(beginningWith: SHA256.hash(data: publicKey.keyBits).withUnsafeBytes { $0[0] })
    }
}

/// A key in a record of ``SealedKeyStore``. A service may have thousands: the private key is copied when it is asked for.
private struct SealedKey {
    let publicKey: PublicKeyInfo
    let label: String
    private let privateKey: RecordField
    let use: KeyUse

    init(_ key: SoftwareKey, label: String) throws(ProviderError) {
        (publicKey, self.label, use) = (key.publicKey, label, key.use)
        privateKey = RecordField(3, try key.pkcs8Representation())
    }

    /// Returns nil for other fields than ``fields``.
    init?(_ fields: [RecordField]) {
        guard fields.map(\.tag) == [1, 2, 3, 4],
            let publicKey = try? PublicKeyInfo(derRepresentation: fields[0].bytes), let use = fields[3].bytes.first
        else { return nil }
        (self.publicKey, label, privateKey) = (publicKey, fields[1].text, fields[2])
        self.use = KeyUse(rawValue: Int(use))
    }

    /// SubjectPublicKeyInfo, DER; label; PKCS#8, DER; the sum of ``/CertificateProviding/KeyUse``, one byte.
    var fields: [RecordField] {
        [
            RecordField(1, publicKey.derRepresentation), RecordField(2, label.utf8), privateKey,
            RecordField(4, [UInt8(truncatingIfNeeded: use.rawValue)]),
        ]
    }

    var uri: String { Self.uri(of: publicKey) }

    static func uri(of publicKey: PublicKeyInfo) -> String {
        "\(SealedKeyStore.scheme):\(publicKey.sha256.hexEncoded)"
    }

    static func isURI(_ uri: String) -> Bool {
        let prefix = SealedKeyStore.scheme + ":"
        return uri.hasPrefix(prefix) && uri.utf8.count == prefix.utf8.count + 64
            && uri.dropFirst(prefix.count).allSatisfy(\.isHexDigit)
    }

    func key() throws(ProviderError) -> SoftwareKey {
        var key = try SoftwareKey(pkcs8: privateKey.secret, location: .store)
        (key.uri, key.use) = (uri, use)
        return key
    }
}

/// The keys in one record: fields (``/CertificateProviding/RecordField``), first the format version and then those of each key.
private enum SealedKeys {
    private static let format: UInt8 = 1
    private static let version = RecordField(0, [format])

    static func read(
        _ name: String, from storage: any IdentityStorage
    ) throws(ProviderError) -> [SealedKey] {
        try decode(try storage.record(named: name), name)
    }

    static func change(
        _ name: String, in storage: any IdentityStorage, _ body: (inout [SealedKey]) -> Void
    ) throws(ProviderError) {
        try storage.updateRecord(named: name) { record throws(ProviderError) in
            var keys = try decode(record, name)
            body(&keys)
            return keys.isEmpty ? SecretBytes(copying: []) : RecordField.encode([version] + keys.flatMap(\.fields))
        }
    }

    private static func decode(
        _ record: SecretBytes?, _ name: String
    ) throws(ProviderError) -> [SealedKey] {
        guard let record else { return [] }
        let fields = (try? RecordField.decode(record)) ?? []
        let keys = stride(from: 1, to: fields.count, by: 4).map { SealedKey(Array(fields[$0...].prefix(4))) }
        guard fields.first?.tag == version.tag, fields.first?.bytes == version.bytes,
            !keys.contains(where: { $0 == nil })
        else {
            throw ProviderError(
                .storeReadFailed,
                "The private keys in the record '\(name)' of '\(SealedKeyStore.scheme):' are damaged, or were written by a newer "
                    + "certprov; update certprov.")
        }
        return keys.compactMap(\.self)
    }
}

extension KeyStoreDescriptor {
    /// The key store `store:`: private keys in this host's identity store, encrypted.
    public static var store: KeyStoreDescriptor { SealedKeyStore.descriptor }
}
