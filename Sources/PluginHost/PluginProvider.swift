import CertificateProviding
import FoundationEssentials
import Logging
import PluginProtocol

/// The provider of a plugin.
final class PluginProvider: CertificateProvider {
    let id: ProviderID
    private let instance: PluginInstance
    private let can: Set<String>
    let keyStore: (any KeyStore)?
    private let stores: UsableKeyStores
    /// The leaf whose key has signed.
    private let proven = BlockingMutex<[UInt8]>([])
    private let adviser: PluginAdviser

    init(
        _ instance: PluginInstance, _ description: PluginDescription.Provider, stores: UsableKeyStores,
        logger: Logger
    ) {
        (id, can) = (instance.id, Set(description.can))
        (self.instance, self.stores, adviser) = (instance, stores, PluginAdviser(instance, logger))
        keyStore = description.keyStore.map { RemoteKeyStore(ofProviderWith: $0.details, source: instance) }
    }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do throws(ProviderError) {
            return try await instance.withReadyPeer { peer throws(ProviderError) in
                try await obtain(from: peer, interaction)
            }
        } catch { throw instance.describing(error) }
    }

    private func obtain(
        from peer: Peer, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        let answer: IdentityAnswer = try await peer.request(
            "obtain", MayAsk(interaction.canAsk), .silence(instance.timeout, mayAsk: interaction.canAsk),
            RequestContext(interaction))
        guard let wire = answer.identity else {
            throw ProviderError(.protocolError, "The answer to 'obtain' has no identity.")
        }
        return try await identity(wire, peer, interaction)
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? {
        do throws(ProviderError) {
            return try instance.withPeer { peer throws(ProviderError) in
                guard let wire = try stored(peer) else { return nil }
                return try storedIdentity(wire, peer)
            }
        } catch { throw instance.describing(error) }
    }

    private func stored(_ peer: Peer) throws(ProviderError) -> WireIdentity? {
        try peer.call("stored", Nothing(), .total(instance.timeout), as: IdentityAnswer.self).identity
    }

    func deleteStoredCertificate() throws(ProviderError) {
        do throws(ProviderError) {
            let _: Nothing = try instance.withPeer { peer throws(ProviderError) in
                try peer.call("forget", Nothing(), .total(instance.timeout))
            }
        } catch { throw instance.describing(error) }
    }

    func shutdown() async {
        await instance.shutdown()
        await stores.shutdown()
    }

    /// A plugin that does not list shows its stored identity.
    var listing: (any IdentityListing)? { self }
    var deletions: (any DeletionAnnouncing)? { can.contains("announceDeletions") ? self : nil }
    var updates: (any UpdateAnnouncing)? { can.contains("updated") ? self : nil }
    var replacement: (any ReplacedIdentityDiscarding)? { can.contains("discardReplaced") ? self : nil }
    var advice: (any RenewalAdvising)? { can.contains("advice") ? adviser : nil }
    var revocation: (any IdentityRevoking)? { can.contains("revoke") ? self : nil }

    // MARK: - Identities

    private func storedIdentity(_ wire: WireIdentity, _ peer: Peer) throws(ProviderError) -> Identity {
        if let key = try ownKey(wire.key, peer) {
            let identity = try identity(wire, key)
            if proven.withLock(\.self) != identity.certificate.derRepresentation { try prove(identity, mayAsk: false) }
            return identity
        }
        let (store, reference) = try hostKey(wire.key)
        guard let key = try store.storedKey(for: reference) else { throw Self.missing(reference) }
        return try identity(wire, key)
    }

    /// Lets a key of the plugin sign a probe. Blocks: as long as the key asks for only if there is a person to touch it.
    private func prove(_ identity: Identity, mayAsk: Bool) throws(ProviderError) {
        let leaf = identity.certificate
        guard let signer = identity.key.callbackSigner else { return }
        guard let scheme = identity.key.signatureSchemes.first else {
            throw ProviderError(
                .unsupportedAlgorithm, "The key of '\(leaf.subject)' supports no signature scheme.")
        }
        let (probe, signature) = (Identity.possessionProbe(), BlockingResult<[UInt8]>())
        signer.sign(probe, using: scheme) { signature.set($0) }
        // The error of a request that is not answered comes first.
        let limit = (mayAsk ? identity.key.signatureTimeout : nil) ?? instance.timeout
        let time = max(limit, instance.timeout) + MessageChannel.margin
        guard let signature = try signature.wait(atMost: time)?.get() else {
            throw ProviderError(
                .timedOut, "The key of '\(leaf.subject)' did not sign within \(time.components.seconds) seconds.")
        }
        guard leaf.publicKey.isValidSignature(signature, for: probe, using: scheme) else {
            throw ProviderError(
                .keyMismatch, "The key of '\(leaf.subject)' does not sign for its certificate; obtain a new identity.")
        }
        proven.withLock { $0 = leaf.derRepresentation }
    }

    private func identity(
        _ wire: WireIdentity, _ peer: Peer, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        if let key = try ownKey(wire.key, peer) {
            let identity = try identity(wire, key)
            if key.callbackSigner == nil { try await identity.verifyPossession() }
            try await instance.executor.run { [self] () throws(ProviderError) in
                try prove(identity, mayAsk: interaction.canAsk)
            }
            return identity
        }
        let (store, reference) = try await instance.executor.run { [self] () throws(ProviderError) in
            try hostKey(wire.key)
        }
        guard let key = try await store.key(for: reference, interaction) else { throw Self.missing(reference) }
        let identity = try identity(wire, key)
        try await identity.verifyPossession()
        return identity
    }

    private static func missing(_ key: KeyReference) -> ProviderError {
        ProviderError(
            .notFound,
            "The private key \(key.uri.withVisibleControls), which belongs to the identity, is not in its key store; have a new "
                + "identity made: certprov fetch --force.")
    }

    private func identity(
        _ wire: WireIdentity, _ key: any IdentityKey
    ) throws(ProviderError) -> Identity {
        let chain = try wire.chain.certificates()
        // Not "notFound", after which the next provider would be asked.
        guard !chain.isEmpty else {
            throw ProviderError(.malformedData, "The chain of its identity has no certificate.")
        }
        for (certificate, issuer) in zip(chain, chain.dropFirst()) where certificate.issuerName != issuer.subjectName {
            throw ProviderError(
                .malformedData,
                "The chain is not in order: '\(issuer.subject)' follows '\(certificate.subject)', and is not its issuer."
            )
        }
        return try Identity(
            certificateChain: chain, key: key, trust: TrustBundle(try (wire.trust ?? []).certificates()),
            usage: try Self.usage(wire.usage),
            provenance: .init(
                provider: id, alias: wire.alias.map(\.shortened), source: wire.source.map(\.shortened)))
    }

    private static func usage(_ word: String?) throws(ProviderError) -> IdentityUsage {
        guard let word else { return .client }
        guard let usage = IdentityUsage(rawValue: word) else {
            throw ProviderError(
                .protocolError,
                "The 'usage' of an identity is '\(word.withVisibleControls.prefix(64))'; it must be client, server, both or signature."
            )
        }
        return usage
    }

    /// Returns a key that the plugin has, or gives away.
    private func ownKey(_ wire: WireKey, _ peer: Peer) throws(ProviderError) -> (any IdentityKey)? {
        if let pkcs8 = wire.pkcs8 {
            return try SoftwareKey(
                pkcs8: pkcs8.bytes, location: KeyLocation(wire: wire.location))
        }
        guard wire.schemes != nil else { return nil }
        var wire = wire
        if !can.contains("key.attest") { wire.attests = nil }
        return try RemoteKey(wire, instance, knownTo: peer) { [self] key, peer throws(ProviderError) in
            // A new process names the keys of its identity again.
            guard let wire = try stored(peer)?.key, let encoded = wire.publicKey,
                try PublicKeyInfo(derRepresentation: encoded) == key.publicKey
            else { return nil }
            return wire
        }
    }

    /// Blocks where the key is in a key store of another plugin.
    private func hostKey(_ wire: WireKey) throws(ProviderError) -> (any KeyStore, KeyReference) {
        guard let uri = wire.uri, let encoded = wire.publicKey else {
            throw ProviderError(
                .protocolError,
                "The key of an identity has neither 'pkcs8' nor 'schemes', nor 'uri' and 'publicKey' for a key of the host."
            )
        }
        let reference = KeyReference(publicKey: try PublicKeyInfo(derRepresentation: encoded), uri: uri)
        return (try stores.store(uri), reference)
    }
}

