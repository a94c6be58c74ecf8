package import CertificateProviding
package import FoundationEssentials

// The fields of the messages, as Documentation/PluginProtocol.md describes them. Binary data is base64.

/// A plugin's description of itself: the answer to `hello`.
package struct Hello: Codable, Sendable {
    package static let versions = [1]

    package struct Request: Codable, Sendable {
        package var versions: [Int]
        package var host: String?
        package init(versions: [Int], host: String) { (self.versions, self.host) = (versions, host) }
    }

    package struct Provider: Codable, Sendable {
        package var displayName: String
        package var summary: String
        package var parameters: [WireParameter]?
        /// `list`, `announceDeletions`, `discardReplaced`, `updated`, `advice`, `revoke`.
        package var can: [String]?
        /// The scheme of the key store of its identities, which requests without `store` mean.
        package var keyStore: String?
        package init(
            displayName: String, summary: String, parameters: [WireParameter], can: [String], keyStore: String?
        ) {
            (self.displayName, self.summary, self.parameters, self.can) = (displayName, summary, parameters, can)
            self.keyStore = keyStore
        }
    }

    package struct KeyStore: Codable, Sendable {
        package var scheme: String
        package var displayName: String
        package var summary: String
        package var parameters: [WireParameter]?
        /// The uses of each type of key: `sign`, `decrypt`, `decryptOAEP`.
        package var makes: [String: [String]]
        /// The kind of place, as listings show it.
        package var location: String?
        /// Requests that are not answered by every key store: `key.open`, `key.holds`, `key.check`, `key.identity`,
        /// `key.keepOnly`, `key.announce`, `key.import`.
        package var can: [String]?
        /// Whether it keeps certificates; where it does not say, it may.
        package var certificates: Bool?
        /// The guarantees that `key.make` and `key.import` can demand: ``KeyGuarantee``.
        package var guarantees: [String]?
        package init(
            scheme: String, displayName: String, summary: String, parameters: [WireParameter],
            makes: [String: [String]],
            location: String?, can: [String]
        ) {
            (self.scheme, self.displayName, self.summary) = (scheme, displayName, summary)
            (self.parameters, self.makes, self.location, self.can) = (parameters, makes, location, can)
        }
    }

    package var version: Int
    package var id: String
    package var pluginVersion: String?
    package var provider: Provider?
    package var keyStores: [KeyStore]?
    /// How many requests the plugin takes at a time; 1 where it does not say.
    package var concurrency: Int?
    /// Whether the plugin answers `shutdown`.
    package var shutdown: Bool?

    package init(
        version: Int, id: String, pluginVersion: String?, provider: Provider?, keyStores: [KeyStore],
        concurrency: Int?, shutdown: Bool?
    ) {
        (self.version, self.id, self.pluginVersion) = (version, id, pluginVersion)
        (self.provider, self.keyStores, self.concurrency) = (provider, keyStores, concurrency)
        self.shutdown = shutdown
    }
}

/// A documented parameter.
package struct WireParameter: Codable, Sendable {
    package struct Condition: Codable, Sendable {
        package var name: String
        package var value: String?
        package init(name: String, value: String?) { (self.name, self.value) = (name, value) }
    }

    package var name: String
    /// As ``ParameterDescriptor/Kind``: `string`, `path`, `secret-path`, `boolean`, `secret-source`, `key-store` …
    package var type: String
    package var required: Bool?
    package var `default`: String?
    package var summary: String
    /// The values that are accepted; any where it is missing.
    package var values: [String]?
    /// The least and the greatest whole number that is accepted.
    package var range: [Int]?
    package var needs: [Condition]?
    package var excludes: [String]?
    /// Whether another value means another identity: ``ParameterDescriptor/distinguishes``.
    package var distinguishes: Bool?

    package init(_ parameter: ParameterDescriptor) {
        name = parameter.name
        type = parameter.kind.rawValue
        required = parameter.isRequired
        self.default = parameter.defaultValue
        summary = parameter.summary
        needs = parameter.needs.map { Condition(name: $0.name, value: $0.value) }
        excludes = parameter.excludes
        distinguishes = parameter.distinguishes
    }
}

/// Makes the plugin's one provider or key store: `configure`.
package struct Configure: Codable, Sendable {
    /// The scheme of a key store; missing for the provider.
    package var scheme: String?
    /// As they are configured.
    package var parameters: [String: String]
    /// How long the host waits for an answer, in seconds.
    package var timeout: Double?
    package init(scheme: String?, parameters: [String: String], timeout: Double?) {
        (self.scheme, self.parameters, self.timeout) = (scheme, parameters, timeout)
    }
}

