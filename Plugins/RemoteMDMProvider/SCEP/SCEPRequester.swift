import CertificateProviding
import Crypto
import FoundationEssentials
import OpenSSLSupport
import SwiftASN1
import X509

/// Whose key signs the messages of a transaction, as it can be said before the server is asked anything.
struct SCEPSigner: Sendable {
    /// The certificate that is renewed; nil where there is none, or where it is not valid: no CA takes that.
    let current: X509Certificate?
    let key: any IdentityKey

    /// - Throws: `unsupportedAlgorithm` for a key that SCEP cannot be done with.
    init(for request: EnrolmentRequest, now: Date) throws(CertificateProviderError) {
        let identity = request.current.flatMap { $0.certificate.status(at: now) == .valid ? $0 : nil }
        let signing = identity?.key ?? request.key
        for key in [request.key, signing] where key.publicKey.algorithm != .rsa || key.publicKey.isRestrictedToPSS {
            let kind = key.publicKey.isRestrictedToPSS ? "RSASSA-PSS" : key.publicKey.displayName
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                """
                SCEP encrypts its replies for the key that asks, which RSA keys can read and a key of kind \(kind) cannot; \
                choose an RSA key, or EST.
                """)
        }
        guard signing.exporter != nil || signing.decrypter != nil else {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                """
                SCEP encrypts its replies for the key that asks, and this one stays in its home (\(signing.location.rawValue)), \
                where nothing is decrypted for us; keep the key in the store, or choose EST.
                """)
        }
        current = identity?.certificate
        key = signing
    }
}

/// Who signs the messages of one transaction, and for whom its replies are encrypted (RFC 8894, section 2.3).
struct SCEPRequester: Sendable {
    /// The certificate that is renewed, or where there is none, one that the key signs itself; DER.
    let certificate: [UInt8]
    let key: any IdentityKey
    /// Both, as OpenSSL has them; nil for a key that does not leave its home.
    let identity: CMSIdentity?

    /// - Parameter csr: What the transaction is about.
    init(
        _ signer: SCEPSigner, csr: CertificateSigningRequest, now: Date, in library: OpenSSLLibrary
    ) async throws(CertificateProviderError) {
        key = signer.key
        if let current = signer.current {
            certificate = current.derRepresentation
        } else {
            certificate = try await Self.selfSigned(signer.key, csr: csr, now: now)
        }
        guard let exported = try key.exporter?.pkcs8Representation() else {
            identity = nil
            return
        }
        do throws(OpenSSLError) {
            identity = try CMSIdentity(certificate: certificate, key: exported, in: library)
        } catch {
            throw CertificateProviderError(
                .internal, "The key that signs the request cannot be used.", underlying: error)
        }
    }

    private static func selfSigned(
        _ key: any IdentityKey, csr: CertificateSigningRequest, now: Date
    ) async throws(CertificateProviderError) -> [UInt8] {
        let privateKey = try Certificate.PrivateKey(key)
        do {
            let certificate = try await Certificate(
                version: .v3,
                // The same whenever the key asks: a reply may name a certificate that a process before this one made.
                serialNumber: Certificate.SerialNumber(bytes: [0x01] + key.publicKey.sha256.prefix(15)),
                publicKey: csr.publicKey,
                // For servers whose clock is behind, and those that look again when a person has decided.
                notValidBefore: now.addingTimeInterval(-86_400), notValidAfter: now.addingTimeInterval(30 * 86_400),
                issuer: csr.subject, subject: csr.subject, signatureAlgorithm: .sha256WithRSAEncryption,
                extensions: try Certificate.Extensions {
                    Critical(KeyUsage(digitalSignature: true, keyEncipherment: true))
                },
                issuerAsyncPrivateKey: privateKey)
            var serializer = DER.Serializer()
            try serializer.serialize(certificate)
            return serializer.serializedBytes
        } catch let error as CertificateProviderError {
            throw error
        } catch {
            throw CertificateProviderError(
                .internal, "The certificate that signs the request cannot be written.", underlying: error)
        }
    }
}
