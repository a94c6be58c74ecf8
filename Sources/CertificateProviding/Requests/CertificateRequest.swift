import SwiftASN1
public import X509

/// A PKCS#10 certificate request (RFC 2986), signed with the key to be certified.
public struct CertificateRequest: Sendable {
    /// The request in DER.
    public let derRepresentation: [UInt8]

    /// The names to be certified. They are checked before a key is generated.
    public struct Names: Sendable {
        let subject: DistinguishedName
        /// The alternative names.
        public let alternativeNames: [AlternativeName]
        /// The extension that requests them: that of an existing certificate, unchanged, or a new one; `nil` without names.
        let alternativesExtension: Certificate.Extension?

        /// Creates names with a subject from text.
        ///
        /// - Parameter subject: An RFC 4514 string, such as `CN=client,O=Example`; may be empty if there are alternative
        ///   names.
        /// - Throws: `malformedData` for an invalid name.
        public init(
            subject: String, subjectAlternativeNames: [AlternativeName] = []
        ) throws(ProviderError) {
            try self.init(DistinguishedName(rfc4514: subject), subjectAlternativeNames)
        }

        private init(
            _ subject: DistinguishedName, _ alternativeNames: [AlternativeName]
        ) throws(ProviderError) {
            self.subject = subject
            self.alternativeNames = alternativeNames
            let names = try alternativeNames.map { name throws(ProviderError) in try name.generalName() }
            do {
                // Critical where there is no other name (RFC 5280, section 4.2.1.6).
                alternativesExtension =
                    names.isEmpty
                    ? nil : try Certificate.Extension(SubjectAlternativeNames(names), critical: subject.isEmpty)
            } catch {
                throw ProviderError(
                    .malformedData, "The subject alternative names cannot be encoded.", underlying: error)
            }
        }

        /// Copies the names of a certificate byte for byte, for a renewal (RFC 7030, section 4.2.2). The CA may have
        /// encoded the requested names differently, or added names.
        ///
        /// - Throws: `malformedData` for a subject that cannot be encoded unchanged.
        public init(of certificate: X509Certificate) throws(ProviderError) {
            alternativesExtension = certificate.alternativeNamesExtension
            alternativeNames = certificate.subjectAlternativeNames
            do {
                subject = try DistinguishedName(derEncoded: DER.parse(certificate.subjectDER))
                var serializer = DER.Serializer()
                try serializer.serialize(subject)
                guard serializer.serializedBytes == certificate.subjectDER else {
                    throw ASN1Error.invalidASN1Object(reason: "not DER")
                }
            } catch {
                throw ProviderError(
                    .malformedData,
                    "The subject '\(certificate.subject)' is not valid DER and cannot be copied into a request.",
                    underlying: error)
            }
        }

        /// Creates names with a common name as the subject.
        ///
        /// - Throws: As ``init(subject:subjectAlternativeNames:)``.
        public init(
            commonName: String, subjectAlternativeNames: [AlternativeName] = []
        ) throws(ProviderError) {
            let type = ASN1ObjectIdentifier.RDNAttributeType.commonName
            try self.init(
                DistinguishedName([.init(.init(type: type, utf8String: commonName))]), subjectAlternativeNames)
        }

        /// The subject in the form of ``X509Certificate/subject``.
        public var subjectText: String { subject.rfc4514 }

        /// The subject, or the alternative names where it is empty, for messages.
        public var displayText: String {
            subjectText.isEmpty ? alternativeNames.map(\.description).joined(separator: ", ") : subjectText
        }

        /// The subject's most specific common name; `nil` if it has none.
        public var commonName: String? {
            subject.reversed().lazy.flatMap { $0 }
                .first { $0.type == ASN1ObjectIdentifier.RDNAttributeType.commonName }.flatMap { String($0.value) }
        }
    }

    /// A request that was made before, such as one from a record. Not checked.
    public init(derRepresentation: [UInt8]) { self.derRepresentation = derRepresentation }

    /// Creates and signs a request, and verifies its signature as a CA would.
    ///
    /// - Parameters:
    ///   - usage: The side of TLS. Its key purposes are requested, unless it is the default `client`: a CA issues for clients
    ///     without being asked, and some refuse extensions that they do not know.
    ///   - attributes: Additional attributes, such as a challenge password.
    ///   - extensions: Requested extensions besides the alternative names.
    ///   - schemes: The accepted signature schemes: the first one that the key supports is used. If it supports none,
    ///     its own
    ///     preference is used.
    /// - Throws: `unsupportedAlgorithm`, `keyMismatch` if the signature does not verify, and errors of the key.
    public init(
        _ names: Names, usage: IdentityUsage = .client, attributes: [CertificateSigningRequest.Attribute] = [],
        extensions: [Certificate.Extension] = [], preferring schemes: [SignatureScheme] = [], key: any IdentityKey
    ) async throws(ProviderError) {
        let privateKey = try IdentityPrivateKey(key)
        do {
            var all = attributes
            let alternatives = names.alternativesExtension
            var wanted = [alternatives].compactMap(\.self) + extensions.filter { $0.oid != alternatives?.oid }
            if let sid = names.alternativeNames.lazy.compactMap(\.sid).first {
                wanted.append(try Self.securityExtension(sid))
            }
            if usage != .client, !usage.purposes.isEmpty,
                !wanted.contains(where: { $0.oid == .X509ExtensionID.extendedKeyUsage })
            {
                wanted.append(try Certificate.Extension(ExtendedKeyUsage(usage.purposes), critical: false))
            }
            if !wanted.isEmpty {
                all.append(try .init(ExtensionRequest(extensions: Certificate.Extensions(wanted))))
            }
            let request = try await CertificateSigningRequest(
                version: .v1, subject: names.subject, asyncPrivateKey: Certificate.PrivateKey(privateKey),
                attributes: CertificateSigningRequest.Attributes(all),
                signatureAlgorithm: privateKey.signatureAlgorithm(preferring: schemes))
            guard privateKey.publicKey.isValidSignature(request.signature, for: request) else {
                throw ProviderError(
                    .keyMismatch,
                    "The signature of the certificate request does not verify with the key's own public key.")
            }
            var serializer = DER.Serializer()
            try serializer.serialize(request)
            derRepresentation = serializer.serializedBytes
        } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(
                .internal, "The certificate request cannot be encoded or signed.", underlying: error)
        }
    }

    /// szOID_NTDS_CA_SECURITY_EXT (MS-WCCE, section 2.2.2.7.7.4): an otherName 1.3.6.1.4.1.311.25.2.1 with the text.
    private static func securityExtension(_ sid: String) throws -> Certificate.Extension {
        let text = ASN1OctetString(contentBytes: Array(sid.utf8)[...])
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { serializer in
            let name = GeneralName.otherName(
                .init(typeID: [1, 3, 6, 1, 4, 1, 311, 25, 2, 1], value: try ASN1Any(erasing: text)))
            try serializer.serialize(name)
        }
        return Certificate.Extension(
            oid: [1, 3, 6, 1, 4, 1, 311, 25, 2], critical: false, value: serializer.serializedBytes[...])
    }

    /// The PEM form (RFC 7468), with a final newline.
    public var pemRepresentation: String {
        PEMDocument(type: "CERTIFICATE REQUEST", derBytes: derRepresentation).pemString + "\n"
    }
}
