package import CertificateProviding
import FoundationEssentials

/// Finds the other side of a connection. A plugin that has ended is started again.
package protocol PeerSource: Sendable {
    /// The other side where it is there now.
    var livePeer: Peer? { get }
    /// The other side. Blocks while it starts, for a bounded time.
    /// - Throws: `unavailable`, and errors of the start.
    func peer() throws(ProviderError) -> Peer
    /// Between both calls, the other side is not ended for being idle: from before a peer is looked for until its request is sent.
    func beginUse()
    func endUse()
    /// How long a call without a person may take.
    var timeout: Duration { get }
    /// Runs calls that block.
    var executor: BlockingExecutor { get }
    /// Returns the error as users see it.
    func describing(_ error: ProviderError) -> ProviderError
    /// The request of the other side for which this side works now.
    var currentRequest: UInt64? { get }
    /// Whether the other side is the host of this plugin.
    var isHost: Bool { get }
    /// A key store that uses it is shut down.
    func shutdown() async
}

extension PeerSource {
    package var currentRequest: UInt64? { nil }
    package var isHost: Bool { false }
    package func shutdown() async {}
    package func beginUse() {}
    package func endUse() {}

    /// Uses the other side. It is started on ``executor`` if it is not there.
    package func withReadyPeer<T>(
        _ body: (Peer) async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        beginUse()
        defer { endUse() }
        if let live = livePeer { return try await body(live) }
        return try await body(try await executor.run { () throws(ProviderError) in try peer() })
    }

    /// Uses the other side. Blocks while it starts.
    package func withPeer<T>(
        _ body: (Peer) throws(ProviderError) -> T
    ) throws(ProviderError) -> T {
        beginUse()
        defer { endUse() }
        return try body(try peer())
    }
}

