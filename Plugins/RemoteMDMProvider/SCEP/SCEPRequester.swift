import CertificateProviding
import Crypto
import Enrolment
import FoundationEssentials
import SwiftASN1
import X509

/// The key that signs the messages of a transaction, and its certificate. It is known before the first request.
struct SCEPSigner: Sendable {
    /// The certificate to be renewed; `nil` if there is none, or if it is not valid now: no CA accepts that.
    let current: X509Certificate?
    let key: any IdentityKey

    /// - Throws: `unsupportedAlgorithm` for a key that cannot be used with SCEP.
    init(for request: EnrolmentRequest, now: Date) throws(ProviderError) {
        let identity = request.current.flatMap { $0.certificate.status(at: now) == .valid ? $0 : nil }
        let signing = identity?.key ?? request.key
        for key in [request.key, signing] where key.publicKey.algorithm != .rsa || key.publicKey.isRestrictedToPSS {
            let kind = key.publicKey.isRestrictedToPSS ? "RSASSA-PSS" : key.publicKey.displayName
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                SCEP encrypts its replies for the key of the request, and a key of type \(kind) cannot decrypt them; \
                use an RSA key, or EST.
                """)
        }
        guard signing.decrypter?.decryptionSchemes.contains(.rsaPKCS1) == true else {
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                SCEP encrypts its replies for the key of the request, and this key (\(signing.location.rawValue)) \
                cannot decrypt them; use a key in the store, or EST.
                """)
        }
        current = identity?.certificate
        key = signing
    }
}

/// The certificate and key that sign the messages of one transaction. Its replies are encrypted for them (RFC 8894,
/// section 2.3).
struct SCEPRequester: Sendable {
    /// The certificate to be renewed, or else one that the key signs itself; DER.
    let certificate: [UInt8]
    let key: any IdentityKey

    /// - Parameter csr: The certificate request of the transaction.
    init(
        _ signer: SCEPSigner, csr: CertificateSigningRequest, now: Date
    ) async throws(ProviderError) {
        key = signer.key
        if let current = signer.current {
            certificate = current.derRepresentation
        } else {
            certificate = try await Self.selfSigned(signer.key, csr: csr, now: now)
        }
    }

    private static func selfSigned(
        _ key: any IdentityKey, csr: CertificateSigningRequest, now: Date
    ) async throws(ProviderError) -> [UInt8] {
        let privateKey = try Certificate.PrivateKey(key)
        do {
            let certificate = try await Certificate(
                version: .v3,
                // Always the same for a key: a reply may name a certificate that an earlier process made.
                serialNumber: Certificate.SerialNumber(bytes: [0x01] + key.publicKey.sha256.prefix(15)),
                publicKey: csr.publicKey,
                // For servers whose clock is slow, and those that check again when a person has decided.
                notValidBefore: now.addingTimeInterval(-86_400), notValidAfter: now.addingTimeInterval(30 * 86_400),
                issuer: csr.subject, subject: csr.subject, signatureAlgorithm: .sha256WithRSAEncryption,
                extensions: try Certificate.Extensions {
                    Critical(KeyUsage(digitalSignature: true, keyEncipherment: true))
                },
                issuerAsyncPrivateKey: privateKey)
            var serializer = DER.Serializer()
            try serializer.serialize(certificate)
            return serializer.serializedBytes
        } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(
                .internal, "The certificate that signs the request cannot be written.", underlying: error)
        }
    }
}
