public import CertificateProviding
import Crypto
import FoundationEssentials
import Synchronization

/// The key store `store:`: private keys in this host's identity store, sealed like identities.
///
/// The keys rest in 256 records, by the first octet of the public key's SHA-256: a record has a maximum size, and is
/// written whole. A key is written after its owner has written the key's URI down, so that a process that ends in between
/// leaves no key.
public final class SealedKeyStore: KeyStore {
    /// The scheme of its URIs: `store`.
    public static let scheme = "store"
    static let storageID = ProviderID("store")
    /// The record with all keys, which former versions wrote. Its keys are read and destroyed, and none is added.
    static let formerRecord = "keys"

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
            summary: "Private keys in this host's identity store, encrypted.", parameters: [], keepsKeysOutside: false
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

    public var properties: KeyStoreProperties {
        let makes = KeyType.allCases.map { type -> (KeyType, KeyUse) in
            (type, type.isRSA ? [.signing, .pkcs1Decryption, .oaepDecryption] : .signing)
        }
        return KeyStoreProperties(
            scheme: Self.scheme, location: .store, makes: Dictionary(uniqueKeysWithValues: makes), importsKeys: true,
            guarantees: [.exportable])
    }

    public func holds(keyURI: String) -> Bool { SealedKeys.isKeyURI(keyURI) }

    /// Reads all records.
    public func check(_ interaction: any UserInteraction) async throws(CertificateProviderError) {
        try await executor.run { [storage] () throws(CertificateProviderError) in
            for name in Self.allRecords { _ = try SealedKeys.read(name, from: storage) }
        }
    }

    /// Generates a key in memory, or reads one, and seals it. RSA takes a second or more, on the environment's executor.
    ///
    /// - Throws: `unsupportedAlgorithm`, for decryption with a key that is not RSA say; `malformedData` for a key to take in;
    ///   `storeReadFailed`; `storeWriteFailed`; the error that `remember` throws.
    public func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try properties.check(new)
        var key = try await executor.run { () throws(CertificateProviderError) in
            try SoftwareKey(new, location: .store)
        }
        key.uri = SealedKeys.uri(of: key.publicKey)
        try await remember(key)
        let entry = SealedKeys.Entry(
            publicKey: key.publicKey, label: new.label, privateKey: try key.pkcs8Representation(), use: key.use)
        try await executor.run { [storage] () throws(CertificateProviderError) in
            try SealedKeys.change(Self.record(of: entry.publicKey), in: storage) { $0.inserting(entry) }
        }
        return key
    }

    public func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)? {
        try await executor.run { [self] () throws(CertificateProviderError) in try storedKey(for: key) }
    }

    public func storedKey(for key: KeyReference) throws(CertificateProviderError) -> (any IdentityKey)? {
        if let found = try storedKey(for: key, in: Self.likelyRecords(of: key.publicKey)) { return found }
        return try storedKey(for: key, in: Self.otherRecords(of: key.publicKey))
    }

    private func storedKey(
        for key: KeyReference, in names: [String]
    ) throws(CertificateProviderError) -> SoftwareKey? {
        for name in names {
            guard let entry = try SealedKeys.read(name, from: storage).entry(for: key.publicKey) else { continue }
            var found = try SoftwareKey(pkcs8: entry.privateKey, location: .store)
            found.uri = SealedKeys.uri(of: entry.publicKey)
            found.use = entry.use
            return found
        }
        return nil
    }

    /// Returns all keys of the store, in no order. Reads all records, on the environment's executor.
    ///
    /// - Throws: `storeReadFailed` for a damaged record or one of a newer version; errors of the source of the sealing
    ///   key.
    public func list() async throws(CertificateProviderError) -> [KeyDescription] {
        try await executor.run { [storage] () throws(CertificateProviderError) in
            var keys: [KeyDescription] = []
            for name in Self.allRecords {
                for entry in try SealedKeys.read(name, from: storage).entries() {
                    let reference = KeyReference(publicKey: entry.publicKey, uri: SealedKeys.uri(of: entry.publicKey))
                    keys.append(KeyDescription(reference, label: entry.label, location: .store))
                }
            }
            return keys
        }
    }

    @discardableResult public func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Bool {
        try await executor.run { [self] () throws(CertificateProviderError) in try destroyStored(key) }
    }

    @discardableResult public func destroyStored(_ key: KeyReference) throws(CertificateProviderError) -> Bool {
        if try destroy(key, in: Self.likelyRecords(of: key.publicKey)) { return true }
        if try destroy(key, in: Self.otherRecords(of: key.publicKey)) { return true }
        // A process that was killed may have left it beside the record, and a former removal may not be on disk. If the store
        // cannot be written, nothing is destroyed.
        try? storage.updateRecord(named: Self.record(of: key.publicKey)) { $0 == nil ? SecretBytes(copying: []) : nil }
        return false
    }

    /// - Returns: Whether the key was there.
    private func destroy(_ key: KeyReference, in names: [String]) throws(CertificateProviderError) -> Bool {
        var wasThere = false
        // Without a key there is nothing to write, and so no right to write is needed.
        for name in names where try SealedKeys.read(name, from: storage).entry(for: key.publicKey) != nil {
            try SealedKeys.change(name, in: storage) { keys throws(CertificateProviderError) in
                try keys.removing(key.publicKey)
            }
            wasThere = true
        }
        return wasThere
    }
}