/// A key store of the other side.
package final class RemoteKeyStore: KeyStore {
    /// The known facts about a store.
    package struct Details: Sendable {
        package let properties: KeyStoreProperties
        /// Requests that not every store answers.
        fileprivate var can: Set<String>
        /// True also for a store that does not say.
        package let keepsCertificates: Bool

        /// The report of a plugin about one of its key stores.
        package init(_ store: Hello.KeyStore) {
            self.init(store.scheme, store.location, store.makes, store.can, store.certificates, store.guarantees)
        }

        fileprivate init(_ answer: KeyStoreAnswer, scheme: String) {
            self.init(scheme, answer.location, answer.makes, answer.can, answer.certificates, answer.guarantees)
        }

        private init(
            _ scheme: String, _ location: String?, _ makes: [String: [String]], _ can: [String]?,
            _ certificates: Bool?, _ guarantees: [String]?
        ) {
            properties = KeyStoreProperties(
                scheme: scheme, location: KeyLocation(wire: location), makes: [KeyType: KeyUse](names: makes),
                importsKeys: can?.contains(KeyOperation.importing.rawValue) == true,
                attestsKeys: can?.contains(KeyOperation.attest.rawValue) == true,
                guarantees: Set((guarantees ?? []).map(KeyGuarantee.init)))
            self.can = Set(can ?? [])
            keepsCertificates = certificates ?? true
        }

        fileprivate func answers(_ operation: KeyOperation) -> Bool { can.contains(operation.rawValue) }
    }

    package let scheme: String
    /// Nil for the store of the other side's provider.
    private let place: KeyStoreLocation?
    private let declared: Details
    private let opened = BlockingMutex<Details?>(nil)
    private let source: any PeerSource

    /// Creates the store. Does no I/O.
    ///
    /// - Parameter declared: With `key.open` where the other side tells more of this place.
    package init(_ place: KeyStoreLocation, _ declared: Details, source: any PeerSource) {
        (self.place, self.declared, self.source) = (place, declared, source)
        scheme = place.scheme
    }

    /// Creates the key store of the other side's provider, for new keys beside its identities. Does no I/O.
    package init(ofProviderWith declared: Details, source: any PeerSource) {
        (place, scheme, self.declared, self.source) = (nil, declared.properties.scheme, declared, source)
    }

    /// Returns the key store of the other side for a place. Blocks for its answer.
    package static func open(
        _ place: KeyStoreLocation, at peer: Peer, source: any PeerSource
    ) throws(ProviderError) -> RemoteKeyStore {
        let request = KeyRequest(
            store: place.uri, pinSource: place.pinSource?.description, parameter: place.parameter)
        let answer: KeyStoreAnswer = try peer.call(KeyOperation.open.rawValue, request, .unlimited)
        // With all that is known of it.
        var details = Details(answer, scheme: place.scheme)
        details.can.remove(KeyOperation.open.rawValue)
        return RemoteKeyStore(place, details, source: source)
    }

    private var current: Details? { declared.answers(.open) ? opened.withLock(\.self) : declared }

    private func note(_ answer: KeyStoreAnswer) -> Details {
        let new = Details(answer, scheme: scheme)
        opened.withLock { $0 = new }
        return new
    }

    /// Blocks for the other side, once.
    private func details() throws(ProviderError) -> Details {
        if let current { return current }
        return note(try call(.open))
    }

    /// As ``details()``, for functions that must not block.
    private func known() async throws(ProviderError) -> Details {
        if let current { return current }
        return note(try await send(.open))
    }

    /// Of a store that tells more of itself, blocks for that once.
    package var properties: KeyStoreProperties { ((try? details()) ?? declared).properties }
    /// Of a store that tells more of itself, blocks for that once.
    package var certificates: (any CertificateStoring)? {
        ((try? details()) ?? declared).keepsCertificates ? self : nil
    }

    private var request: KeyRequest {
        KeyRequest(
            store: place?.uri, pinSource: place?.pinSource?.description, parameter: place?.parameter,
            for: source.currentRequest)
    }

    /// - Parameters:
    ///   - interaction: The user who may be asked; nil for a request that asks nothing.
    ///   - change: Adds the fields of the operation.
    ///   - remember: Writes down the key that the request makes.
    private func send<Answer: Decodable & Sendable>(
        _ operation: KeyOperation, _ interaction: (any UserInteraction)? = nil,
        _ change: (inout KeyRequest) -> Void = { _ in },
        remember: (@Sendable (WireKey) async throws(ProviderError) -> Void)? = nil
    ) async throws(ProviderError) -> Answer {
        var request = request
        request.mayAsk = interaction?.canAsk
        change(&request)
        let (fields, context) = (request, interaction.map { RequestContext($0, remember: remember) })
        do throws(ProviderError) {
            return try await source.withReadyPeer { peer throws(ProviderError) in
                try await peer.request(
                    operation.rawValue, fields, .silence(source.timeout, mayAsk: fields.mayAsk ?? false), context)
            }
        } catch { throw source.describing(error) }
    }

    private func call<Answer: Decodable & Sendable>(
        _ operation: KeyOperation, _ change: (inout KeyRequest) -> Void = { _ in }
    ) throws(ProviderError) -> Answer {
        var request = request
        change(&request)
        do throws(ProviderError) {
            return try source.withPeer { peer throws(ProviderError) in
                try peer.call(operation.rawValue, request, .total(source.timeout))
            }
        } catch { throw source.describing(error) }
    }

    /// A store that is one place has all keys of its scheme. Others are asked; a key that they cannot tell of is not theirs.
    package func holds(keyURI: String) -> Bool {
        guard KeyStoreLocation(uri: keyURI, pinSource: nil)?.scheme == scheme else { return false }
        // One that cannot be asked is not left out: its errors are shown by the use that follows.
        guard let details = try? details() else { return true }
        guard details.answers(.holds) else { return keyURI.hasPrefix(place?.uri ?? scheme) }
        let answer: HoldsAnswer? = try? call(.holds) { $0.uri = keyURI }
        return answer?.holds ?? true
    }

    package func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        guard try await known().answers(.check) else {
            // Whatever keeps the store from being used keeps it from looking for a key, too.
            let unknown = try SoftwareKey.generate(.p256, location: .store).publicKey
            _ = try await key(for: KeyReference(publicKey: unknown, uri: ""), interaction)
            return
        }
        let _: Nothing = try await send(.check, interaction)
    }

    package func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        let type = try await known().properties.check(new)
        let remembered = BlockingMutex<(any IdentityKey)?>(nil)
        let answer: KeyAnswer = try await send(type == nil ? .importing : .make, interaction) { request in
            (request.type, request.label, request.pkcs8) = (type?.rawValue, new.label, new.pkcs8.map(Secret.init))
            if type != nil { request.use = new.use.names }
            if !new.guarantees.isEmpty { request.guarantees = new.guarantees.map(\.rawValue).sorted() }
        } remember: { [self] wire throws(ProviderError) in
            let key = try key(wire, nil)
            if let type, !type.fits(key.publicKey) {
                throw ProviderError(.protocolError, "The key that was made is not of the type \(type).")
            }
            try await remember(key)
            remembered.withLock { $0 = key }
        }
        guard let wire = answer.key, let remembered = remembered.withLock(\.self), let made = try? key(wire, nil),
            made.publicKey == remembered.publicKey
        else {
            throw source.describing(
                ProviderError(
                    .protocolError, "The key store answers with a key that it did not have written down."))
        }
        return made
    }

    package func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try found(try await send(.find, interaction) { $0.key = key }, key)
    }

    package func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try found(try call(.find) { ($0.key, $0.mayAsk) = (key, false) }, key)
    }

    private func found(
        _ answer: KeyAnswer, _ reference: KeyReference
    ) throws(ProviderError) -> (any IdentityKey)? {
        guard let wire = answer.key else { return nil }
        let key = try key(wire, source.livePeer)
        guard key.publicKey == reference.publicKey else {
            throw source.describing(
                ProviderError(.protocolError, "The key store answers with another key than was asked for."))
        }
        return key
    }

    /// - Parameter peer: The one that knows the key already.
    private func key(_ wire: WireKey, _ peer: Peer?) throws(ProviderError) -> RemoteKey {
        var wire = wire
        // A store that has not told of this place yet tells of the key.
        if current?.answers(.attest) == false { wire.attests = nil }
        return try RemoteKey(wire, source, knownTo: peer ?? source.livePeer) {
            [self] key, peer throws(ProviderError) in
            var request = request
            (request.key, request.mayAsk) = (KeyReference(publicKey: key.publicKey, uri: key.uri ?? ""), false)
            let answer: KeyAnswer = try peer.call(KeyOperation.find.rawValue, request, .total(source.timeout))
            return answer.key
        }
    }

    package func list() async throws(ProviderError) -> [KeyDescription] {
        let location = try await known().properties.location
        let answer: KeysAnswer = try await send(.list)
        do throws(ProviderError) {
            return try answer.keys.map { wire throws(ProviderError) in
                guard let uri = wire.uri, let encoded = wire.publicKey else {
                    throw ProviderError(.protocolError, "A key of a list has no 'uri' or no 'publicKey'.")
                }
                return KeyDescription(
                    KeyReference(publicKey: try PublicKeyInfo(derRepresentation: encoded), uri: uri), label: wire.label,
                    location: wire.location.map(KeyLocation.init(wire:)) ?? location)
            }
        } catch { throw source.describing(error) }
    }

    package func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        let answer: DestroyAnswer = try await send(.destroy, interaction) { $0.key = key }
        return answer.destroyed ?? true
    }

    package func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        let answer: DestroyAnswer = try call(.destroy) { ($0.key, $0.mayAsk) = (key, false) }
        return answer.destroyed ?? true
    }

    package func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] {
        guard try await known().answers(.announce) else { return [] }
        let answer: Sentences = try await send(.announce) { $0.key = key }
        return answer.sentences.map { String($0.withVisibleControls.prefix(1024)) }
    }

    package func shutdown() async { await source.shutdown() }
}

