public import CertificateProviding
import Crypto
import FoundationEssentials

/// The key store `tpm:`: private keys that only the TPM of this host can use.
///
/// A key rests in a record of the store, encrypted by the TPM, beneath a storage key that the TPM derives again whenever it is needed.
/// The TPM itself keeps nothing: a process that is killed at any moment leaves nothing in it, and no key that no record names.
final class TPMKeyStore: KeyStore {
    static let scheme = "tpm"
    private static let recordPrefix = "key-"

    private let tpm: TPM
    private let place: TPMPlace
    private let storage: any IdentityStorage
    private let executor: BlockingExecutor

    init(_ tpm: TPM, _ place: TPMPlace, _ environment: ProviderEnvironment) {
        // The parameters name the same TPM in another way, or another parent for new keys.
        (self.tpm, self.place, storage) = (tpm, place, environment.storage.shared)
        executor = environment.executor
    }

    var properties: KeyStoreProperties {
        KeyStoreProperties(
            scheme: Self.scheme, location: TPMKey.location,
            makes: [
                .p256: .signing, .p384: .signing, .rsa2048: [.signing, .pkcs1Decryption, .oaepDecryption],
                .rsa3072: [.signing, .pkcs1Decryption, .oaepDecryption],
            ], attestsKeys: tpm.settings.attestation != nil, guarantees: [.neverExportable])
    }

    func holds(keyURI: String) -> Bool {
        guard case .file? = TPMPlace(keyURI) else { return TPMPlace(keyURI) != nil }
        return place == TPMPlace(keyURI)
    }

    /// Derives the storage key, for which the TPM must be there, open to this process, and have room.
    func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await tpm.run(beneath: tpm.settings.parent) { _, _ in }
    }

    /// Makes a key in the TPM, which returns it encrypted. An RSA key takes seconds, on some TPMs half a minute.
    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        let type = try properties.type(of: new)
        guard case .keys(let place) = place, let template = TPMPublicArea(type, new.use) else {
            throw ProviderError(
                .configurationInvalid, "A new key cannot be made in a key file; name the key store as 'tpm:'.")
        }
        let parent = tpm.settings.parent
        let made = try await tpm.run(beneath: parent) { _, storageKey throws(TPMFailure) in
            try storageKey.make(template)
        }
        let publicKey = try made.publicArea.publicKey()
        let name = place + Self.fingerprint(of: publicKey).prefix(16)
        let draft = TPMKey(
            publicKey: publicKey,
            signatureSchemes: new.use.contains(.signing) ? SignatureScheme.candidates(for: publicKey) : [],
            use: new.use, uri: "\(Self.scheme):\(name)",
            blob: try TPMKeyBlob(parent: parent, publicArea: made.publicArea, privatePart: made.privatePart), tpm: tpm)
        let key = try await draft.probed()
        try await remember(key)
        let record = try StoredKey.format.record(of: StoredKey(key, label: new.label))
        try await executor.run { [storage] () throws(ProviderError) in
            try storage.updateRecord(named: Self.record(of: publicKey)) { _ in record }
        }
        return key
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await executor.run { [self] () throws(ProviderError) in try storedKey(for: key) }
    }

    /// Reads a file or a record, and loads the key in the TPM. One of a record that this TPM does not take is gone, as after the TPM
    /// was cleared or replaced.
    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        if case .file(let path)? = TPMPlace(key.uri) {
            let file = try TPMKey(file: path, tpm)
            guard file.publicKey == key.publicKey else { return nil }
            if try !tpm.takes(file.blob) { throw TPMFailure.anotherTPM(tpm.settings.displayName) }
            return file
        }
        guard let record = try storage.record(named: Self.record(of: key.publicKey)) else { return nil }
        let stored = try StoredKey.format.content(of: record).key(tpm)
        return try tpm.takes(stored.blob) ? stored : nil
    }

    func list() async throws(ProviderError) -> [KeyDescription] {
        try await executor.run { [storage, tpm] () throws(ProviderError) in
            var keys: [KeyDescription] = []
            for name in try storage.recordNames() where name.hasPrefix(Self.recordPrefix) {
                guard let record = try storage.record(named: name) else { continue }
                let stored = try StoredKey.format.content(of: record)
                let key = try stored.key(tpm)
                keys.append(
                    KeyDescription(
                        KeyReference(publicKey: key.publicKey, uri: stored.uri), label: stored.label,
                        location: TPMKey.location))
            }
            return keys
        }
    }

    func destroy(_ key: KeyReference, _ interaction: any UserInteraction) async throws(ProviderError) -> Bool {
        try await executor.run { [self] () throws(ProviderError) in try destroyStored(key) }
    }

    /// Removes the record, without which the TPM has no key. A key file stays: it is its writer's.
    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        let name = Self.record(of: key.publicKey)
        guard try storage.record(named: name) != nil else { return false }
        do throws(ProviderError) {
            try TPMAttester.forget(afterUse: key.publicKey, in: storage)
            try storage.removeRecord(named: name)
        } catch {
            var error = error
            if error.code == .storeWriteFailed { error.code = .deleteFailed }
            throw error
        }
        return true
    }

    private static func fingerprint(of key: PublicKeyInfo) -> String { hexadecimal(SHA256.hash(data: key.keyBits)) }

    static func hexadecimal(_ hash: SHA256Digest) -> String {
        hash.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static func record(of key: PublicKeyInfo) -> String { recordPrefix + fingerprint(of: key) }
}

/// The place that a URI names.
enum TPMPlace: Equatable {
    /// The keys of the store; the names of new ones begin with the text.
    case keys(String)
    /// A key file, by its absolute path.
    case file(String)

