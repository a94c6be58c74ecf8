import CertificateProviding
import Foundation
import Logging
import PluginKit
import Synchronization
import TestSupport

/// Plays the plugin's part of a session of Documentation/PluginTranscript.md.
final class TranscriptProvider: CertificateProvider {
    static let tokenSource = Parameter.secretSource("token-source", summary: "The source of the access token.")
    static let keyParameter = Parameter.keyStore("key", default: "store:", summary: "The key store for new keys.")

    static func plugin(_ session: String) -> Plugin {
        let store = ExampleKeyStore.descriptor(ProviderID("vault"))
        let provider = ProviderDescriptor(
            id: ProviderID("vault"), displayName: "Vault", summary: "Certificates of a vault server.",
            parameters: [
                Parameter.required("url", .serverURL, summary: "The server.").descriptor, tokenSource.descriptor,
                keyParameter.descriptor,
            ]
        ) { environment, parameters throws(ProviderError) in
            let own = KeyStores(schemes: []) { location throws(ProviderError) in
                try store.make(
                    environment, location,
                    try Parameters(ProviderParameters(), of: [], owner: ProviderID("vault"), keyStores: .none))
            }
            return try TranscriptProvider(
                session, environment, hostStore: parameters[keyParameter], keyStore: own.store("vault:"))
        }
        return Plugin(
            provider, keyStores: [store], version: "1.0", concurrency: 4, abilities: [.updates, .advice, .revocation])
    }

    let id = ProviderID("vault")
    let keyStore: (any KeyStore)?
    private let session: String
    private let environment: ProviderEnvironment
    private let hostStore: any KeyStore
    private let obtained = Mutex(0)
    private let stored: Mutex<Identity?>

    private init(
        _ session: String, _ environment: ProviderEnvironment, hostStore: any KeyStore, keyStore: any KeyStore
    ) throws(ProviderError) {
        (self.session, self.environment, self.hostStore, self.keyStore) = (session, environment, hostStore, keyStore)
        stored = Mutex(["stored", "advice"].contains(session) ? try Self.identity() : nil)
    }

    // MARK: - Identities

    private static func identity(
        _ key: (any IdentityKey)? = nil, hasTrust: Bool = false
    ) throws(ProviderError) -> Identity {
        do {
            let authority = try TestAuthority()
            var identity = try authority.issue("web")
            if let key {
                let leaf = try authority.certify(key.publicKey.derRepresentation, as: "web")
                identity = try Identity(
                    certificateChain: [leaf, authority.intermediate], key: key, provenance: identity.provenance)
            }
            return try Identity(
                certificateChain: identity.certificateChain, key: identity.key,
                trust: hasTrust ? TrustBundle([authority.root]) : nil, usage: hasTrust ? .both : .client,
                provenance: .init(provider: ProviderID("vault"), alias: "web", source: "https://vault.example.com"))
        } catch { throw ProviderError(.internal, "\(error)") }
    }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let number = obtained.withLock { count in
            count += 1
            return count
        }
        switch session {
        case "obtain": return try Self.identity(hasTrust: true)
        case "obtain-own-key":
            let key = try SoftwareKey.generate(.p256, location: .token)
            return try Self.identity(TestKey(key, timeout: .seconds(30), digestSigner: key.digestSigner))
        case "obtain-key-of-host": return try await keyOfHost(interaction)
        case "errors" where number == 1:
            throw ProviderError(.rejected, "The vault refuses the role 'web'; ask its operator.", nativeCode: 403)
        case "errors" where number == 2: throw Self.pending(.seconds(60))
        case "errors":
            throw ProviderError(.operationNotAllowed, "Another process requests it; wait for its end.", reason: .busy)
        case "questions": try await ask(interaction)
        case "secret":
            _ = try environment.secrets.read(.environment("VAULT_TOKEN"))
            if (try? environment.secrets.read(.file("/etc/shadow"))) == nil {
                throw ProviderError(.rejected, "The vault refuses the access token; renew it.")
            }
        case "records":
            try environment.storage.updateRecord(named: "orders") { record in
                if record == nil { interaction.report("Another process writes the record now") }
                return SecretBytes(utf8: "mine")
            }
            let shared = environment.storage.shared
            try shared.updateRecord(named: "rejected") { _ in SecretBytes(utf8: "mine") }
            guard try shared.recordNames() == ["rejected"] else {
                throw ProviderError(.internal, "The shared record is not listed.")
            }
        case "entries": try useEntry()
        case "leases": try useLease(interaction)
        case "other-keys-of-host": try await useKeys(interaction)
        case "cancel": _ = try await interaction.requestSecret("The password of alice")
        default: break
        }
        throw Self.pending()
    }

    private static func pending(_ time: Duration? = nil) -> ProviderError {
        ProviderError(.pending, "The request waits for an approval.", retryAfter: time)
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? { stored.withLock(\.self) }

    func deleteStoredCertificate() throws(ProviderError) { stored.withLock { $0 = nil } }

    // MARK: - Services of the host

    private func ask(_ interaction: any UserInteraction) async throws(ProviderError) {
        interaction.report("Connecting to vault.example.com")
        let name = try await interaction.requestText("Your name at the vault")
        _ = try await interaction.requestSecret("The password of \(name)")
        guard try await interaction.choose("Which role?", among: ["web", "mail"]) == 1,
            try await interaction.confirm("Revoke the old certificate?")
        else { return }
        interaction.report("Waiting for the approval", remaining: .milliseconds(2500))
        environment.logger.info("request accepted", metadata: ["serial": "4711"])
        throw Self.pending(.seconds(60))
    }

    private func useEntry() throws(ProviderError) {
        let (identity, storage) = (try Self.identity(hasTrust: true), environment.storage)
        let key = try identity.key.exporter?.pkcs8Representation()
        let entry = StoredIdentity(
            certificateChain: identity.certificateChain, privateKey: key, trust: identity.trust,
            attributes: ["role": "web"])
        try storage.setEntry(entry, named: "web")
        guard try storage.entryNames() == ["web"], let read = try storage.entry(named: "web"),
            read.attributes == ["role": "web"], read.trust?.certificates.count == 1
        else { return }
        try storage.removeEntry(named: "web")
        _ = try storage.entry(named: "web")
    }

    private func useLease(_ interaction: any UserInteraction) throws(ProviderError) {
        guard let lease = try environment.storage.leaseRecord(named: "orders") else { return }
        defer { withExtendedLifetime(lease) {} }
        lease.isUnsettled = true
        interaction.report("Another process asks for the lease now")
        if lease.isAwaited { _ = try environment.storage.leaseRecord(named: "orders") }
    }

    private func keyOfHost(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let key = try await hostStore.make(NewKey(.p256, label: "web"), interaction) { _ in }
        // A wrapped key: the host gets its own key all the same.
        let identity = try Self.identity(TestKey(key, location: key.location, hostKey: key.hostKey))
        try await identity.verifyPossession()
        try await hostStore.storeChain(identity.certificateChain, for: key, interaction)
        return identity
    }

    private func useKeys(_ interaction: any UserInteraction) async throws(ProviderError) {
        let keys = try await hostStore.list()
        guard let old = keys.first?.reference, let rsa = keys.last?.reference,
            let key = try hostStore.storedKey(for: rsa), let decrypter = key.decrypter,
            try await decrypter.decrypt([1, 2, 3], using: .rsaOAEPSHA256) == SecretBytes(utf8: "secret"),
            key.use == [.signing, .pkcs1Decryption, .oaepDecryption],
            key.publicKey.isValidSignature(
                try await key.signature(for: [1, 2, 3], using: .rsaPSSRSAESHA256), for: [1, 2, 3],
                using: .rsaPSSRSAESHA256),
            hostStore.holds(keyURI: old.uri)
        else { return }
        let identity = try await hostStore.identity(old.uri, interaction)
        try await hostStore.certificates?.removeOtherCertificates(than: identity.certificate, of: old, interaction)
        _ = try await hostStore.announceDestruction(of: old)
        guard try hostStore.destroyStored(old) else {
            throw ProviderError(.protocolError, "The host had no key to destroy.")
        }
        let new = try SoftwareKey.generate(.p256, location: .file)
        let taken = NewKey(pkcs8: try new.pkcs8Representation(), label: "web", guarantees: [.neverExportable])
        _ = try await hostStore.make(taken, interaction) { _ in }
        try await hostStore.check(interaction)
        let oldStore = try environment.keyStores.store(old.uri, pinSource: .environment("VAULT_TOKEN"))
        let data = [UInt8](0..<32)
        if try oldStore.storedKey(for: old) == nil, let attester = key.attester {
            let attestation = try await attester.attestation(of: data)
            guard attestation.format == .tpm, attestation.algorithm == -7, attestation.chain.count == 1 else { return }
            throw ProviderError(.notFound, "The vault has no certificate for the key; request one.")
        }
    }
}