// MARK: - Identities

/// A key, as identities and key stores name it.
package struct WireKey: Codable, Sendable {
    /// The name of a key in `key.sign`; the URI where it is missing.
    package var id: String?
    package var uri: String?
    /// SubjectPublicKeyInfo, DER.
    package var publicKey: Data?
    /// By their names in the TLS registry, most preferred first. Missing where the receiver has the key itself.
    package var schemes: [String]?
    /// Those of ``schemes`` by which the key signs a digest: `key.signDigest`. Missing where it signs messages only, and from
    /// a side that does not know the request.
    package var digestSchemes: [String]?
    /// As in ``KeyRequest``. Missing where the schemes say it.
    package var use: [String]?
    package var location: String?
    /// In seconds.
    package var timeout: Double?
    /// Whether the key decrypts by RSAES-PKCS1-v1_5.
    package var decrypts: Bool?
    /// All schemes that the key decrypts by, most preferred first. Missing for a key without one, and from a side that
    /// knows ``decrypts`` only.
    package var decryptionSchemes: [String]?
    /// Whether the key proves where it lives: `key.attest`.
    package var attests: Bool?
    package var label: String?
    /// An unencrypted PKCS#8 key, instead of all that.
    package var pkcs8: Secret?
    /// The key in a form that only its place can use, DER, and the label of that in PEM.
    package var wrapped: Secret?
    package var wrappedLabel: String?

    package init(
        id: String? = nil, uri: String? = nil, publicKey: Data? = nil, schemes: [String]? = nil,
        digestSchemes: [String]? = nil, use: [String]? = nil, location: String? = nil, timeout: Double? = nil,
        decrypts: Bool? = nil, decryptionSchemes: [String]? = nil, attests: Bool? = nil, label: String? = nil,
        pkcs8: Secret? = nil, wrapped: WrappedKey? = nil
    ) {
        (self.id, self.uri, self.publicKey, self.schemes, self.location) = (id, uri, publicKey, schemes, location)
        (self.digestSchemes, self.use) = (digestSchemes, use)
        (self.timeout, self.decrypts, self.decryptionSchemes) = (timeout, decrypts, decryptionSchemes)
        (self.attests, self.label, self.pkcs8) = (attests, label, pkcs8)
        (self.wrapped, wrappedLabel) = (wrapped.map { Secret($0.der) }, wrapped?.label)
    }
}

/// An identity.
package struct WireIdentity: Codable, Sendable {
    /// DER, leaf first.
    package var chain: [Data]
    package var key: WireKey
    /// DER, in any order.
    package var trust: [Data]?
    package var alias: String?
    package var source: String?
    /// Missing for `client`.
    package var usage: String?
    package init(_ identity: Identity, key: WireKey) {
        chain = identity.certificateChain.map { Data($0.derRepresentation) }
        trust = identity.trust?.certificates.map { Data($0.derRepresentation) }
        (self.key, alias, source) = (key, identity.provenance.alias, identity.provenance.source)
        usage = identity.usage == .client ? nil : identity.usage.rawValue
    }
}

/// The answer to `obtain`, `stored` and `key.identity`.
package struct IdentityAnswer: Codable, Sendable {
    package var identity: WireIdentity?
    package init(_ identity: WireIdentity?) { self.identity = identity }
}

/// An identity in a listing.
package struct WireListedIdentity: Codable, Sendable {
    package var chain: [Data]
    package var alias: String?
    package var stored: Bool?
    package var location: String?
    package var exportable: Bool?
    package var uri: String?
    /// Missing for `client`.
    package var usage: String?

    package init(_ identity: ListedIdentity) {
        chain = identity.certificateChain.map { Data($0.derRepresentation) }
        (alias, stored, uri) = (identity.alias, identity.isStored, identity.keyURI)
        (location, exportable) = (identity.keyLocation.rawValue, identity.isKeyExportable)
        usage = identity.usage == .client ? nil : identity.usage.rawValue
    }
}