extension RemoteKeyStore: CertificateStoring {
    package func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        guard try await known().answers(.identity) else {
            throw ProviderError(
                .notFound, "The key store '\(scheme):' keeps no certificates, and so has no identity of its own.")
        }
        let answer: IdentityAnswer = try await send(.identity, interaction) { $0.uri = uri }
        guard let wire = answer.identity else {
            throw source.describing(ProviderError(.notFound, "The identity is not in the key store."))
        }
        do throws(ProviderError) {
            return try Identity(
                certificateChain: try wire.chain.certificates(), key: try key(wire.key, source.livePeer),
                provenance: .init(provider: provider, alias: wire.alias, source: wire.source))
        } catch { throw source.describing(error) }
    }

    private var provider: ProviderID { ProviderID(rawValue: scheme) ?? ProviderID("plugin") }

    package func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let _: Nothing = try await send(.storeChain, interaction) { request in
            request.key = KeyReference(publicKey: key.publicKey, uri: key.uri ?? "")
            request.chain = chain.map { Data($0.derRepresentation) }
        }
    }

    package func removeOtherCertificates(
        than leaf: X509Certificate, of key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        guard try await known().answers(.keepOnly) else { return }
        let _: Nothing = try await send(.keepOnly, interaction) { request in
            (request.key, request.chain) = (key, [Data(leaf.derRepresentation)])
        }
    }
}

