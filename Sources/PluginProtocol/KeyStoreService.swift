package import CertificateProviding
import FoundationEssentials

/// The requests about keys, for both sides. Documentation/PluginProtocol.md describes them.
enum KeyOperation: String, CaseIterable, Sendable {
    case open = "key.open"
    case holds = "key.holds"
    case check = "key.check"
    case make = "key.make"
    case importing = "key.import"
    case find = "key.find"
    case list = "key.list"
    case destroy = "key.destroy"
    case announce = "key.announce"
    case identity = "key.identity"
    case storeChain = "key.storeChain"
    case keepOnly = "key.keepOnly"
    case sign = "key.sign"
    case signDigest = "key.signDigest"
    case decrypt = "key.decrypt"
    case attest = "key.attest"

    /// Whether it is answered on a thread that may block: the synchronous half of the contract needs it.
    func blocks(mayAsk: Bool) -> Bool {
        switch self {
        case .open, .holds: true
        case .find, .destroy: !mayAsk
        default: false
        }
    }

    /// The requests that not every store answers, of those that this one answers.
    static func optional(of store: any KeyStore) -> [Self] {
        [.open, .holds, .check] + (store.certificates == nil ? [] : [.identity, .keepOnly]) + [.announce]
            + (store.properties.importsKeys ? [.importing] : []) + (store.properties.attestsKeys ? [.attest] : [])
    }
}

