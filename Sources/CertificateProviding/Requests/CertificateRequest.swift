import SwiftASN1
public import X509

/// A PKCS#10 certification request (RFC 2986), signed with the key that the certificate is wanted for.
public struct CertificateRequest: Sendable {
    /// DER.
    public let derRepresentation: [UInt8]

    /// The names that a certificate is wanted for, as they are read before there is a key.
    public struct Names: Sendable {
        let subject: DistinguishedName
        let alternatives: [GeneralName]
        /// Where they are those of a certificate: as that has them, whatever they are.
        let alternativesExtension: Certificate.Extension?

        /// - Parameters:
        ///   - subject: An RFC 4514 string, such as `CN=client,O=Example`; may be empty where there are other names.
        ///   - subjectAlternativeNames: `dns:host.example`, `ip:192.0.2.1`, `email:…`, `uri:…`.
        /// - Throws: `malformedData` for a name that cannot be read.
        public init(
            subject: String, subjectAlternativeNames: [String] = []
        ) throws(CertificateProviderError) {
            self.subject = try DistinguishedName(rfc4514: subject)
            alternatives = try subjectAlternativeNames.map { text throws(CertificateProviderError) in
                try GeneralName(displayName: text)
            }
            alternativesExtension = nil
        }

        /// The names of a certificate, byte for byte: what a renewal asks for (RFC 7030, section 4.2.2). The authority may
        /// have written them otherwise than they were asked for, or have added some.
        ///
        /// - Throws: `malformedData` for a subject that cannot be written as it is.
        public init(of certificate: X509Certificate) throws(CertificateProviderError) {
            alternativesExtension = certificate.alternativeNamesExtension
            alternatives = alternativesExtension.flatMap { try? SubjectAlternativeNames($0) }.map(Array.init) ?? []
            do {
                subject = try DistinguishedName(derEncoded: DER.parse(certificate.subjectDER))
                var serializer = DER.Serializer()
                try serializer.serialize(subject)
                guard serializer.serializedBytes == certificate.subjectDER else {
                    throw ASN1Error.invalidASN1Object(reason: "not DER")
                }
            } catch {
                throw CertificateProviderError(
                    .malformedData, "The subject '\(certificate.subject)' is not in DER and cannot be asked for.",
                    underlying: error)
            }
        }

        /// - Throws: As ``init(subject:subjectAlternativeNames:)``.
        public init(
            commonName: String, subjectAlternativeNames: [String] = []
        ) throws(CertificateProviderError) {
            let type = ASN1ObjectIdentifier.RDNAttributeType.commonName
            let empty = try Names(subject: "", subjectAlternativeNames: subjectAlternativeNames)
            alternatives = empty.alternatives
            alternativesExtension = nil
            subject = DistinguishedName([.init(.init(type: type, utf8String: commonName))])
        }

        /// The subject as ``X509Certificate/subject`` shows it.
        public var subjectText: String { subject.rfc4514 }
        /// As ``X509Certificate/subjectAlternativeNames`` shows them.
        public var alternativeNames: [String] { alternatives.map(\.displayName) }

        /// The subject's most specific common name, if it has one.
        public var commonName: String? {
            subject.reversed().lazy.flatMap { $0 }
                .first { $0.type == ASN1ObjectIdentifier.RDNAttributeType.commonName }.flatMap { String($0.value) }
        }
    }

    /// Signs a request, and verifies the signature as a certificate authority would.
    ///
    /// - Parameters:
    ///   - attributes: Further ones, such as a challenge password.
    ///   - extensions: What else the certificate is to have, besides the alternative names.
    ///   - schemes: What to sign with: the first that the key can do. Where it can do none, what it prefers itself.
    /// - Throws: `unsupportedAlgorithm`, `keyMismatch` when the signature does not verify, and what the key says.
    public init(
        _ names: Names, attributes: [CertificateSigningRequest.Attribute] = [],
        extensions: [Certificate.Extension] = [], preferring schemes: [SignatureScheme] = [], key: any IdentityKey
    ) async throws(CertificateProviderError) {
        let privateKey = try IdentityPrivateKey(key)
        do {
            var all = attributes
            let alternatives = try names.requestedExtension
            let wanted = [alternatives].compactMap(\.self) + extensions.filter { $0.oid != alternatives?.oid }
            if !wanted.isEmpty {
                all.append(try .init(ExtensionRequest(extensions: Certificate.Extensions(wanted))))
            }
            let request = try await CertificateSigningRequest(
                version: .v1, subject: names.subject, asyncPrivateKey: Certificate.PrivateKey(privateKey),
                attributes: CertificateSigningRequest.Attributes(all),
                signatureAlgorithm: privateKey.signatureAlgorithm(preferring: schemes))
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

extension CertificateRequest.Names {
    /// What asks for the alternative names, where there are any.
    fileprivate var requestedExtension: Certificate.Extension? {
        get throws {
            if alternativesExtension != nil || alternatives.isEmpty { return alternativesExtension }
            // Critical where there is no other name (RFC 5280, section 4.2.1.6).
            return try Certificate.Extension(SubjectAlternativeNames(alternatives), critical: subject.isEmpty)
        }
    }
}