/// A private key of the other side.
package final class RemoteKey: IdentityKey, CallbackSigning {
    package let publicKey: PublicKeyInfo
    package let signatureSchemes: [SignatureScheme]
    package let digestSchemes: [SignatureScheme]
    package let use: KeyUse
    package let location: KeyLocation
    package let uri: String?
    package let signatureTimeout: Duration?
    package let decryptionSchemes: [DecryptionScheme]
    package let wrapped: WrappedKey?
    private let attests: Bool
    private let source: any PeerSource
    /// Asks a new process of the other side for the key.
    private let find: @Sendable (RemoteKey, Peer) throws(ProviderError) -> WireKey?
    private struct Known {
        var peer: Peer?
        var id: String
    }
    /// The process that knows the key, and its name there.
    private let known: BlockingMutex<Known>

    /// - Throws: `protocolError`, `malformedData`.
    package init(
        _ wire: WireKey, _ source: any PeerSource, knownTo peer: Peer?,
        find: @escaping @Sendable (RemoteKey, Peer) throws(ProviderError) -> WireKey?
    ) throws(ProviderError) {
        guard let encoded = wire.publicKey, let id = wire.id ?? wire.uri, let schemes = wire.schemes else {
            throw ProviderError(
                .protocolError, "A key has no 'publicKey', no 'schemes', or neither 'id' nor 'uri'.")
        }
        publicKey = try PublicKeyInfo(derRepresentation: encoded)
        let signatureSchemes = schemes.compactMap { SignatureScheme($0) }
        self.signatureSchemes = signatureSchemes
        digestSchemes = (wire.digestSchemes ?? []).compactMap { SignatureScheme($0) }.filter {
            signatureSchemes.contains($0) && $0.digestAlgorithm != nil
        }
        location = KeyLocation(wire: wire.location)
        uri = wire.uri
        // Limited as a number: a duration traps on one that is too large.
        let limit = max(Self.longestTimeout, source.timeout) / .seconds(1)
        signatureTimeout = wire.timeout.flatMap { $0 > 0 ? .seconds(min($0, limit)) : nil } ?? source.timeout
        // A side that does not name them knows RSAES-PKCS1-v1_5 only.
        let decryptionSchemes =
            wire.decryptionSchemes?.map(DecryptionScheme.init(rawValue:)) ?? (wire.decrypts == true ? [.rsaPKCS1] : [])
        self.decryptionSchemes = decryptionSchemes
        use =
            wire.use.map(KeyUse.init(names:))
            ?? KeyUse(signatureSchemes: signatureSchemes, decryptionSchemes: decryptionSchemes)
        wrapped = wire.wrapped.flatMap { der in wire.wrappedLabel.map { WrappedKey(label: $0, der: der.bytes) } }
        (attests, self.source, self.find) = (wire.attests == true, source, find)
        known = BlockingMutex(Known(peer: peer, id: id))
    }

    /// Enough for a person to touch a key. A handshake waits as long.
    private static let longestTimeout = Duration.seconds(60)

    package var callbackSigner: (any CallbackSigning)? { self }
    package var hostKey: KeyReference? {
        source.isHost ? uri.map { KeyReference(publicKey: publicKey, uri: $0) } : nil
    }
    package var attester: (any KeyAttesting)? { attests ? self : nil }
    package var decrypter: (any KeyDecrypting)? { decryptionSchemes.isEmpty ? nil : self }
    package var digestSigner: (any DigestSigning)? { digestSchemes.isEmpty ? nil : self }

    /// The message stays on this side if the key signs digests: however long it is, the request is short.
    package func sign(
        _ message: [UInt8], using scheme: SignatureScheme,
        completion: @escaping @Sendable (Result<[UInt8], ProviderError>) -> Void
    ) {
        guard signatureSchemes.contains(scheme) else {
            return completion(
                .failure(ProviderError(.unsupportedAlgorithm, "The key cannot sign with \(scheme).")))
        }
        if digestSchemes.contains(scheme), let algorithm = scheme.digestAlgorithm {
            return sign(digest: algorithm.digest(of: message), using: scheme, completion: completion)
        }
        request(.sign, completion) { id in
            Sign(key: id, scheme: scheme.description, message: Data(message))
        }
    }

    private func sign(
        digest: [UInt8], using scheme: SignatureScheme,
        completion: @escaping @Sendable (Result<[UInt8], ProviderError>) -> Void
    ) {
        request(.signDigest, completion) { id in
            SignDigest(key: id, scheme: scheme.description, digest: Data(digest))
        }
    }

    /// Asks for a signature.
    ///
    /// - Parameter fields: Returns those of the request, from the key's name.
    private func request<Fields: Encodable & Sendable>(
        _ operation: KeyOperation,
        _ completion: @escaping @Sendable (Result<[UInt8], ProviderError>) -> Void,
        _ fields: @escaping @Sendable (_ id: String) -> Fields
    ) {
        let limit = MessageChannel.Limit.total(signatureTimeout ?? source.timeout)
        withPeer { [source] result in
            switch result {
            case .failure(let error): completion(.failure(source.describing(error)))
            case .success(let (peer, id)):
                peer.channel.send(operation.rawValue, fields(id), limit) { answer in
                    completion(
                        Result { () throws(ProviderError) in
                            do throws(ProviderError) {
                                return [UInt8](try answer.get().result(as: SignatureAnswer.self).signature)
                            } catch { throw source.describing(error) }
                        })
                }
            }
        }
    }

    /// Calls back with the process that knows the key: at once, or from a thread that has started it.
    private func withPeer(_ body: @escaping @Sendable (Result<(Peer, String), ProviderError>) -> Void) {
        let known = known.withLock { $0 }
        source.beginUse()
        if let peer = known.peer, peer === source.livePeer {
            body(.success((peer, known.id)))
            return source.endUse()
        }
        source.executor.submit { [self] in
            body(Result { () throws(ProviderError) in try refound() })
            source.endUse()
        }
    }

    private func refound() throws(ProviderError) -> (Peer, String) {
        let peer = try source.peer()
        guard let wire = try find(self, peer), let id = wire.id ?? wire.uri, let encoded = wire.publicKey,
            try PublicKeyInfo(derRepresentation: encoded) == publicKey
        else {
            throw ProviderError(.notFound, "The key is not there any more; obtain a new identity.")
        }
        known.withLock { $0 = Known(peer: peer, id: id) }
        return (peer, id)
    }
}

