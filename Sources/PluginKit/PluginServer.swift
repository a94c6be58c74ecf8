import CertificateProviding
import FoundationEssentials
import Logging
import PluginProtocol

/// Answers the requests of the host.
final class PluginServer: PeerServices {
    private let hello: Hello
    private let descriptor: ProviderDescriptor?
    private let stores: [KeyStoreDescriptor]
    private let executor = BlockingExecutor.threads()
    private struct State {
        var provider: (any CertificateProvider)?
        var keyStore: (KeyStoreDescriptor, ProviderEnvironment, Parameters)?
        /// By URI and source of the PIN.
        var places: [String: any KeyStore] = [:]
        var waiter: CheckedContinuation<ProviderError, Never>?
        var end: ProviderError?
    }
    private let state = BlockingMutex(State())
    private let keys = BlockingMutex<KeyStoreService?>(nil)

    init(hello: Hello, _ descriptor: ProviderDescriptor?, _ stores: [KeyStoreDescriptor]) {
        (self.hello, self.descriptor, self.stores) = (hello, descriptor, stores)
    }

    /// Serves until the host closes the connection, and shuts the provider down.
    /// - Returns: Why the connection has ended.
    func serve(_ channel: MessageChannel) async -> ProviderError {
        let peer = Peer(channel, self)
        let service = KeyStoreService(
            executor: executor, handsOutWrapped: true,
            interaction: { fields, request, peer in
                RemoteInteraction(peer, request: request.id, canAsk: fields.mayAsk ?? false)
            },
            open: { [self] request throws(ProviderError) in try place(request) })
        keys.withLock { $0 = service }
        peer.start()
        let reason = await withCheckedContinuation { continuation in
            let end = state.withLock { state in
                if state.end == nil { state.waiter = continuation }
                return state.end
            }
            if let end { continuation.resume(returning: end) }
        }
        await shutDown()
        // It has this object as its source of stores.
        keys.withLock { $0 = nil }
        return reason
    }

    private func shutDown() async {
        let (provider, places) = state.withLock { ($0.provider, $0.places.values) }
        await provider?.shutdown()
        for place in places { await place.shutdown() }
    }

