public import CertificateProviding
import Crypto
import FoundationEssentials
import Synchronization

/// The key store `store:`: private keys in this host's identity store, sealed like identities.
///
/// All keys rest in one record. A key is written to it after its owner has written the key's URI down, so that a
/// process that ends in between leaves no key.
public final class SealedKeyStore: KeyStore {
    /// The scheme of its URIs: `store`.
    public static let scheme = "store"
    private static let storageID = ProviderID("store")
    public var scheme: String { Self.scheme }
    public var location: KeyLocation { .store }

    private let storage: any IdentityStorage
    private let executor: BlockingExecutor

    /// Creates the store. Does no I/O.
    ///
    /// - Parameter environment: With the part of the identity store that ``descriptor`` names.
    public init(environment: ProviderEnvironment) {
        storage = environment.storage
        executor = environment.executor
    }

    /// The entry of the key store for a ``/CertificateProviding/ProviderRegistry``. It has no parameters and no PIN.
    public static var descriptor: KeyStoreDescriptor {
        KeyStoreDescriptor(
            scheme: scheme, storageID: storageID, displayName: "Identity store",
            summary: "Private keys in this host's identity store, encrypted.", parameters: []
        ) { environment, location, _ throws(CertificateProviderError) in
            guard location.pinSource == nil else {
                throw CertificateProviderError(
                    .configurationInvalid, "The key store 'store:' has no PIN; remove the source of one.")
            }
            let isPlace = location.uri.utf8.count == scheme.utf8.count + 1
            guard isPlace || SealedKeys.isKeyURI(location.uri) else {
                throw CertificateProviderError(
                    .configurationInvalid,
                    "The URI of this host's key store is 'store:', with nothing behind the colon.")
            }
            return SealedKeyStore(environment: environment)
        }
    }

    public var makes: [KeyType: KeyUse] {
        Dictionary(
            uniqueKeysWithValues: KeyType.allCases.map { ($0, $0.isRSA ? [.signing, .pkcs1Decryption] : .signing) })
    }

    public func holds(keyURI: String) -> Bool { SealedKeys.isKeyURI(keyURI) }

    /// Generates a key in memory and seals it. RSA takes a second or more, on the environment's executor.
    ///
    /// - Throws: `unsupportedAlgorithm` for decryption with a key that is not RSA; `storeReadFailed`;
    ///   `storeWriteFailed`; the error that `remember` throws.
    public func make(
        _ type: KeyType, label: String, use: KeyUse, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        guard makes[type]?.isSuperset(of: use) == true else {
            throw CertificateProviderError(
                .unsupportedAlgorithm, "A key of type \(type) cannot decrypt; use an RSA key.")
        }
        let key = try await executor.run { () throws(CertificateProviderError) in
            try SoftwareKey.generate(type, location: .store)
        }
        return try await seal(key, label, remember)
    }

    private func seal(
        _ key: SoftwareKey, _ label: String,
        _ remember: @Sendable (any IdentityKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        var key = key
        key.uri = SealedKeys.uri(of: key.publicKey)
        try await remember(key)
        let entry = SealedKeys.Entry(
            publicKey: key.publicKey, label: label, privateKey: try key.pkcs8Representation())
        try await executor.run { [storage] () throws(CertificateProviderError) in
            try SealedKeys.change(in: storage) { $0.insert(entry) }
        }
        return key
    }

    public func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)? {
        try await executor.run { [self] () throws(CertificateProviderError) in try storedKey(for: key) }
    }

    public func storedKey(for key: KeyReference) throws(CertificateProviderError) -> (any IdentityKey)? {
        guard let entry = try SealedKeys.read(from: storage).entry(for: key.publicKey) else { return nil }
        var found = try SoftwareKey(pkcs8: entry.privateKey, location: .store)
        found.uri = SealedKeys.uri(of: entry.publicKey)
        return found
    }

    /// Returns all keys of the store. Reads one sealed record, on the environment's executor.
    ///
    /// - Throws: `storeReadFailed` for a damaged record or one of a newer version; errors of the source of the sealing
    ///   key.
    public func list() async throws(CertificateProviderError) -> [KeyDescription] {
        try await executor.run { [storage] () throws(CertificateProviderError) in
            try SealedKeys.read(from: storage).entries.map { entry in
                KeyDescription(
                    KeyReference(publicKey: entry.publicKey, uri: SealedKeys.uri(of: entry.publicKey)),
                    label: entry.label, location: .store)
            }
        }
    }

    /// Stores nothing: the chain rests with its identity.
    ///
    /// - Throws: `keyMismatch` for a leaf of another key, and for an empty chain.
    public func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        // The store keeps no certificates.
        let identity = try Identity(certificateChain: chain, key: key, provenance: .init(provider: Self.storageID))
        try await identity.verifyPossession()
    }

    public func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        try await executor.run { [self] () throws(CertificateProviderError) in try destroyStored(key) }
    }

    public func destroyStored(_ key: KeyReference) throws(CertificateProviderError) {
        // Without a key there is nothing to write, and so no right to write is needed.
        guard try SealedKeys.read(from: storage).entry(for: key.publicKey) != nil else { return }
        try SealedKeys.change(in: storage) { $0.remove(key.publicKey) }
    }

    public var importer: (any KeyImporting)? { self }
}