extension RemoteKey: DigestSigning {
    package func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        try requireDigest(digest, for: scheme)
        return try await withCheckedContinuation { continuation in
            sign(digest: digest, using: scheme) { continuation.resume(returning: $0) }
        }.get()
    }
}

extension RemoteKey: KeyDecrypting {
    package func decrypt(
        _ ciphertext: [UInt8], using scheme: DecryptionScheme
    ) async throws(ProviderError) -> SecretBytes {
        guard decryptionSchemes.contains(scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key does not decrypt by \(scheme.rawValue.withVisibleControls); use one of: "
                    + "\(decryptionSchemes.map(\.rawValue.withVisibleControls).joined(separator: ", ")).")
        }
        let answer: DecryptAnswer = try await ask(.decrypt) { id in
            Decrypt(key: id, scheme: scheme.rawValue, ciphertext: Data(ciphertext))
        }
        return answer.plaintext.bytes
    }
}

extension RemoteKey: KeyAttesting {
    package func attestation(of data: [UInt8]) async throws(ProviderError) -> KeyAttestation {
        try requireAttestable(data)
        let answer: AttestAnswer = try await ask(.attest) { id in Attest(key: id, data: Data(data)) }
        do throws(ProviderError) { return try answer.attestation() } catch { throw source.describing(error) }
    }
}

extension RemoteKey {
    /// Asks the process that knows the key, in this task.
    ///
    /// - Parameter fields: Returns those of the request, from the key's name.
    private func ask<Fields: Encodable & Sendable, Answer: Decodable & Sendable>(
        _ operation: KeyOperation, _ fields: (_ id: String) -> Fields
    ) async throws(ProviderError) -> Answer {
        // The request is sent by this task, after the callback.
        source.beginUse()
        defer { source.endUse() }
        do throws(ProviderError) {
            let (peer, id) = try await withCheckedContinuation { continuation in
                withPeer { continuation.resume(returning: $0) }
            }.get()
            return try await peer.request(operation.rawValue, fields(id), .total(source.timeout))
        } catch { throw source.describing(error) }
    }
}