/// The answer to `list`.
package struct WireList: Codable, Sendable {
    package struct Choice: Codable, Sendable {
        package var identity: WireListedIdentity?
        package var error: WireError?
        package init(identity: WireListedIdentity?, error: WireError?) {
            (self.identity, self.error) = (identity, error)
        }
    }
    package var identities: [WireListedIdentity]
    package var failures: [WireError]?
    package var remarks: [String]?
    package var otherObjects: [String]?
    package var choice: Choice?

    package init(_ list: IdentityList) {
        identities = list.identities.map(WireListedIdentity.init)
        failures = list.failures.map(WireError.init)
        (remarks, otherObjects) = (list.remarks, list.otherObjects)
        choice = list.choice.map { choice in
            switch choice {
            case .success(let identity): Choice(identity: WireListedIdentity(identity), error: nil)
            case .failure(let error): Choice(identity: nil, error: WireError(error))
            }
        }
    }
}

/// `discardReplaced`: the identity in use now.
package struct DiscardReplaced: Codable, Sendable {
    package var chain: [Data]
    package var mayAsk: Bool?
    package init(chain: [Data], mayAsk: Bool) { (self.chain, self.mayAsk) = (chain, mayAsk) }
}

/// `advice`: the identity in use.
package struct AdviceRequest: Codable, Sendable {
    package var chain: [Data]
    package init(chain: [Data]) { self.chain = chain }
}

/// The answer to `advice`.
package struct AdviceAnswer: Codable, Sendable {
    /// In seconds since 1970-01-01T00:00:00Z.
    package struct Window: Codable, Sendable {
        package var start: Double
        package var end: Double
        package init(start: Double, end: Double) { (self.start, self.end) = (start, end) }
    }
    /// Missing if the issuer does not say.
    package var window: Window?
    /// How long the answer holds, in seconds.
    package var askAgain: Double?
    package init(window: Window?) { self.window = window }
}

/// `revoke`.
package struct Revoke: Codable, Sendable {
    /// A number of RFC 5280, section 5.3.1.
    package var reason: Int
    package var mayAsk: Bool?
    package init(reason: Int, mayAsk: Bool) { (self.reason, self.mayAsk) = (reason, mayAsk) }
}

/// A request that may ask the user.
package struct MayAsk: Codable, Sendable {
    package var mayAsk: Bool?
    package init(_ mayAsk: Bool) { self.mayAsk = mayAsk }
}

/// The answer to `announceDeletions` and `key.announce`.
package struct Sentences: Codable, Sendable {
    package var sentences: [String]
    package init(_ sentences: [String]) { self.sentences = sentences }
}

// MARK: - Key stores

/// `key.…`: which store and which key, and what else a request needs.
package struct KeyRequest: Codable, Sendable {
    /// The URI of the store; missing for that of the provider.
    package var store: String?
    /// The source of its PIN.
    package var pinSource: String?
    /// The parameter that has the URI.
    package var parameter: String?
    /// The request of the other side that this one is made for.
    package var `for`: UInt64?
    package var mayAsk: Bool?
    package var key: KeyReference?
    /// The URI of an identity: `key.identity`; of a key: `key.holds`.
    package var uri: String?
    package var type: String?
    package var label: String?
    package var use: [String]?
    /// The guarantees that the store must give for a new key.
    package var guarantees: [String]?
    /// DER, leaf first.
    package var chain: [Data]?
    package var pkcs8: Secret?

    package init(store: String? = nil, pinSource: String? = nil, parameter: String? = nil, for request: UInt64? = nil) {
        (self.store, self.pinSource, self.parameter, self.for) = (store, pinSource, parameter, request)
    }
}

/// The answer to `key.open`.
struct KeyStoreAnswer: Codable, Sendable {
    var scheme: String
    var location: String
    var makes: [String: [String]]
    var can: [String]
    var certificates: Bool?
    var guarantees: [String]?

    init(_ store: any KeyStore) {
        let properties = store.properties
        (scheme, location, makes) = (properties.scheme, properties.location.rawValue, properties.makes.names)
        (can, certificates) = (KeyOperation.optional(of: store).map(\.rawValue), store.certificates != nil)
        guarantees = properties.guarantees.map(\.rawValue).sorted()
    }
}

/// The answer to `key.make`, `key.import` and `key.find`.
struct KeyAnswer: Codable, Sendable {
    var key: WireKey?
}

/// The answer to `key.list`.
struct KeysAnswer: Codable, Sendable {
    var keys: [WireKey]
}

/// The answer to `key.holds`.
struct HoldsAnswer: Codable, Sendable {
    var holds: Bool
}

