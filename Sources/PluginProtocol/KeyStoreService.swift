package import CertificateProviding
import FoundationEssentials

/// Answers the requests `key.…` with the key stores of this side.
package final class KeyStoreService: Sendable {
    private let open: @Sendable (KeyRequest) throws(CertificateProviderError) -> any KeyStore
    private let permit: @Sendable (String) throws(CertificateProviderError) -> Void
    private let executor: BlockingExecutor
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
    ///   - interaction: The user of a request.
    ///   - permit: Throws for the URI of an identity that the other side must not choose.
    ///   - open: Returns the store of a request. May block while another plugin is started or asked.
    package init(
        executor: BlockingExecutor,
        interaction: @escaping @Sendable (KeyRequest, IncomingRequest, Peer) -> any UserInteraction,
        permit: @escaping @Sendable (String) throws(CertificateProviderError) -> Void = { _ in },
        open: @escaping @Sendable (KeyRequest) throws(CertificateProviderError) -> any KeyStore
    ) {
        (self.executor, self.interaction, self.permit, self.open) = (executor, interaction, permit, open)
    }

    /// Returns a key as the other side learns of it, and remembers it for `key.sign`, `key.signDigest` and `key.decrypt`.
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
            decryptionSchemes: decryption.isEmpty ? nil : decryption.map(\.rawValue), label: label)
    }

    /// Forgets all keys.
    package func forget() { keys.withLock { $0 = Keys() } }

    /// Answers a request; false for one that is not about keys.
    package func answer(_ request: IncomingRequest, from peer: Peer) -> Bool {
        switch request.name {
        case "key.sign": peer.answer(request) { sign($0, request, peer) }
        case "key.signDigest": peer.answer(request) { signDigest($0, request, peer) }
        case "key.decrypt": peer.answer(request) { decrypt($0, request, peer) }
        case let name where name.hasPrefix("key."):
            peer.answer(request) { (fields: KeyRequest) in
                if let work = blockingWork(name, fields) {
                    return peer.perform(request, on: executor, work)
                }
                guard let work = work(name, fields, request, peer) else { return request.refuse() }
                peer.perform(request, work)
            }
        default: return false
        }
        return true
    }

    private func key(_ id: String) throws(CertificateProviderError) -> any IdentityKey {
        guard let key = keys.withLock({ $0.byID[id] }) else {
            throw CertificateProviderError(.notFound, "This side has named no key '\(id.withVisibleControls)'.")
        }
        return key
    }

    private func sign(_ fields: Sign, _ request: IncomingRequest, _ peer: Peer) {
        let (key, scheme): (any IdentityKey, SignatureScheme)
        do throws(CertificateProviderError) {
            (key, scheme) = (try self.key(fields.key), try Self.scheme(fields.scheme))
        } catch { return request.fail(error) }
        let message = [UInt8](fields.message)
        if let signer = key.callbackSigner {
            signer.sign(message, using: scheme) { result in
                switch result {
                case .success(let signature): request.answer(SignatureAnswer(Data(signature)))
                case .failure(let error): request.fail(error)
                }
            }
        } else {
            peer.perform(request) { () async throws(CertificateProviderError) in
                SignatureAnswer(Data(try await key.signature(for: message, using: scheme)))
            }
        }
    }

    private static func scheme(_ name: String) throws(CertificateProviderError) -> SignatureScheme {
        guard let scheme = SignatureScheme(name) else {
            throw CertificateProviderError(
                .unsupportedAlgorithm, "The signature scheme '\(name.withVisibleControls)' is unknown.")
        }
        return scheme
    }

    private func signDigest(_ fields: SignDigest, _ request: IncomingRequest, _ peer: Peer) {
        peer.perform(request) { [self] () async throws(CertificateProviderError) in
            let key = try key(fields.key)
            let scheme = try Self.scheme(fields.scheme)
            guard let signer = key.digestSigner else {
                throw CertificateProviderError(
                    .unsupportedAlgorithm, "The key signs messages only, and no digests; send the message.")
            }
            return SignatureAnswer(
                Data(try await signer.signature(forDigest: [UInt8](fields.digest), using: scheme)))
        }
    }

    private func decrypt(_ fields: Decrypt, _ request: IncomingRequest, _ peer: Peer) {
        peer.perform(request) { [self] () async throws(CertificateProviderError) in
            let key = try key(fields.key)
            guard let decrypter = key.decrypter else {
                throw CertificateProviderError(
                    .unsupportedAlgorithm, "The key was made without decryption; make another one for it.")
            }
            let scheme = fields.scheme.map(DecryptionScheme.init(rawValue:)) ?? .rsaPKCS1
            return DecryptAnswer(Secret(try await decrypter.decrypt([UInt8](fields.ciphertext), using: scheme)))
        }
    }

    private func forget(_ key: KeyReference) {
        keys.withLock { keys in keys.byID = keys.byID.filter { $0.value.publicKey != key.publicKey } }
    }

    /// What the synchronous half of the contract needs; nil for another request.
    private func blockingWork(
        _ name: String, _ fields: KeyRequest
    ) -> (@Sendable () throws(CertificateProviderError) -> AnyAnswer)? {
        switch name {
        case "key.open":
            return { [self] () throws(CertificateProviderError) in
                let store = try open(fields)
                let (properties, keepsCertificates) = (store.properties, store.certificates != nil)
                let can =
                    ["key.open", "key.holds", "key.check"]
                    + (keepsCertificates ? ["key.identity", "key.keepOnly"] : [])
                    + ["key.announce"] + (properties.importsKeys ? ["key.import"] : [])
                return AnyAnswer(KeyStoreAnswer(properties, can: can, certificates: keepsCertificates))
            }
        case "key.holds":
            return { [self] () throws(CertificateProviderError) in
                AnyAnswer(HoldsAnswer(try open(fields).holds(keyURI: try fields.required(\.uri, "uri"))))
            }
        case "key.find" where fields.mayAsk != true:
            return { [self] () throws(CertificateProviderError) in
                let key = try open(fields).storedKey(for: try fields.required(\.key, "key"))
                return AnyAnswer(KeyAnswer(key.map { self.name($0) }))
            }
        case "key.destroy" where fields.mayAsk != true:
            return { [self] () throws(CertificateProviderError) in
                let reference = try fields.required(\.key, "key")
                let answer = DestroyAnswer(try open(fields).destroyStored(reference))
                forget(reference)
                return AnyAnswer(answer)
            }
        default: return nil
        }
    }

    /// The store of a request, for tasks, which must not block.
    private func store(_ fields: KeyRequest) async throws(CertificateProviderError) -> any KeyStore {
        try await executor.run { [open] () throws(CertificateProviderError) in try open(fields) }
    }

    /// Returns nil for an unknown request.
    private func work(
        _ name: String, _ fields: KeyRequest, _ request: IncomingRequest, _ peer: Peer
    ) -> (@Sendable () async throws(CertificateProviderError) -> AnyAnswer)? {
        let person = interaction(fields, request, peer)
        let remember: @Sendable (any IdentityKey) async throws(CertificateProviderError) -> Void = {
            [self] key throws(CertificateProviderError) in
            let _: Nothing = try await peer.request(
                "remember", Remember(for: request.id, key: self.name(key)), .total(Self.rememberTime),
                isAwaited: true)
        }
        switch name {
        case "key.check":
            return { [self] () async throws(CertificateProviderError) in
                try await store(fields).check(person)
                return AnyAnswer(Nothing())
            }
        case "key.make":
            return { [self] () async throws(CertificateProviderError) in
                guard let type = KeyType(rawValue: try fields.required(\.type, "type")) else {
                    throw CertificateProviderError(.unsupportedAlgorithm, "The type of key is unknown.")
                }
                let uses = fields.use ?? ["sign"]
                let use = KeyUse(names: uses)
                guard Set(use.names) == Set(uses) else {
                    throw CertificateProviderError(
                        .unsupportedAlgorithm,
                        "One of the uses \(uses.joined(separator: ", ").withVisibleControls) is unknown; ask for "
                            + "those that the store makes.")
                }
                let new = NewKey(
                    type, label: try fields.required(\.label, "label"), use: use, guarantees: fields.demands)
                return AnyAnswer(
                    KeyAnswer(self.name(try await store(fields).make(new, person, remember: remember))))
            }
        case "key.import":
            return { [self] () async throws(CertificateProviderError) in
                let new = NewKey(
                    pkcs8: try fields.required(\.pkcs8, "pkcs8").bytes, label: try fields.required(\.label, "label"),
                    guarantees: fields.demands)
                return AnyAnswer(
                    KeyAnswer(self.name(try await store(fields).make(new, person, remember: remember))))
            }
        case "key.find":
            return { [self] () async throws(CertificateProviderError) in
                let key = try await store(fields).key(for: try fields.required(\.key, "key"), person)
                return AnyAnswer(KeyAnswer(key.map { self.name($0) }))
            }
        case "key.list":
            return { [self] () async throws(CertificateProviderError) in
                AnyAnswer(
                    KeysAnswer(
                        try await store(fields).list().map { key in
                            WireKey(
                                uri: key.reference.uri, publicKey: Data(key.reference.publicKey.derRepresentation),
                                location: key.location.rawValue, label: key.label)
                        }))
            }
        case "key.identity":
            return { [self] () async throws(CertificateProviderError) in
                let uri = try fields.required(\.uri, "uri")
                try permit(uri)
                let identity = try await store(fields).identity(uri, person)
                return AnyAnswer(IdentityAnswer(WireIdentity(identity, key: self.name(identity.key))))
            }
        case "key.storeChain":
            return { [self] () async throws(CertificateProviderError) in
                let reference = try fields.required(\.key, "key")
                let chain = try (fields.chain ?? []).certificates()
                let store = try await store(fields)
                let known = keys.withLock { keys in
                    keys.byID.values.first { $0.publicKey == reference.publicKey }
                }
                let key: (any IdentityKey)?
                if let known { key = known } else { key = try await store.key(for: reference, person) }
                guard let key else {
                    throw CertificateProviderError(.notFound, "The key of the chain is not in the key store.")
                }
                try await store.storeChain(chain, for: key, person)
                return AnyAnswer(Nothing())
            }
        case "key.keepOnly":
            return { [self] () async throws(CertificateProviderError) in
                guard let leaf = try (fields.chain ?? []).certificates().first else {
                    throw CertificateProviderError(.protocolError, "The field 'chain' has no certificate.")
                }
                try await store(fields).certificates?.removeOtherCertificates(
                    than: leaf, of: try fields.required(\.key, "key"), person)
                return AnyAnswer(Nothing())
            }
        case "key.destroy":
            return { [self] () async throws(CertificateProviderError) in
                let reference = try fields.required(\.key, "key")
                let answer = DestroyAnswer(try await store(fields).destroy(reference, person))
                forget(reference)
                return AnyAnswer(answer)
            }
        case "key.announce":
            return { [self] () async throws(CertificateProviderError) in
                AnyAnswer(Sentences(try await store(fields).announceDestruction(of: try fields.required(\.key, "key"))))
            }
        default: return nil
        }
    }
}

/// An answer of any form.
private struct AnyAnswer: Encodable, Sendable {
    private let body: any Encodable & Sendable
    init(_ body: some Encodable & Sendable) { self.body = body }
    func encode(to encoder: any Encoder) throws { try body.encode(to: encoder) }
}

extension KeyRequest {
    fileprivate var demands: Set<KeyGuarantee> { Set((guarantees ?? []).map(KeyGuarantee.init)) }

    fileprivate func required<Value>(
        _ field: KeyPath<KeyRequest, Value?>, _ name: String
    ) throws(CertificateProviderError) -> Value {
        guard let value = self[keyPath: field] else {
            throw CertificateProviderError(.protocolError, "The field '\(name)' of a message is missing.")
        }
        return value
    }
}