extension SealedKeyStore {
    private static let records = (UInt8.min...UInt8.max).map { record(beginningWith: $0) }
    private static var allRecords: [String] { [formerRecord] + records }

    private static func record(beginningWith octet: UInt8) -> String { "\(formerRecord)-\([octet].hexEncoded)" }

    /// The record that a key is written to.
    private static func record(of publicKey: PublicKeyInfo) -> String { record(beginningWith: publicKey.sha256[0]) }

    /// The records that a key is in, if its public key is encoded as it was when the key was written.
    private static func likelyRecords(of publicKey: PublicKeyInfo) -> [String] {
        [record(of: publicKey), formerRecord]
    }

    /// The other records: one key has several encodings.
    private static func otherRecords(of publicKey: PublicKeyInfo) -> [String] {
        let likely = likelyRecords(of: publicKey)
        return allRecords.filter { !likely.contains($0) }
    }
}

/// The keys of ``SealedKeyStore`` in one record:
///
///     offset  size
///     0       1     format version, 3
///     1       …     for each key four fields, each after its size in 4 octets, big-endian:
///                   SubjectPublicKeyInfo, DER; label, UTF-8; PKCS#8, DER; use, the sum of KeyUse in 1 octet
///
/// Format 1 has no use: its keys sign, and those of RSA decrypt by RSAES-PKCS1-v1_5. Format 2 has the form of format 3,
/// and does not know RSAES-OAEP.
///
/// A service may have thousands: the record stays one piece of memory, and only the key that is asked for is decoded.
private struct SealedKeys {
    struct Entry {
        let publicKey: PublicKeyInfo
        let label: String
        let privateKey: SecretBytes
        let use: KeyUse
    }

    /// The fields of a key in the record, without their sizes.
    private struct Place {
        let whole: Range<Int>
        let publicKey: Range<Int>
        let label: Range<Int>
        let privateKey: Range<Int>
        /// nil in format 1.
        let use: Range<Int>?
    }

    private static let format: UInt8 = 3
    /// Empty without a record.
    private let bytes: SecretBytes
    private let places: [Place]

    static func uri(of publicKey: PublicKeyInfo) -> String {
        "\(SealedKeyStore.scheme):\(publicKey.sha256.hexEncoded)"
    }

    static func isKeyURI(_ uri: String) -> Bool {
        let prefix = SealedKeyStore.scheme + ":"
        return uri.hasPrefix(prefix) && uri.utf8.count == prefix.utf8.count + 64
            && uri.dropFirst(prefix.count).allSatisfy(\.isHexDigit)
    }

    /// All keys.
    func entries() throws(CertificateProviderError) -> [Entry] {
        try places.map { place throws(CertificateProviderError) in try entry(at: place) }
    }

    func entry(for publicKey: PublicKeyInfo) throws(CertificateProviderError) -> Entry? {
        try place(of: publicKey).map { place throws(CertificateProviderError) in try entry(at: place) }
    }

    /// Returns the record with a key added; one with the same public key is replaced.
    func inserting(_ entry: Entry) -> SecretBytes {
        let publicKey = entry.publicKey.derRepresentation
        return record(
            keeping: places.filter { !has($0, publicKey) },
            adding: [
                SecretBytes(copying: publicKey), SecretBytes(copying: Array(entry.label.utf8)), entry.privateKey,
                SecretBytes(copying: [UInt8(truncatingIfNeeded: entry.use.rawValue)]),
            ])
    }

    /// Returns the record without a key; empty without keys.
    func removing(_ publicKey: PublicKeyInfo) throws(CertificateProviderError) -> SecretBytes {
        let removed = try place(of: publicKey)
        let kept = places.filter { $0.whole != removed?.whole }
        return kept.isEmpty ? SecretBytes(copying: []) : record(keeping: kept, adding: [])
    }

