public import CertificateProviding
import Logging
import ProviderTransport

extension VaultProvider {
    /// One enrolment, from the key to the stored identity. It can be killed at any moment: until the identity is stored, the
    /// old one is in use, and `OwnedKeys` knows the new key.
    func enrol(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        let server = try await VaultServer(settings, environment, interaction, transport)
        do throws(CertificateProviderError) {
            let identity = try await enrol(at: server, interaction)
            await server.noteOutcome(nil)
            return identity
        } catch {
            await server.noteOutcome(error)
            throw error
        }
    }

    private func enrol(
        at server: VaultServer, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        // Before a key is made: a server that is down, or unknown, costs none.
        try await server.connect()
        let current = try await currentKey()
        // Those of runs that were killed, and the key that the last renewal has replaced.
        try await keys.destroyOthers(than: current, interaction)
        do throws(CertificateProviderError) { return try await newIdentity(from: server, interaction) } catch {
            do throws(CertificateProviderError) { try await keys.destroyOthers(than: current, interaction) } catch {
                environment.logger.warning(
                    "the new key could not be destroyed; the next enrolment does it", metadata: ["reason": "\(error)"])
            }
            throw error
        }
    }

    private func newIdentity(
        from server: VaultServer, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        let key = try await keys.make(
            NewKey(settings.keyType, label: settings.names.commonName ?? settings.names.subjectText), interaction)
        interaction.report("Asking \(settings.server.authority) for a certificate for \(settings.names.subjectText)")
        let answer = try await server.sign(try await CertificateRequest(settings.names, key: key))
        let issued = try await IssuedCertificate(
            answer.certificates, for: key.publicKey, settings.names, from: answer.authorities, at: environment.now())
        // The key signs a probe there.
        try await keys.store.storeChain(issued.chain, for: key, interaction)
        let identity = try identity(issued.chain, key)
        let entry = StoredIdentity(certificateChain: issued.chain, key: keys.store.reference(to: key))
        try await environment.executor.run { [environment, settings] () throws(CertificateProviderError) in
            try environment.storage.setEntry(entry, named: settings.storageName)
        }
        return identity
    }

    private func currentKey() async throws(CertificateProviderError) -> KeyReference? {
        try await environment.executor.run { [environment, settings] () throws(CertificateProviderError) in
            try environment.storage.entry(named: settings.storageName)?.key
        }
    }
}

extension VaultProvider: ReplacedIdentityDiscarding {
    public var replacement: (any ReplacedIdentityDiscarding)? { self }

    /// Destroys the key that the stored identity has replaced: connections use the old key until then.
    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        // Without the lease: another process is enrolling, and destroys the key itself.
        _ = try await environment.withLease(of: settings.storageName) { () throws(CertificateProviderError) in
            let current = try await currentKey()
            guard let current, current.publicKey == identity.key.publicKey else { return }
            try await keys.destroyOthers(than: current, interaction)
        }
    }
}