/// Answers the requests `key.…` with the key stores of this side.
package final class KeyStoreService: Sendable {
    private let open: @Sendable (KeyRequest) throws(ProviderError) -> any KeyStore
    private let permit: @Sendable (String) throws(ProviderError) -> Void
    private let executor: BlockingExecutor
    private let handsOutWrapped: Bool
    private let interaction: @Sendable (KeyRequest, IncomingRequest, Peer) -> any UserInteraction
    private struct Keys {
        var byID: [String: any IdentityKey] = [:]
        var unnamed = 0
    }
    /// How long the other side may take to write a key down.
    private static let rememberTime = Duration.seconds(30)
    /// The keys that the other side knows.
    private let keys = BlockingMutex(Keys())

    /// - Parameters:
    ///   - executor: Runs calls that block.
    ///   - handsOutWrapped: Whether the other side gets ``IdentityKey/wrapped``: a plugin's host writes it into files, and a plugin must
    ///     not have more of a host's key than its signatures.
    ///   - interaction: The user of a request.
    ///   - permit: Throws for the URI of an identity that the other side must not choose.
    ///   - open: Returns the store of a request. May block while another plugin is started or asked.
    package init(
        executor: BlockingExecutor, handsOutWrapped: Bool = false,
        interaction: @escaping @Sendable (KeyRequest, IncomingRequest, Peer) -> any UserInteraction,
        permit: @escaping @Sendable (String) throws(ProviderError) -> Void = { _ in },
        open: @escaping @Sendable (KeyRequest) throws(ProviderError) -> any KeyStore
    ) {
        (self.executor, self.interaction, self.permit, self.open) = (executor, interaction, permit, open)
        self.handsOutWrapped = handsOutWrapped
    }

    /// Returns a key as the other side learns of it, and remembers it for `key.sign` and the like.
    package func name(_ key: any IdentityKey, label: String? = nil) -> WireKey {
        let id = keys.withLock { keys in
            let id =
                key.uri
                ?? keys.byID.first { $0.value.publicKey == key.publicKey }?.key
                ?? "key-\(keys.unnamed)"
            if key.uri == nil, keys.byID[id] == nil { keys.unnamed += 1 }
            keys.byID[id] = key
            return id
        }
        let decryption = key.decrypter?.decryptionSchemes ?? []
        return WireKey(
            id: id, uri: key.uri, publicKey: Data(key.publicKey.derRepresentation),
            schemes: key.signatureSchemes.map(\.description),
            digestSchemes: key.digestSigner.map { $0.digestSchemes.map(\.description) }, use: key.use.names,
            location: key.location.rawValue, timeout: key.signatureTimeout.map { $0 / .seconds(1) },
            decrypts: decryption.contains(.rsaPKCS1),
            decryptionSchemes: decryption.isEmpty ? nil : decryption.map(\.rawValue),
            attests: key.attester == nil ? nil : true, label: label, wrapped: handsOutWrapped ? key.wrapped : nil)
    }

    /// Forgets all keys.
    package func forget() { keys.withLock { $0 = Keys() } }

    /// Answers a request; false for one that is not about keys.
    package func answer(_ request: IncomingRequest, from peer: Peer) -> Bool {
        guard request.name.hasPrefix("key.") else { return false }
        switch KeyOperation(rawValue: request.name) {
        case nil: request.refuse()
        case .sign: peer.answer(request) { sign($0, request, peer) }
        case .signDigest: peer.answer(request) { signDigest($0, request, peer) }
        case .decrypt: peer.answer(request) { decrypt($0, request, peer) }
        case .attest: peer.answer(request) { attest($0, request, peer) }
        case let operation?:
            peer.answer(request) { (fields: KeyRequest) in
                if operation.blocks(mayAsk: fields.mayAsk == true) {
                    return peer.perform(request, on: executor) { [self] () throws(ProviderError) in
                        AnyAnswer(body: try answer(operation, fields, try open(fields)))
                    }
                }
                let person = interaction(fields, request, peer)
                peer.perform(request) { [self] () async throws(ProviderError) in
                    let store = try await executor.run { [open] () throws(ProviderError) in try open(fields)
                    }
                    return AnyAnswer(
                        body: try await answer(operation, fields, store, person) {
                            key throws(ProviderError) in
                            let _: Nothing = try await peer.request(
                                "remember", Remember(for: request.id, key: self.name(key)), .total(Self.rememberTime),
                                isAwaited: true)
                        })
                }
            }
        }
        return true
    }

    private func answer(
        _ operation: KeyOperation, _ fields: KeyRequest, _ store: any KeyStore
    ) throws(ProviderError) -> any Encodable & Sendable {
        switch operation {
        case .open: return KeyStoreAnswer(store)
        case .holds: return HoldsAnswer(holds: store.holds(keyURI: try fields.required(\.uri, "uri")))
        case .find: return named(try store.storedKey(for: try fields.required(\.key, "key")))
        case .destroy:
            let reference = try fields.required(\.key, "key")
            return forget(reference, wasThere: try store.destroyStored(reference))
        default: throw Self.unsupported(operation)
        }
    }

    private func answer(
        _ operation: KeyOperation, _ fields: KeyRequest, _ store: any KeyStore, _ person: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any Encodable & Sendable {
        switch operation {
        case .check: try await store.check(person)
        case .make, .importing:
            return named(try await store.make(try NewKey(operation, fields), person, remember: remember))
        case .find: return named(try await store.key(for: try fields.required(\.key, "key"), person))
        case .list:
            return KeysAnswer(
                keys: try await store.list().map { key in
                    WireKey(
                        uri: key.reference.uri, publicKey: Data(key.reference.publicKey.derRepresentation),
                        location: key.location.rawValue, label: key.label)
                })
        case .destroy:
            let reference = try fields.required(\.key, "key")
            return forget(reference, wasThere: try await store.destroy(reference, person))
        case .announce:
            return Sentences(try await store.announceDestruction(of: try fields.required(\.key, "key")))
        case .identity:
            let uri = try fields.required(\.uri, "uri")
            try permit(uri)
            let identity = try await store.identity(uri, person)
            return IdentityAnswer(WireIdentity(identity, key: self.name(identity.key)))
        case .storeChain:
            let (reference, chain) = (try fields.required(\.key, "key"), try (fields.chain ?? []).certificates())
            var key = keys.withLock { keys in keys.byID.values.first { $0.publicKey == reference.publicKey } }
            if key == nil { key = try await store.key(for: reference, person) }
            guard let key else {
                throw ProviderError(.notFound, "The key of the chain is not in the key store.")
            }
            try await store.storeChain(chain, for: key, person)
        case .keepOnly:
            guard let leaf = try (fields.chain ?? []).certificates().first else {
                throw ProviderError(.protocolError, "The field 'chain' has no certificate.")
            }
            try await store.certificates?.removeOtherCertificates(
                than: leaf, of: try fields.required(\.key, "key"), person)
        case .open, .holds, .sign, .signDigest, .decrypt, .attest: throw Self.unsupported(operation)
        }
        return Nothing()
    }

    private static func unsupported(_ operation: KeyOperation) -> ProviderError {
        ProviderError(.unsupportedRequest, "The request '\(operation.rawValue)' is not answered here.")
    }

    private func named(_ key: (any IdentityKey)?) -> KeyAnswer { KeyAnswer(key: key.map { name($0) }) }

    private func forget(_ key: KeyReference, wasThere: Bool) -> DestroyAnswer {
        keys.withLock { keys in keys.byID = keys.byID.filter { $0.value.publicKey != key.publicKey } }
        return DestroyAnswer(destroyed: wasThere)
    }

    private func key(_ id: String) throws(ProviderError) -> any IdentityKey {
        guard let key = keys.withLock({ $0.byID[id] }) else {
            throw ProviderError(.notFound, "This side has named no key '\(id.withVisibleControls)'.")
        }
        return key
    }

    private func sign(_ fields: Sign, _ request: IncomingRequest, _ peer: Peer) {
        let (key, scheme): (any IdentityKey, SignatureScheme)
        do throws(ProviderError) {
            (key, scheme) = (try self.key(fields.key), try Self.scheme(fields.scheme))
        } catch { return request.fail(error) }
        let message = [UInt8](fields.message)
        if let signer = key.callbackSigner {
            signer.sign(message, using: scheme) { result in
                request.answer(result.map { SignatureAnswer(signature: Data($0)) })
            }
        } else {
            peer.perform(request) { () async throws(ProviderError) in
                SignatureAnswer(signature: Data(try await key.signature(for: message, using: scheme)))
            }
        }
    }

    private static func scheme(_ name: String) throws(ProviderError) -> SignatureScheme {
        guard let scheme = SignatureScheme(name) else {
            throw ProviderError(
                .unsupportedAlgorithm, "The signature scheme '\(name.withVisibleControls)' is unknown.")
        }
        return scheme
    }

    private func signDigest(_ fields: SignDigest, _ request: IncomingRequest, _ peer: Peer) {
        peer.perform(request) { [self] () async throws(ProviderError) in
            let key = try key(fields.key)
            let scheme = try Self.scheme(fields.scheme)
            guard let signer = key.digestSigner else {
                throw ProviderError(
                    .unsupportedAlgorithm, "The key signs messages only, and no digests; send the message.")
            }
            return SignatureAnswer(
                signature: Data(try await signer.signature(forDigest: [UInt8](fields.digest), using: scheme)))
        }
    }

    private func decrypt(_ fields: Decrypt, _ request: IncomingRequest, _ peer: Peer) {
        peer.perform(request) { [self] () async throws(ProviderError) in
            let key = try key(fields.key)
            guard let decrypter = key.decrypter else {
                throw ProviderError(
                    .unsupportedAlgorithm, "The key was made without decryption; make another one for it.")
            }
            let scheme = fields.scheme.map(DecryptionScheme.init(rawValue:)) ?? .rsaPKCS1
            return DecryptAnswer(
                plaintext: Secret(try await decrypter.decrypt([UInt8](fields.ciphertext), using: scheme)))
        }
    }

    private func attest(_ fields: Attest, _ request: IncomingRequest, _ peer: Peer) {
        peer.perform(request) { [self] () async throws(ProviderError) in
            guard let attester = try key(fields.key).attester else {
                throw ProviderError(
                    .unsupportedRequest, "The key cannot prove where it lives; use a key store whose keys can.")
            }
            return AttestAnswer(try await attester.attestation(of: [UInt8](fields.data)))
        }
    }
}

/// An answer of any form.
private struct AnyAnswer: Encodable, Sendable {
    let body: any Encodable & Sendable
    func encode(to encoder: any Encoder) throws { try body.encode(to: encoder) }
}

extension NewKey {
    fileprivate init(_ operation: KeyOperation, _ fields: KeyRequest) throws(ProviderError) {
        let label = try fields.required(\.label, "label")
        let guarantees = Set((fields.guarantees ?? []).map(KeyGuarantee.init))
        if operation == .importing {
            self.init(pkcs8: try fields.required(\.pkcs8, "pkcs8").bytes, label: label, guarantees: guarantees)
            return
        }
        guard let type = KeyType(rawValue: try fields.required(\.type, "type")) else {
            throw ProviderError(.unsupportedAlgorithm, "The type of key is unknown.")
        }
        let uses = fields.use ?? ["sign"]
        let use = KeyUse(names: uses)
        guard Set(use.names) == Set(uses) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "One of the uses \(uses.joined(separator: ", ").withVisibleControls) is unknown; ask for "
                    + "those that the store makes.")
        }
        self.init(type, label: label, use: use, guarantees: guarantees)
    }
}

extension KeyRequest {
    fileprivate func required<Value>(
        _ field: KeyPath<KeyRequest, Value?>, _ name: String
    ) throws(ProviderError) -> Value {
        guard let value = self[keyPath: field] else {
            throw ProviderError(.protocolError, "The field '\(name)' of a message is missing.")
        }
        return value
    }
}
