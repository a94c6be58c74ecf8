package import CertificateProviding

/// A certificate and its private key as OpenSSL objects, to be reused for all messages of an exchange.
///
/// Parsing them takes as long as a signature: OpenSSL tries each of its decoders, and computes the key's blinding
/// again. OpenSSL holds the key in memory until this object is released, and wipes it then.
///
/// `@unchecked`: OpenSSL counts the references to both objects and locks their cached values. Nothing is changed here.
package final class CMSIdentity: @unchecked Sendable {
    let certificate: CertificateHandle
    let key: PrivateKeyHandle

    /// Parses a certificate and a private key. Does not check that they belong together.
    ///
    /// - Parameters:
    ///   - certificate: DER.
    ///   - key: PKCS#8.
    package init(certificate: [UInt8], key: SecretBytes, in library: OpenSSLLibrary) throws(OpenSSLError) {
        self.certificate = try CertificateHandle(certificate, in: library)
        self.key = try PrivateKeyHandle(pkcs8: key, in: library)
    }
}