/// The answer to `key.destroy`.
struct DestroyAnswer: Codable, Sendable {
    /// Whether the private key was there.
    var destroyed: Bool?
}

/// `remember`: a new key, before it may be used.
struct Remember: Codable, Sendable {
    /// The request that makes the key.
    var `for`: UInt64
    var key: WireKey
}

/// `key.sign`.
struct Sign: Codable, Sendable {
    /// The id of a key that the other side has named.
    var key: String
    var scheme: String
    var message: Data
}

/// `key.signDigest`.
struct SignDigest: Codable, Sendable {
    var key: String
    var scheme: String
    /// Made by the hash function of the scheme.
    var digest: Data
}

/// The answer to `key.sign` and `key.signDigest`.
struct SignatureAnswer: Codable, Sendable {
    var signature: Data
}

/// `key.decrypt`.
struct Decrypt: Codable, Sendable {
    var key: String
    /// As ``/CertificateProviding/DecryptionScheme``; RSAES-PKCS1-v1_5 where it is missing.
    var scheme: String?
    var ciphertext: Data
}

/// The answer to `key.decrypt`.
struct DecryptAnswer: Codable, Sendable {
    var plaintext: Secret
}

/// `key.attest`.
struct Attest: Codable, Sendable {
    var key: String
    /// 32 bytes.
    var data: Data
}

/// The answer to `key.attest`: as ``/CertificateProviding/KeyAttestation``.
struct AttestAnswer: Codable, Sendable {
    var format: String
    var algorithm: Int
    /// DER, the attestation key's certificate first.
    var chain: [Data]
    var signature: Data
    var fields: [String: Data]?

    init(_ attestation: KeyAttestation) {
        (format, algorithm) = (attestation.format.rawValue, attestation.algorithm)
        chain = attestation.chain.map { Data($0.derRepresentation) }
        (signature, fields) = (Data(attestation.signature), attestation.fields.mapValues { Data($0) })
    }

    /// - Throws: `malformedData` for a certificate that is none.
    func attestation() throws(ProviderError) -> KeyAttestation {
        KeyAttestation(
            format: .init(rawValue: format), algorithm: algorithm, chain: try chain.certificates(),
            signature: [UInt8](signature), fields: (fields ?? [:]).mapValues { [UInt8]($0) })
    }
}

// MARK: - The host's services

/// `prompt`.
package struct Prompt: Codable, Sendable {
    /// The request that the user is asked for.
    package var `for`: UInt64
    /// `secret`, `confirm`, `text` or `choice`.
    package var kind: String
    package var text: String
    /// Of a `choice`.
    package var choices: [String]?
    package init(for request: UInt64, kind: String, text: String, choices: [String]? = nil) {
        (self.for, self.kind, self.text, self.choices) = (request, kind, text, choices)
    }
}

/// The answer to a `prompt`: one field, by its kind.
package struct PromptAnswer: Codable, Sendable {
    package var secret: Secret?
    package var confirmed: Bool?
    package var text: String?
    /// Counted from 0.
    package var choice: Int?
    package init(secret: Secret? = nil, confirmed: Bool? = nil, text: String? = nil, choice: Int? = nil) {
        (self.secret, self.confirmed, self.text, self.choice) = (secret, confirmed, text, choice)
    }
}

/// The notice `progress`.
package struct Progress: Codable, Sendable {
    package var `for`: UInt64
    package var text: String
    /// In seconds.
    package var remaining: Double?
    package init(for request: UInt64, text: String, remaining: Double? = nil) {
        (self.for, self.text, self.remaining) = (request, text, remaining)
    }
}

/// The notice `log`.
package struct LogLine: Codable, Sendable {
    /// As swift-log names them.
    package var level: String
    package var message: String
    package var metadata: [String: String]?
    package init(level: String, message: String, metadata: [String: String]?) {
        (self.level, self.message, self.metadata) = (level, message, metadata)
    }
}

/// `secret`: reads a source that the configuration names.
package struct SecretRequest: Codable, Sendable {
    package var source: String
    package init(source: String) { self.source = source }
}

/// The answer to `secret`.
package struct SecretAnswer: Codable, Sendable {
    package var value: Secret
    package init(_ value: Secret) { self.value = value }
}