// MARK: - Abilities

extension TranscriptProvider: RenewalAdvising, IdentityRevoking {
    var advice: (any RenewalAdvising)? { self }
    var revocation: (any IdentityRevoking)? { self }

    func advice(on identity: Identity) -> RenewalAdvice? {
        let window = Date(timeIntervalSince1970: 1_767_225_600)...Date(timeIntervalSince1970: 1_767_312_000)
        return RenewalAdvice(window: window)
    }

    func refreshAdvice(on identity: Identity) async -> Bool { true }

    func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        guard reason == .superseded else { throw ProviderError(.internal, "The reason is \(reason.rawValue).") }
    }

    func closeAccount(_ interaction: any UserInteraction) async throws(ProviderError) {}
}

extension TranscriptProvider: IdentityListing, DeletionAnnouncing, ReplacedIdentityDiscarding, UpdateAnnouncing {
    var listing: (any IdentityListing)? { self }
    var deletions: (any DeletionAnnouncing)? { self }
    var replacement: (any ReplacedIdentityDiscarding)? { self }
    var updates: (any UpdateAnnouncing)? { self }

    func listIdentities() async -> IdentityList {
        guard let stored = try? getStoredCertificate() else {
            return IdentityList(
                choice: .failure(
                    ProviderError(.notFound, "The vault has no certificate; request one.")))
        }
        let web = ListedIdentity(stored, isStored: true)
        let mail = ListedIdentity(
            provider: id, alias: "mail", isStored: false, certificateChain: stored.certificateChain,
            keyLocation: .token, isKeyExportable: false, keyURI: "vault:mail", usage: .server)
        return IdentityList(
            identities: [web, mail],
            failures: [
                ProviderError(.unavailable, "The folder 'old' of the vault cannot be read; try again later.")
            ], remarks: ["The certificate 'web' was renewed after it was stored."], otherObjects: ["vault:ca"],
            choice: .success(web))
    }

    func announcedDeletions() async throws(ProviderError) -> [String] {
        ["The certificate 'web' is revoked."]
    }

    func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        interaction.report("Revoking the certificate that was replaced")
    }

    func announcements() -> AsyncStream<Void> {
        AsyncStream { continuation in
            if session == "updated" { continuation.yield() }
        }
    }
}
