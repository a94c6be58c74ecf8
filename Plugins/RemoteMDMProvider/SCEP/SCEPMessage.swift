import CertificateProviding
import OpenSSLSupport
import SignedData
import SwiftASN1
import X509

/// The signed attributes of a SCEP message (RFC 8894, section 3.2.1).
enum SCEPAttribute {
    static let messageType = "2.16.840.1.113733.1.9.2"
    static let pkiStatus = "2.16.840.1.113733.1.9.3"
    static let failInfo = "2.16.840.1.113733.1.9.4"
    static let senderNonce = "2.16.840.1.113733.1.9.5"
    static let recipientNonce = "2.16.840.1.113733.1.9.6"
    static let transactionID = "2.16.840.1.113733.1.9.7"
    static let failInfoText = "1.3.6.1.5.5.7.24.1"
}

/// The type of a message (RFC 8894, section 3.2.1.2).
enum SCEPMessageType: String, Sendable {
    case certRep = "3"
    case renewalReq = "17"
    case pkcsReq = "19"
    case certPoll = "20"
}

/// A message to the CA, before it is encrypted and signed.
struct SCEPMessage: Sendable {
    let type: SCEPMessageType
    /// The content for the CA: a CSR, or an `IssuerAndSubject`.
    let content: [UInt8]
    /// Identifies the transaction in all its messages. It is derived from the key, so that it stays the same after a
    /// restart.
    let transactionID: String
    let nonce: [UInt8]

    init(_ type: SCEPMessageType, _ content: [UInt8], key: PublicKeyInfo) {
        self.type = type
        self.content = content
        transactionID = DisplayText.hexadecimal(key.sha256)
        var generator = SystemRandomNumberGenerator()
        nonce = (0..<16).map { _ in .random(in: .min ... .max, using: &generator) }
    }

    /// Returns the encoded message: a SignedData over an EnvelopedData.
    ///
    /// - Parameter digest: By its OpenSSL name: SHA256 or SHA512.
    func encoded(
        by requester: SCEPRequester, for recipient: X509Certificate, digest: String, cipher: CMSCipher,
        with library: OpenSSLLibrary
    ) async throws(ProviderError) -> [UInt8] {
        let envelope: [UInt8]
        do throws(OpenSSLError) {
            envelope = try library.envelopedData(content, recipient: recipient.derRepresentation, cipher: cipher)
        } catch {
            throw ProviderError(.internal, "The SCEP message cannot be written.", underlying: error)
        }
        let signer = try CMSSigner(
            certificateChain: [X509Certificate(derRepresentation: requester.certificate)], key: requester.key,
            scheme: digest == "SHA512" ? .rsaPKCS1SHA512 : .rsaPKCS1SHA256)
        let signature = try await signer.signature(
            ofDigest: signer.digestAlgorithm.digest(of: envelope), attributes: attributes())
        return signature.derRepresentation(content: envelope)
    }

    private func attributes() throws(ProviderError) -> [CMSSignerAttribute] {
        do {
            return [
                try CMSSignerAttribute(SCEPAttribute.messageType, ASN1PrintableString(type.rawValue)),
                try CMSSignerAttribute(SCEPAttribute.transactionID, ASN1PrintableString(transactionID)),
                try CMSSignerAttribute(SCEPAttribute.senderNonce, ASN1OctetString(contentBytes: nonce[...])),
            ]
        } catch {
            throw ProviderError(.internal, "The SCEP message cannot be written.", underlying: error)
        }
    }

    /// Returns the content of a CertPoll (RFC 8894, section 3.3.3).
    static func issuerAndSubject(
        issuerDER: [UInt8], subject: DistinguishedName
    ) throws(ProviderError) -> [UInt8] {
        var serializer = DER.Serializer()
        do {
            try serializer.appendConstructedNode(identifier: .sequence) { coder in
                coder.serializeRawBytes(issuerDER)
                try coder.serialize(subject)
            }
        } catch {
            throw ProviderError(.internal, "The names of the request cannot be written.", underlying: error)
        }
        return serializer.serializedBytes
    }
}

extension CMSSignerAttribute {
    /// - Parameter type: An object identifier in dotted form.
    fileprivate init(_ type: String, _ value: some DERSerializable) throws {
        var serializer = DER.Serializer()
        try serializer.serialize(value)
        self.init(type.split(separator: ".").compactMap { UInt($0) }, value: serializer.serializedBytes)
    }
}

extension CertificateSigningRequest.Attribute {
    /// The challengePassword of a CSR (RFC 2985, section 5.4.1).
    ///
    /// - Throws: `configurationInvalid` for a password that is empty, or not UTF-8.
    init(challengePassword: SecretBytes) throws(ProviderError) {
        let text = challengePassword.withUnsafeBytes { String(validating: $0, as: UTF8.self) }
        guard let text, !text.isEmpty else {
            throw ProviderError(
                .configurationInvalid, "The challenge password is empty, or not UTF-8 text; check 'challenge-source'.")
        }
        do {
            // PrintableString where it can be, as servers of old know nothing else.
            let value =
                if let printable = try? ASN1PrintableString(text) {
                    try ASN1Any(erasing: printable)
                } else {
                    try ASN1Any(erasing: ASN1UTF8String(text))
                }
            self.init(oid: [1, 2, 840, 113549, 1, 9, 7], values: [value])
        } catch {
            // Without the underlying error, which might quote it.
            throw ProviderError(.internal, "The challenge password cannot be written.")
        }
    }
}