    /// Reads `tpm:`, `tpm:NAME` or `tpm:/PATH`; `nil` for another text. A name has 1 to 64 of `a`-`z`, `0`-`9`, `.` and `-`.
    init?(_ uri: String) {
        let prefix = TPMKeyStore.scheme + ":"
        guard uri.hasPrefix(prefix), !uri.utf8.contains(0) else { return nil }
        let name = String(uri.dropFirst(prefix.count))
        if name.hasPrefix("/") {
            self = .file(name)
        } else {
            let isName =
                name.utf8.count <= 64
                && name.utf8.allSatisfy {
                    (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || [0x2d, 0x2e].contains($0)
                }
            guard isName else { return nil }
            self = .keys(name.isEmpty ? "" : name.prefix(47) + "-")
        }
    }
}

/// A key in a record.
private struct StoredKey: Codable, Sendable {
    static let format = VersionedRecord<Self>(
        of: "a key of the TPM", ifDamaged: "restore the identity store, or obtain a new identity")

    let uri: String
    let label: String
    let use: Int
    let schemes: [UInt16]
    /// DER of the form `TSS2 PRIVATE KEY`.
    let blob: Data

    init(_ key: TPMKey, label: String) {
        (uri, self.label, use) = (key.uri ?? "", label, key.use.rawValue)
        schemes = key.signatureSchemes.map(\.rawValue)
        blob = Data(key.blob.derRepresentation)
    }

    func key(_ tpm: TPM) throws(ProviderError) -> TPMKey {
        let blob = try TPMKeyBlob(derRepresentation: [UInt8](blob))
        return TPMKey(
            publicKey: try blob.publicArea.publicKey(), signatureSchemes: schemes.map(SignatureScheme.init(rawValue:)),
            use: KeyUse(rawValue: use), uri: uri, blob: blob, tpm: tpm)
    }
}

extension TPMKey {
    /// Reads a key file (`TSS2 PRIVATE KEY`, PEM). An RSA key signs by PKCS#1 alone, since no probe has shown its salts. A TPM that
    /// lacks the longer hashes says so when it signs.
    ///
    /// - Throws: `fileNotFound`, `configurationInvalid` for a file that others can read, `malformedData`, `unsupportedAlgorithm`.
    fileprivate init(file path: String, _ tpm: TPM) throws(ProviderError) {
        let file = try PEMFile(try SecretReader().read(.file(path)), named: path)
        guard let block = file.blocks.first(where: { $0.label == TPMKeyBlob.label }), let der = block.secret else {
            throw ProviderError(
                .malformedData, "\(path) has no PEM block '\(TPMKeyBlob.label)'; name the file of a TPM key.")
        }
        do throws(ProviderError) {
            let blob = try TPMKeyBlob(derRepresentation: der.withUnsafeBytes { Array($0) })
            let publicKey = try blob.publicArea.publicKey()
            self.init(
                publicKey: publicKey,
                signatureSchemes: publicKey.curve == nil
                    ? SignatureScheme.rsaPKCS1 : SignatureScheme.candidates(for: publicKey),
                use: .signing, uri: "\(TPMKeyStore.scheme):\(path)", blob: blob, tpm: tpm)
        } catch {
            var error = error
            error.message = "\(path), line \(block.line): \(error.message)"
            throw error
        }
    }

    /// Returns the key with those of its schemes by which it signs. Many TPMs use the longest salt for RSASSA-PSS, which TLS refuses,
    /// and some lack the longer hashes.
    fileprivate func probed() async throws(ProviderError) -> TPMKey {
        var schemes: [SignatureScheme] = []
        var failure: ProviderError?
        let probe: [UInt8] = Array("certprov probe".utf8)
        for scheme in signatureSchemes {
            do throws(ProviderError) {
                let signature = try await signature(for: probe, using: scheme)
                if publicKey.isValidSignature(signature, for: probe, using: scheme) { schemes.append(scheme) }
            } catch {
                guard error.code == .unsupportedAlgorithm else { throw error }
                failure = error
            }
        }
        guard !schemes.isEmpty || signatureSchemes.isEmpty else {
            throw failure
                ?? ProviderError(
                    .protocolError,
                    "\(tpm.settings.displayName) makes signatures that do not verify with the key that it has made. It may be "
                        + "faulty; try again, or use another one.")
        }
        return TPMKey(
            publicKey: publicKey, signatureSchemes: schemes, use: use, uri: uri, blob: blob, tpm: tpm)
    }
}

extension KeyStoreDescriptor {
    /// The key store `tpm:`: private keys that only the TPM of this host can use. A program has one value of it: its stores take turns at
    /// the TPM.
    public static var tpm: KeyStoreDescriptor {
        let worker = BlockingExecutor.threads(maximum: 1)
        return KeyStoreDescriptor(
            scheme: TPMKeyStore.scheme, id: ProviderID("tpm"), displayName: "TPM",
            summary: "Private keys that only the TPM of this host can use.", parameters: TPMSettings.parameters
        ) { environment, location, parameters throws(ProviderError) in
            guard location.pinSource == nil else {
                throw ProviderError(
                    .configurationInvalid, "The key store 'tpm:' has no PIN; remove the source of one.")
            }
            guard let place = TPMPlace(location.uri) else {
                throw ProviderError(
                    .configurationInvalid,
                    "The URI of the TPM's keys is 'tpm:', 'tpm:NAME' with up to 64 of a-z, 0-9, '.' and '-', or 'tpm:/PATH' of a key "
                        + "file.")
            }
            let tpm = TPM(TPMSettings(parameters), environment, worker: worker)
            return TPMKeyStore(tpm, place, environment)
        }
    }
}