/// `record.read`, `record.write`, `entry.…` and `lease.…`.
package struct StorageRequest: Codable, Sendable {
    package var name: String
    /// The new content of a record.
    package var value: Secret?
    /// The version of the record that is replaced.
    package var version: String?
    package var entry: WireEntry?
    package var unsettled: Bool?
    /// Whether it is about what all configurations of the plugin have in common. Not for entries.
    package var shared: Bool?
    package init(_ name: String) { self.name = name }
}

/// `storage.list`.
package struct StorageListRequest: Codable, Sendable {
    /// As in ``StorageRequest``.
    package var shared: Bool?
    package init(shared: Bool?) { self.shared = shared }
}

/// The answer to `storage.list`.
package struct StorageNames: Codable, Sendable {
    package var entries: [String]
    package var records: [String]
    package init(entries: [String], records: [String]) { (self.entries, self.records) = (entries, records) }
}

/// The answer to `record.read`. A record that does not exist has a version, but no value.
package struct RecordAnswer: Codable, Sendable {
    package var value: Secret?
    package var version: String
    package init(value: Secret?, version: String) { (self.value, self.version) = (value, version) }
}

/// The answer to `record.write`.
package struct WriteAnswer: Codable, Sendable {
    /// False where the record has another version.
    package var written: Bool
    package init(_ written: Bool) { self.written = written }
}

/// An identity in the store: as ``StoredIdentity``.
package struct WireEntry: Codable, Sendable {
    package var chain: [Data]
    package var privateKey: Secret?
    package var trust: [Data]?
    package var attributes: [String: String]?
    package init(_ entry: StoredIdentity) {
        chain = entry.certificateChain.map { Data($0.derRepresentation) }
        privateKey = entry.privateKey.map(Secret.init)
        trust = entry.trust?.certificates.map { Data($0.derRepresentation) }
        attributes = entry.attributes
    }

    /// - Throws: `malformedData` for a certificate that is none.
    package func entry() throws(ProviderError) -> StoredIdentity {
        StoredIdentity(
            certificateChain: try chain.certificates(), privateKey: privateKey?.bytes,
            trust: TrustBundle(try (trust ?? []).certificates()), attributes: attributes ?? [:])
    }
}

/// The answer to `entry.read`.
package struct EntryAnswer: Codable, Sendable {
    package var entry: WireEntry?
    package init(_ entry: WireEntry?) { self.entry = entry }
}

/// The answer to `lease.take`, and to `lease.look`.
package struct LeaseAnswer: Codable, Sendable {
    /// False while another process or thread has the lease.
    package var taken: Bool
    package var unsettled: Bool
    package var awaited: Bool
    package init(taken: Bool, unsettled: Bool = false, awaited: Bool = false) {
        (self.taken, self.unsettled, self.awaited) = (taken, unsettled, awaited)
    }
}

// MARK: - Values

extension [Data] {
    /// The greatest number of certificates of a chain.
    private static var maximum: Int { 64 }

    /// Reads certificates, DER.
    /// - Throws: `malformedData`.
    package func certificates() throws(ProviderError) -> [X509Certificate] {
        guard count <= Self.maximum else {
            throw ProviderError(
                .malformedData, "A chain has \(count) certificates; at most \(Self.maximum) are accepted.")
        }
        return try map { data throws(ProviderError) in try X509Certificate(derRepresentation: data) }
    }
}

extension KeyLocation {
    /// Reads a place; one that this version does not know is the plugin.
    package init(wire name: String?) {
        let known = [Self.file, .store, .token].first { $0.rawValue == name }
        self = known ?? .plugin
    }
}

extension KeyUse {
    private static let allNames: [(name: String, use: KeyUse)] = [
        ("sign", .signing), ("decrypt", .pkcs1Decryption), ("decryptOAEP", .oaepDecryption),
    ]

    /// `sign`, `decrypt` and `decryptOAEP`.
    package var names: [String] { Self.allNames.filter { contains($0.use) }.map(\.name) }

    /// Leaves out names that this version does not know.
    package init(names: [String]) {
        self.init(Self.allNames.filter { names.contains($0.name) }.map(\.use))
    }
}

extension [KeyType: KeyUse] {
    package var names: [String: [String]] {
        [String: [String]](uniqueKeysWithValues: map { ($0.key.rawValue, $0.value.names) })
    }

    /// Leaves out types that this version does not know.
    package init(names: [String: [String]]) {
        self.init(
            uniqueKeysWithValues: names.compactMap { name, uses in
                KeyType(rawValue: name).map { ($0, KeyUse(names: uses)) }
            })
    }
}
