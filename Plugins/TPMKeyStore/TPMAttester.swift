import CertificateProviding
import Crypto
import FoundationEssentials
import Logging
import ProviderTransport

/// Proves that keys are in this TPM, by an attestation key that a CA has certified.
///
/// The attestation key rests in a record, as every key of the TPM, with its certificates. It is replaced a month before they end,
/// after the TPM was cleared, and after the key that it has attested last was destroyed. Of two processes that need the first one at
/// once, each gets one, and one of them stays.
struct TPMAttester: Sendable {
    let tpm: TPM
    let authority: AttestationAuthority

    private static let (margin, recordPrefix) = (30.0 * 86_400, "attestation-")

    private struct AttestationKey: Codable, Sendable {
        static let format = VersionedRecord<Self>(of: "the TPM's attestation key", ifDamaged: "a new one is made")
        /// DER of the form `TSS2 PRIVATE KEY`.
        let blob: Data
        /// DER, leaf first.
        let chain: [Data]
        /// SPKI of the key of its last statement.
        var attested: Data?

        func certificates() throws(ProviderError) -> [X509Certificate] {
            try chain.map { der throws(ProviderError) in try X509Certificate(derRepresentation: der) }
        }
    }

    /// Returns a statement about a key.
    func attestation(of data: [UInt8], for key: TPMKeyBlob) async throws(ProviderError) -> KeyAttestation {
        if let stored = try await storedKey(beneath: key.parent),
            let statement = try await attestation(of: data, for: key, by: stored)
        {
            return statement
        }
        let new = try await certifiedKey(beneath: key.parent)
        tpm.environment.logger.notice(
            "the TPM has a new attestation key", metadata: ["ca": "\(authority.url.authority)"])
        guard let statement = try await attestation(of: data, for: key, by: new) else {
            throw ProviderError(.unavailable, "\(tpm.settings.displayName) was cleared in the meantime; try again.")
        }
        return statement
    }

    /// Removes the attestation keys whose last statement was about this key, which is destroyed now. A server that refuses a statement
    /// may trust another CA than before, and its client destroys the key: the next statement has a new certificate.
    static func forget(afterUse key: PublicKeyInfo, in storage: any IdentityStorage) throws(ProviderError) {
        for name in try storage.recordNames() where name.hasPrefix(recordPrefix) {
            guard let record = try storage.record(named: name),
                let stored = try AttestationKey.format.undamagedContent(of: record),
                stored.attested == Data(key.derRepresentation)
            else { continue }
            try storage.removeRecord(named: name)
        }
    }

    /// Returns `nil` if the attestation key is not one of this TPM.
    private func attestation(
        of data: [UInt8], for key: TPMKeyBlob, by attestationKey: AttestationKey
    ) async throws(ProviderError) -> KeyAttestation? {
        let (blob, chain) = (
            try TPMKeyBlob(derRepresentation: [UInt8](attestationKey.blob)), try attestationKey.certificates()
        )
        let made = try await tpm.run(beneath: key.parent, using: key) { _, parent throws(TPMFailure) -> TPMStatement? in
            guard let signer = try parent.find(blob) else { return nil }
            return try signer.certify(try parent.load(key), covering: data)
        }
        guard let made else { return nil }
        try await store(attestationKey, attesting: try key.publicArea.publicKey(), beneath: key.parent)
        return KeyAttestation(
            tpm: made.info, pubArea: Array(key.publicArea.bytes.dropFirst(2)), algorithm: -7, chain: chain,
            signature: try SignatureScheme.ecdsaP256SHA256.encoded(made.signature))
    }

    private func store(
        _ key: AttestationKey, attesting attested: PublicKeyInfo, beneath parent: TPMParent
    ) async throws(ProviderError) {
        var key = key
        key.attested = Data(attested.derRepresentation)
        let (name, record) = (recordName(parent), try AttestationKey.format.record(of: key))
        try await tpm.environment.executor.run { [storage = tpm.environment.storage.shared] () throws(ProviderError) in
            try storage.updateRecord(named: name) { _ in record }
        }
    }

    /// Each parent and each CA has an attestation key of its own.
    private func recordName(_ parent: TPMParent) -> String {
        let place = "\(parent.handle) \(authority.url.origin)\(authority.url.target)"
        return Self.recordPrefix + TPMKeyStore.hexadecimal(SHA256.hash(data: Array(place.utf8))).prefix(16)
    }

    private func storedKey(beneath parent: TPMParent) async throws(ProviderError) -> AttestationKey? {
        let (name, environment) = (recordName(parent), tpm.environment)
        return try await environment.executor.run { () throws(ProviderError) -> AttestationKey? in
            guard let record = try environment.storage.shared.record(named: name),
                let key = try AttestationKey.format.undamagedContent(of: record),
                let end = try key.certificates().map(\.notValidAfter).min(),
                environment.now().addingTimeInterval(Self.margin) < end
            else { return nil }
            return key
        }
    }

    /// A new attestation key, and the facts about it.
    private struct Offer: Sendable {
        let made: TPMMadeKey
        let creation: TPMStatement
        let endorsementArea: TPMPublicArea
        let endorsementCertificate: [UInt8]?
    }

    /// Makes an attestation key, and has it certified.
    private func certifiedKey(beneath parent: TPMParent) async throws(ProviderError) -> AttestationKey {
        let offer = try await tpm.run(beneath: parent) { connection, storageKey throws(TPMFailure) in
            let made = try storageKey.make(.attestationKey)
            return Offer(
                made: made, creation: try storageKey.load(made).certifyCreation(of: made),
                endorsementArea: try connection.endorsementKey().readPublicArea(),
                endorsementCertificate: connection.endorsementCertificate())
        }
        let made = offer.made
        let request = AttestationAuthority.Request(
            endorsementKey: try offer.endorsementArea.publicKey(isRestricted: true),
            endorsementCertificate: offer.endorsementCertificate, publicArea: made.publicArea,
            creationData: made.creationData, creation: offer.creation)
        let chain = try await authority.certify(request) { [tpm] credential, secret throws(ProviderError) in
            try await tpm.run(beneath: parent) { connection, storageKey throws(TPMFailure) -> SecretBytes? in
                let key = try storageKey.load(made)
                let endorsementKey = try connection.endorsementKey()
                do throws(TPMFailure) { return try key.activate(credential, secret, by: endorsementKey) } catch {
                    guard error.isOfInput else { throw error }
                    return nil
                }
            }
        }
        let blob = try TPMKeyBlob(parent: parent, publicArea: made.publicArea, privatePart: made.privatePart)
        return AttestationKey(
            blob: Data(blob.derRepresentation), chain: chain.map { Data($0.derRepresentation) })
    }
}