extension PluginProvider: UpdateAnnouncing {
    func announcements() -> AsyncStream<Void> { instance.announcements() }
}

extension PluginProvider: IdentityListing, DeletionAnnouncing, ReplacedIdentityDiscarding {
    func listIdentities() async -> IdentityList {
        do throws(ProviderError) {
            guard can.contains("list") else {
                let stored = try await instance.executor.run { [self] () throws(ProviderError) in
                    try getStoredCertificate()
                }
                return IdentityList(identities: stored.map { [ListedIdentity($0, isStored: true)] } ?? [])
            }
            let wire: WireList = try await instance.withReadyPeer { peer throws(ProviderError) in
                try await peer.request("list", Nothing(), .silence(instance.timeout, mayAsk: false))
            }
            return try list(wire)
        } catch { return IdentityList(failures: [instance.describing(error)]) }
    }

    private func list(_ wire: WireList) throws(ProviderError) -> IdentityList {
        IdentityList(
            identities: try wire.identities.map(listed), failures: (wire.failures ?? []).map(failure),
            remarks: (wire.remarks ?? []).map(\.shortened), otherObjects: (wire.otherObjects ?? []).map(\.shortened),
            choice: try wire.choice.map { choice throws(ProviderError) in
                if let error = choice.error { return .failure(failure(error)) }
                guard let identity = choice.identity else {
                    throw ProviderError(.protocolError, "A choice has neither 'identity' nor 'error'.")
                }
                return .success(try listed(identity))
            })
    }