    func ended(_ error: ProviderError) {
        let waiter = state.withLock { state in
            state.end = error
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume(returning: error)
    }

    func receive(notice name: String, _ message: Message, from peer: Peer) throws(ProviderError) {}

    func receive(_ request: IncomingRequest, from peer: Peer) {
        if let keys = keys.withLock({ $0 }), keys.answer(request, from: peer) { return }
        switch request.name {
        case "hello":
            peer.answer(request) { (fields: Hello.Request) in
                guard fields.versions.contains(hello.version) else {
                    return request.fail(
                        ProviderError(
                            .protocolError,
                            "The plugin speaks version \(hello.version) of the protocol; install a certprov that does too."
                        ))
                }
                request.answer(hello)
            }
        case "configure":
            peer.answer(request) { (fields: Configure) in
                peer.perform(request, on: executor) { [self] () throws(ProviderError) in
                    try configure(fields, peer)
                }
            }
        case "obtain":
            perform(request, peer) { (provider, fields: MayAsk, keys) async throws(ProviderError) in
                let person = RemoteInteraction(peer, request: request.id, canAsk: fields.mayAsk ?? false)
                return IdentityAnswer(try keys.wire(try await provider.getCertificate(person)))
            }
        case "stored":
            block(request, peer) { (provider, keys) throws(ProviderError) in
                IdentityAnswer(
                    try provider.getStoredCertificate().map { identity throws(ProviderError) in
                        try keys.wire(identity)
                    })
            }
        case "forget":
            block(request, peer) { (provider, _) throws(ProviderError) in
                try provider.deleteStoredCertificate()
                return Nothing()
            }
        case "list":
            perform(request, peer) { [executor] (provider, _: Nothing, _) async throws(ProviderError) in
                if let listing = provider.listing { return WireList(await listing.listIdentities()) }
                // As the host does for a plugin that does not list.
                let stored = try await executor.run { () throws(ProviderError) in
                    try provider.getStoredCertificate()
                }
                return WireList(IdentityList(identities: stored.map { [ListedIdentity($0, isStored: true)] } ?? []))
            }
        case "announceDeletions":
            perform(request, peer) { (provider, _: Nothing, _) async throws(ProviderError) in
                Sentences(try await provider.deletions?.announcedDeletions() ?? [])
            }
        case "discardReplaced":
            perform(request, peer) {
                [executor] (provider, fields: DiscardReplaced, _) async throws(ProviderError) in
                guard let replacement = provider.replacement,
                    let stored = try await provider.stored(fields.chain, executor)
                else { return Nothing() }
                try await replacement.discardReplaced(
                    by: stored, RemoteInteraction(peer, request: request.id, canAsk: fields.mayAsk ?? false))
                return Nothing()
            }
        case "advice":
            perform(request, peer) { [executor] (provider, fields: AdviceRequest, _) async throws(ProviderError) in
                guard let advice = provider.advice, let stored = try await provider.stored(fields.chain, executor)
                else { return AdviceAnswer(window: nil) }
                _ = await advice.refreshAdvice(on: stored)
                let known = try await executor.run { () throws(ProviderError) in advice.advice(on: stored) }
                return AdviceAnswer(
                    window: known.map {
                        .init(
                            start: $0.window.lowerBound.timeIntervalSince1970,
                            end: $0.window.upperBound.timeIntervalSince1970)
                    })
            }
        case "revoke":
            perform(request, peer) { (provider, fields: Revoke, _) async throws(ProviderError) in
                guard let revocation = provider.revocation else {
                    throw ProviderError(
                        .operationNotAllowed,
                        "The provider '\(provider.id)' cannot revoke a certificate with this configuration; ask its issuer."
                    )
                }
                try await revocation.revokeStoredCertificate(
                    RevocationReason(rawValue: fields.reason),
                    RemoteInteraction(peer, request: request.id, canAsk: fields.mayAsk ?? false))
                return Nothing()
            }
        case "closeAccount":
            perform(request, peer) { (provider, fields: MayAsk, _) async throws(ProviderError) in
                try await provider.revocation?.closeAccount(
                    RemoteInteraction(peer, request: request.id, canAsk: fields.mayAsk ?? false))
                return Nothing()
            }
        case "shutdown":
            peer.perform(request) { () async throws(ProviderError) in
                await self.shutDown()
                return Nothing()
            }
        default: request.refuse()
        }
    }

    /// Answers a request to the provider.
    private func perform<Fields: Decodable & Sendable, Answer: Encodable & Sendable>(
        _ request: IncomingRequest, _ peer: Peer,
        _ work:
            @escaping @Sendable (any CertificateProvider, Fields, KeyStoreService)
            async throws(ProviderError)
            -> Answer
    ) {
        peer.answer(request) { (fields: Fields) in
            guard let provider = state.withLock({ $0.provider }), let keys = keys.withLock({ $0 }) else {
                return request.fail(Self.unconfigured)
            }
            peer.perform(request) { () async throws(ProviderError) in try await work(provider, fields, keys)
            }
        }
    }

    /// Answers a request of the synchronous half of the contract.
    private func block<Answer: Encodable & Sendable>(
        _ request: IncomingRequest, _ peer: Peer,
        _ work:
            @escaping @Sendable (any CertificateProvider, KeyStoreService) throws(ProviderError) -> Answer
    ) {
        guard let provider = state.withLock({ $0.provider }), let keys = keys.withLock({ $0 }) else {
            return request.fail(Self.unconfigured)
        }
        peer.perform(request, on: executor) { () throws(ProviderError) in try work(provider, keys) }
    }

    private static let unconfigured = ProviderError(
        .protocolError, "The plugin's provider is not configured; the request 'configure' comes first.")

    // MARK: - Making

    private func configure(_ fields: Configure, _ peer: Peer) throws(ProviderError) -> Nothing {
        let environment = ProviderEnvironment(
            storage: RemoteStorage(peer),
            secrets: SecretReader { source throws(ProviderError) in
                try peer.call(
                    "secret", SecretRequest(source: source.description), .unlimited, as: SecretAnswer.self
                ).value.bytes
            }, logger: Logger(label: hello.id) { _ in RemoteLogHandler(peer) }, executor: executor,
            keyStores: HostSource(peer).keyStores)
        let texts = ProviderParameters(fields.parameters.mapValues { ProviderParameters.Value($0) })
        if let scheme = fields.scheme {
            guard let store = stores.first(where: { $0.scheme == scheme }) else {
                throw ProviderError(
                    .protocolError, "The plugin has no key store with the scheme '\(scheme.withVisibleControls)'.")
            }
            let parameters = try Parameters(
                texts, of: store.parameters, owner: store.id, keyStores: environment.keyStores)
            state.withLock { $0.keyStore = (store, environment, parameters) }
        } else {
            guard let descriptor else { throw ProviderError(.protocolError, "The plugin has no provider.") }
            let provider = try descriptor.makeProvider(environment, texts)
            state.withLock { $0.provider = provider }
            if hello.provider?.can?.contains("updated") == true, let updates = provider.updates {
                // Ends with the provider.
                Task { for await _ in updates.announcements() { peer.channel.notify("updated", Nothing()) } }
            }
        }
        return Nothing()
    }

    private func place(_ request: KeyRequest) throws(ProviderError) -> any KeyStore {
        if request.store == nil, let provider = state.withLock({ $0.provider }) {
            guard let own = provider.keyStore else {
                throw ProviderError(
                    .operationNotAllowed, "The provider '\(provider.id)' has no key store of its own.")
            }
            return own
        }
        guard let uri = request.store,
            let location = KeyStoreLocation(
                uri: uri, pinSource: request.pinSource.flatMap { SecretSource($0) }, parameter: request.parameter)
        else {
            throw ProviderError(.protocolError, "The field 'store' of a message is not the URI of a store.")
        }
        let name = "\(uri)\0\(request.pinSource ?? "")\0\(request.parameter ?? "")"
        let (known, keyStore) = state.withLock { ($0.places[name], $0.keyStore) }
        if let known { return known }
        guard let (descriptor, environment, parameters) = keyStore, descriptor.scheme == location.scheme else {
            throw ProviderError(
                .protocolError, "The plugin's key store is not configured; the request 'configure' comes first.")
        }
        let new = try descriptor.make(environment, location, parameters)
        return state.withLock { state in
            if let known = state.places[name] { return known }
            state.places[name] = new
            return new
        }
    }
}

extension CertificateProvider {
    /// Returns the stored identity if it is the one with this chain. The host names the one in use; the provider may have another
    /// one by now.
    fileprivate func stored(
        _ chain: [Data], _ executor: BlockingExecutor
    ) async throws(ProviderError) -> Identity? {
        let leaf = try chain.certificates().first
        let stored = try await executor.run { () throws(ProviderError) in try getStoredCertificate() }
        return stored?.certificate == leaf ? stored : nil
    }
}

extension KeyStoreService {
    /// Returns an identity as the host gets it. A key of the host's own stores goes back as its URI, one that can be exported as
    /// PKCS#8, and any other one stays here and signs here.
    fileprivate func wire(_ identity: Identity) throws(ProviderError) -> WireIdentity {
        let key: WireKey
        if let host = identity.key.hostKey {
            key = WireKey(uri: host.uri, publicKey: Data(host.publicKey.derRepresentation))
        } else if let exporter = identity.key.exporter {
            key = WireKey(
                location: identity.key.location.rawValue, pkcs8: Secret(try exporter.pkcs8Representation()))
        } else {
            key = name(identity.key)
        }
        return WireIdentity(identity, key: key)
    }
}
