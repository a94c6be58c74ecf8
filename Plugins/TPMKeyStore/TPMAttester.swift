import CertificateProviding
import Crypto
import FoundationEssentials
import Logging
import ProviderTransport

/// Proves that keys are in this TPM, by an attestation key that a CA has certified.
///
/// The attestation key rests in a record, as every key of the TPM, with its certificates. It is replaced a month before they end, and
/// after the TPM was cleared. Of two processes that need the first one at once, each gets one, and one of them stays.
struct TPMAttester: Sendable {
    let tpm: TPM
    let authority: AttestationAuthority

    private static let margin = 30.0 * 86_400

    private struct AttestationKey: Codable, Sendable {
        static let format = VersionedRecord<Self>(of: "the TPM's attestation key", ifDamaged: "a new one is made")
        /// DER of the form `TSS2 PRIVATE KEY`.
        let blob: Data
        /// DER, leaf first.
        let chain: [Data]

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
        let (name, record) = (recordName(key.parent), try AttestationKey.format.record(of: new))
        try await tpm.environment.executor.run { [storage = tpm.environment.storage.shared] () throws(ProviderError) in
            try storage.updateRecord(named: name) { _ in record }
        }
        tpm.environment.logger.notice(
            "the TPM has a new attestation key", metadata: ["ca": "\(authority.url.authority)"])
        guard let statement = try await attestation(of: data, for: key, by: new) else {
            throw ProviderError(.unavailable, "\(tpm.settings.displayName) was cleared in the meantime; try again.")
        }
        return statement
    }

    /// Returns `nil` if the attestation key is not one of this TPM.
    private func attestation(
        of data: [UInt8], for key: TPMKeyBlob, by attestationKey: AttestationKey
    ) async throws(ProviderError) -> KeyAttestation? {
        let (blob, chain) = (
            try TPMKeyBlob(derRepresentation: [UInt8](attestationKey.blob)), try attestationKey.certificates()
        )
        let made = try await tpm.run(beneath: key.parent, using: key) { _, parent throws(TPMFailure) -> TPMStatement? in
            let signer: TPMObject
            do throws(TPMFailure) { signer = try parent.load(blob) } catch {
                guard error.isOfAnotherTPM else { throw error }
                return nil
            }
            return try signer.certify(try parent.load(key), covering: data)
        }
        return try made.map { made throws(ProviderError) in
            KeyAttestation(
                tpm: made.info, pubArea: Array(key.publicArea.bytes.dropFirst(2)), algorithm: -7, chain: chain,
                signature: try SignatureScheme.ecdsaP256SHA256.encoded(made.signature))
        }
    }

    /// Each parent and each CA has an attestation key of its own.
    private func recordName(_ parent: TPMParent) -> String {
        let place = "\(parent.handle) \(authority.url.origin)\(authority.url.target)"
        return "attestation-" + TPMKeyStore.hexadecimal(SHA256.hash(data: Array(place.utf8))).prefix(16)
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