extension SealedKeyStore: KeyImporting {
    public func importKey(
        pkcs8: SecretBytes, label: String,
        remember: @escaping @Sendable (any IdentityKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await seal(try SoftwareKey(pkcs8: pkcs8, location: .store), label, remember)
    }
}

/// The keys of ``SealedKeyStore``, as they rest in a record:
///
///     offset  size
///     0       1     format version, 1
///     1       …     for each key three fields, each after its size in 4 octets, big-endian:
///                   SubjectPublicKeyInfo, DER; label, UTF-8; PKCS#8, DER
private struct SealedKeys {
    struct Entry {
        let publicKey: PublicKeyInfo
        let label: String
        let privateKey: SecretBytes
    }

    private static let record = "keys"
    private static let format: UInt8 = 1
    private(set) var entries: [Entry] = []

    static func uri(of publicKey: PublicKeyInfo) -> String {
        "\(SealedKeyStore.scheme):\(publicKey.sha256.hexEncoded)"
    }

    static func isKeyURI(_ uri: String) -> Bool {
        let prefix = SealedKeyStore.scheme + ":"
        return uri.hasPrefix(prefix) && uri.utf8.count == prefix.utf8.count + 64
            && uri.dropFirst(prefix.count).allSatisfy(\.isHexDigit)
    }

    func entry(for publicKey: PublicKeyInfo) -> Entry? { entries.first { $0.publicKey.isSameKey(as: publicKey) } }

    mutating func insert(_ entry: Entry) {
        remove(entry.publicKey)
        entries.append(entry)
    }

    mutating func remove(_ publicKey: PublicKeyInfo) { entries.removeAll { $0.publicKey.isSameKey(as: publicKey) } }

    static func read(from storage: any IdentityStorage) throws(CertificateProviderError) -> SealedKeys {
        try storage.record(named: record).map { record throws(CertificateProviderError) in try SealedKeys(record) }
            ?? SealedKeys()
    }

    static func change(
        in storage: any IdentityStorage, _ body: (inout SealedKeys) -> Void
    ) throws(CertificateProviderError) {
        try storage.updateRecord(named: record) { record throws(CertificateProviderError) in
            var keys =
                try record.map { record throws(CertificateProviderError) in try SealedKeys(record) } ?? SealedKeys()
            body(&keys)
            return keys.encoded
        }
    }

    private init() {}

    private init(_ record: SecretBytes) throws(CertificateProviderError) {
        guard !record.isEmpty else { return }
        guard let fields = Self.fields(of: record) else {
            throw CertificateProviderError(
                .storeReadFailed,
                "The keys in the store are damaged, or were written by a newer certprov; update certprov.")
        }
        for at in stride(from: 0, to: fields.count, by: 3) {
            entries.append(
                Entry(
                    publicKey: try PublicKeyInfo(derRepresentation: fields[at].withUnsafeBytes { Array($0) }),
                    label: fields[at + 1].withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
                    privateKey: fields[at + 2]))
        }
    }

    private var encoded: SecretBytes {
        let fields = entries.flatMap {
            [
                SecretBytes(copying: $0.publicKey.derRepresentation), SecretBytes(copying: Array($0.label.utf8)),
                $0.privateKey,
            ]
        }
        return SecretBytes(count: fields.reduce(1) { $0 + 4 + $1.count }) { buffer in
            buffer[0] = Self.format
            var offset = 1
            for field in fields {
                buffer.storeBytes(of: UInt32(field.count).bigEndian, toByteOffset: offset, as: UInt32.self)
                offset += 4
                field.withUnsafeBytes { bytes in
                    UnsafeMutableRawBufferPointer(rebasing: buffer[offset..<offset + bytes.count])
                        .copyMemory(from: bytes)
                }
                offset += field.count
            }
        }
    }

    /// Returns nil for a record of another form.
    private static func fields(of record: SecretBytes) -> [SecretBytes]? {
        record.withUnsafeBytes { bytes in
            guard bytes.first == format else { return nil }
            var fields: [SecretBytes] = []
            var rest = bytes.dropFirst()
            while !rest.isEmpty {
                let size = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
                guard rest.count >= 4, size <= rest.count - 4 else { return nil }
                rest = rest.dropFirst(4)
                fields.append(SecretBytes(copying: UnsafeRawBufferPointer(rebasing: rest.prefix(size))))
                rest = rest.dropFirst(size)
            }
            return fields.count.isMultiple(of: 3) ? fields : nil
        }
    }
}
