public import CertificateProviding

/// A certificate and its private key as OpenSSL has them, for all messages of an exchange.
///
/// Reading them takes OpenSSL as long as signing: it asks each of its decoders, and makes the key's blinding anew. The
/// key is in OpenSSL's memory until this goes, and is wiped then.
///
/// `@unchecked`: OpenSSL counts references to both and locks what it computes of them; nothing is changed here.
public final class CMSIdentity: @unchecked Sendable {
    let certificate: CertificateHandle
    let key: PrivateKeyHandle

    /// - Parameters:
    ///   - certificate: DER.
    ///   - key: PKCS#8. Whether it is the certificate's is not looked at.
    public init(certificate: [UInt8], key: SecretBytes, in library: OpenSSLLibrary) throws(OpenSSLError) {
        self.certificate = try CertificateHandle(certificate, in: library)
        self.key = try PrivateKeyHandle(pkcs8: key, in: library)
    }
}