    static func read(
        _ name: String, from storage: any IdentityStorage
    ) throws(CertificateProviderError) -> SealedKeys {
        try SealedKeys(try storage.record(named: name), name)
    }

    static func change(
        _ name: String, in storage: any IdentityStorage,
        _ body: (SealedKeys) throws(CertificateProviderError) -> SecretBytes
    ) throws(CertificateProviderError) {
        try storage.updateRecord(named: name) { record throws(CertificateProviderError) in
            try body(try SealedKeys(record, name))
        }
    }

    // MARK: -

    private init(_ record: SecretBytes?, _ name: String) throws(CertificateProviderError) {
        bytes = record ?? SecretBytes(copying: [])
        guard let places = Self.places(in: bytes) else {
            throw CertificateProviderError(
                .storeReadFailed,
                "The private keys in the record '\(name)' of '\(SealedKeyStore.scheme):' are damaged, or were written by a newer "
                    + "certprov; update certprov.")
        }
        self.places = places
    }

    /// Returns nil for a record of another form.
    private static func places(in record: SecretBytes) -> [Place]? {
        record.withUnsafeBytes { bytes in
            guard let first = bytes.first else { return [] }
            guard 1...format ~= first else { return nil }
            var places: [Place] = []
            var offset = 1
            while offset < bytes.count {
                let start = offset
                var fields: [Range<Int>] = []
                for _ in 0..<(first == 1 ? 3 : 4) {
                    guard bytes.count - offset >= 4 else { return nil }
                    let size = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)))
                    offset += 4
                    guard size <= bytes.count - offset else { return nil }
                    fields.append(offset..<offset + size)
                    offset += size
                }
                places.append(
                    Place(
                        whole: start..<offset, publicKey: fields[0], label: fields[1], privateKey: fields[2],
                        use: fields.count > 3 ? fields[3] : nil))
            }
            return places
        }
    }

    private func place(of publicKey: PublicKeyInfo) throws(CertificateProviderError) -> Place? {
        let encoded = publicKey.derRepresentation
        if let place = places.first(where: { has($0, encoded) }) { return place }
        // One key has several encodings.
        for place in places where try self.publicKey(at: place).isSameKey(as: publicKey) { return place }
        return nil
    }

    private func has(_ place: Place, _ publicKey: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { $0[place.publicKey].elementsEqual(publicKey) }
    }

    private func publicKey(at place: Place) throws(CertificateProviderError) -> PublicKeyInfo {
        try PublicKeyInfo(derRepresentation: bytes.withUnsafeBytes { Array($0[place.publicKey]) })
    }

    private func entry(at place: Place) throws(CertificateProviderError) -> Entry {
        Entry(
            publicKey: try publicKey(at: place),
            label: bytes.withUnsafeBytes { String(decoding: $0[place.label], as: UTF8.self) },
            privateKey: bytes.withUnsafeBytes { all in
                SecretBytes(copying: UnsafeRawBufferPointer(rebasing: all[place.privateKey]))
            }, use: use(at: place))
    }

    private func use(at place: Place) -> KeyUse {
        let byte = place.use.flatMap { range in bytes.withUnsafeBytes { $0[range].first } }
        return byte.map { KeyUse(rawValue: Int($0)) } ?? [.signing, .pkcs1Decryption]
    }

    private func record(keeping kept: [Place], adding fields: [SecretBytes]) -> SecretBytes {
        // The size of a use and its octet, which keys of format 1 get here.
        let added = 5
        let size =
            kept.reduce(1) { $0 + $1.whole.count + ($1.use == nil ? added : 0) }
            + fields.reduce(0) { $0 + 4 + $1.count }
        return SecretBytes(count: size) { buffer in
            buffer[0] = Self.format
            var offset = 1
            func append(_ source: UnsafeRawBufferPointer) {
                UnsafeMutableRawBufferPointer(rebasing: buffer[offset..<offset + source.count])
                    .copyMemory(from: source)
                offset += source.count
            }
            func append(_ field: SecretBytes) {
                withUnsafeBytes(of: UInt32(field.count).bigEndian, append)
                field.withUnsafeBytes(append)
            }
            for place in kept {
                bytes.withUnsafeBytes { append(UnsafeRawBufferPointer(rebasing: $0[place.whole])) }
                guard place.use == nil else { continue }
                append(SecretBytes(copying: [UInt8(truncatingIfNeeded: use(at: place).rawValue)]))
            }
            for field in fields { append(field) }
        }
    }
}
