import SwiftASN1
public import X509

/// A PKCS#10 certificate request (RFC 2986), signed with the key to be certified.
public struct CertificateRequest: Sendable {
    /// The request in DER.
    public let derRepresentation: [UInt8]

    /// The names to be certified. They are checked before a key is generated.
    public struct Names: Sendable {
        let subject: DistinguishedName
        let alternatives: [GeneralName]
        /// The extension of an existing certificate, copied unchanged; `nil` for new names.
        let alternativesExtension: Certificate.Extension?

        /// Reads the names from text.
        ///
        /// - Parameters:
        ///   - subject: An RFC 4514 string, such as `CN=client,O=Example`; may be empty if there are alternative names.
        ///   - subjectAlternativeNames: `dns:host.example`, `ip:192.0.2.1`, `email:…`, `uri:…`.
        /// - Throws: `malformedData` for an invalid name.
        public init(
            subject: String, subjectAlternativeNames: [String] = []
        ) throws(CertificateProviderError) {
            self.subject = try DistinguishedName(rfc4514: subject)
            alternatives = try subjectAlternativeNames.map { text throws(CertificateProviderError) in
                try GeneralName(displayName: text)
            }
            alternativesExtension = nil
        }

        /// Copies the names of a certificate byte for byte, for a renewal (RFC 7030, section 4.2.2). The CA may have
        /// encoded the requested names differently, or added names.
        ///
        /// - Throws: `malformedData` for a subject that cannot be encoded unchanged.
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
                    .malformedData,
                    "The subject '\(certificate.subject)' is not valid DER and cannot be copied into a request.",
                    underlying: error)
            }
        }

        /// Creates names with a common name as the subject.
        ///
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

        /// The subject in the form of ``X509Certificate/subject``.
        public var subjectText: String { subject.rfc4514 }
        /// The alternative names in the form of ``X509Certificate/subjectAlternativeNames``.
        public var alternativeNames: [String] { alternatives.map(\.displayName) }

        /// The subject's most specific common name; `nil` if it has none.
        public var commonName: String? {
            subject.reversed().lazy.flatMap { $0 }
                .first { $0.type == ASN1ObjectIdentifier.RDNAttributeType.commonName }.flatMap { String($0.value) }
        }
    }

    /// Creates and signs a request, and verifies its signature as a CA would.
    ///
    /// - Parameters:
    ///   - attributes: Additional attributes, such as a challenge password.
    ///   - extensions: Requested extensions besides the alternative names.
    ///   - schemes: The accepted signature schemes: the first one that the key supports is used. If it supports none,
    ///     its own
    ///     preference is used.
    /// - Throws: `unsupportedAlgorithm`, `keyMismatch` if the signature does not verify, and errors of the key.
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
                    .keyMismatch,
                    "The signature of the certificate request does not verify with the key's own public key.")
            }
            var serializer = DER.Serializer()
            try serializer.serialize(request)
            derRepresentation = serializer.serializedBytes
        } catch let error as CertificateProviderError {
            throw error
        } catch {
            throw CertificateProviderError(
                .internal, "The certificate request cannot be encoded or signed.", underlying: error)
        }
    }

    /// The PEM form (RFC 7468), with a final newline.
    public var pemRepresentation: String {
        PEMDocument(type: "CERTIFICATE REQUEST", derBytes: derRepresentation).pemString + "\n"
    }
}

extension CertificateRequest.Names {
    /// The extension that requests the alternative names; `nil` if there are none.
    fileprivate var requestedExtension: Certificate.Extension? {
        get throws {
            if alternativesExtension != nil || alternatives.isEmpty { return alternativesExtension }
            // Critical where there is no other name (RFC 5280, section 4.2.1.6).
            return try Certificate.Extension(SubjectAlternativeNames(alternatives), critical: subject.isEmpty)
        }
    }
}
