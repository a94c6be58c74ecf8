import SwiftASN1
public import X509

/// A PKCS#10 certification request (RFC 2986), signed with the key that the certificate is wanted for.
public struct CertificateRequest: Sendable {
    /// DER.
    public let derRepresentation: [UInt8]

    /// Signs a request, and verifies the signature as a certificate authority would.
    ///
    /// - Parameters:
    ///   - subject: An RFC 4514 string, such as `CN=client,O=Example`; may be empty where there are other names.
    ///   - subjectAlternativeNames: `dns:host.example`, `ip:192.0.2.1`, `email:…`, `uri:…`.
    ///   - attributes: Further ones, such as a challenge password.
    /// - Throws: `malformedData` for a name that cannot be read, `unsupportedAlgorithm`, `keyMismatch` when the signature
    ///   does not verify, and what the key says.
    public init(
        subject: String, subjectAlternativeNames: [String] = [],
        attributes: [CertificateSigningRequest.Attribute] = [], key: any IdentityKey
    ) async throws(CertificateProviderError) {
        let name = try DistinguishedName(rfc4514: subject)
        var names: [GeneralName] = []
        for text in subjectAlternativeNames { names.append(try GeneralName(displayName: text)) }
        let privateKey = try IdentityPrivateKey(key)
        do {
            var all = attributes
            if !names.isEmpty {
                // Critical where there is no other name (RFC 5280, section 4.2.1.6).
                let alternatives = try Certificate.Extension(
                    SubjectAlternativeNames(names), critical: name.isEmpty)
                all.append(try .init(ExtensionRequest(extensions: Certificate.Extensions([alternatives]))))
            }
            let request = try await CertificateSigningRequest(
                version: .v1, subject: name, asyncPrivateKey: Certificate.PrivateKey(privateKey),
                attributes: CertificateSigningRequest.Attributes(all),
                signatureAlgorithm: privateKey.defaultSignatureAlgorithm)
            guard privateKey.publicKey.isValidSignature(request.signature, for: request) else {
                throw CertificateProviderError(
                    .keyMismatch, "The key signed the request, but the signature is not that of its public key.")
            }
            var serializer = DER.Serializer()
            try serializer.serialize(request)
            derRepresentation = serializer.serializedBytes
        } catch let error as CertificateProviderError {
            throw error
        } catch {
            throw CertificateProviderError(
                .internal, "The certificate request cannot be written.", underlying: error)
        }
    }

    /// The PEM form (RFC 7468), with a final newline.
    public var pemRepresentation: String {
        PEMDocument(type: "CERTIFICATE REQUEST", derBytes: derRepresentation).pemString + "\n"
    }
}