    private func failure(_ error: WireError) -> ProviderError {
        instance.describing(ProviderError(error, of: "The plugin '\(id)'"))
    }

    private func listed(_ wire: WireListedIdentity) throws(ProviderError) -> ListedIdentity {
        ListedIdentity(
            provider: id, alias: wire.alias.map(\.shortened), isStored: wire.stored ?? false,
            certificateChain: try wire.chain.certificates(),
            keyLocation: KeyLocation(wire: wire.location),
            isKeyExportable: wire.exportable ?? false, keyURI: wire.uri.map(\.shortened),
            usage: try Self.usage(wire.usage))
    }

    func announcedDeletions() async throws(ProviderError) -> [String] {
        do throws(ProviderError) {
            return try await instance.withReadyPeer { peer throws(ProviderError) in
                try await peer.request(
                    "announceDeletions", Nothing(), .silence(instance.timeout, mayAsk: false), as: Sentences.self)
            }
            .sentences.map(\.shortened)
        } catch { throw instance.describing(error) }
    }

    func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await perform(
            "discardReplaced",
            DiscardReplaced(
                chain: identity.certificateChain.map { Data($0.derRepresentation) }, mayAsk: interaction.canAsk),
            interaction)
    }
}

extension PluginProvider: IdentityRevoking {
    func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await perform("revoke", Revoke(reason: reason.rawValue, mayAsk: interaction.canAsk), interaction)
    }

    func closeAccount(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await perform("closeAccount", MayAsk(interaction.canAsk), interaction)
    }

    /// Sends a request that may ask the user, and has an empty answer.
    private func perform(
        _ request: String, _ fields: some Encodable & Sendable, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        do throws(ProviderError) {
            let _: Nothing = try await instance.withReadyPeer { peer throws(ProviderError) in
                try await peer.request(
                    request, fields, .silence(instance.timeout, mayAsk: interaction.canAsk),
                    RequestContext(interaction))
            }
        } catch { throw instance.describing(error) }
    }
}

extension String {
    /// Text of a plugin, as people see it.
    fileprivate var shortened: String { String(withVisibleControls.prefix(2048)) }
}
