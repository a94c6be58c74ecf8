import CertificateProviding
import OpenSSLSupport
import ProviderTransport

/// A CertRep (RFC 8894, section 3.3.2) with a valid signature that answers the message that was sent.
struct SCEPReply: Sendable {
    enum Status: Sendable {
        /// The EnvelopedData with the certificates.
        case success([UInt8])
        case pending
    }

    let status: Status
    /// The digest of its signature, by its OpenSSL name.
    let digest: String

    /// The digests that are accepted in the server's signature. SHA-1 is one of them, since the issued certificates are
    /// verified themselves; MD5 is not, since it proves nothing.
    private static let digests: Set<String> = ["SHA1", "SHA256", "SHA384", "SHA512"]

    /// - Parameters:
    ///   - signers: The certificates, one of which must have signed.
    ///   - redaction: Removes the secrets of the message from texts of the server.
    /// - Throws: `rejected` with the reason that the server gives; `protocolError` for an invalid reply.
    init(
        _ reply: [UInt8], to message: SCEPMessage, signers: [X509Certificate], redaction: Redaction = Redaction(),
        with library: OpenSSLLibrary
    ) throws(ProviderError) {
        let signed: CMSSignedContent
        do throws(OpenSSLError) {
            signed = try library.verifySignedData(reply, signers: signers.map(\.derRepresentation))
        } catch {
            throw ProviderError(
                .protocolError,
                "The reply of the SCEP server is damaged, or not signed by the CA; ask its administrator.",
                underlying: error)
        }
        let attributes = SCEPReplyAttributes(signed.attributes)
        try attributes.check(answering: message)
        digest = signed.digest
        guard Self.digests.contains(digest) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The reply of the SCEP server is signed with \(digest), which is not secure; configure the server for "
                    + "SHA-256.")
        }
        switch attributes.text(SCEPAttribute.pkiStatus) {
        case "0": status = .success(signed.content)
        case "2": throw attributes.failure(redaction)
        case "3": status = .pending
        case let other:
            throw ProviderError(
                .protocolError,
                "The reply of the SCEP server has \(other == nil ? "no" : "an unknown") pkiStatus; ask its "
                    + "administrator.")
        }
    }
}

private struct SCEPReplyAttributes {
    private let values: [String: [CMSAttribute.Value]]

    init(_ attributes: [CMSAttribute]) {
        values = Dictionary(grouping: attributes, by: \.type).mapValues { $0.map(\.value) }
    }

    /// Returns the value of an attribute that occurs exactly once.
    private func value(_ type: String) -> CMSAttribute.Value? {
        values[type].flatMap { $0.count == 1 ? $0.first : nil }
    }

    func text(_ type: String) -> String? {
        switch value(type) {
        case .printableString(let text), .utf8String(let text): text
        default: nil
        }
    }

    func check(answering message: SCEPMessage) throws(ProviderError) {
        guard text(SCEPAttribute.messageType) == SCEPMessageType.certRep.rawValue else {
            throw ProviderError(
                .protocolError, "The SCEP server's answer is not a CertRep message; check 'url'.")
        }
        guard text(SCEPAttribute.transactionID) == message.transactionID else {
            throw ProviderError(
                .protocolError, "The SCEP server answered for another transaction; try again, or ask its administrator."
            )
        }
        guard value(SCEPAttribute.recipientNonce) == .octetString(message.nonce) else {
            throw ProviderError(
                .protocolError,
                "The SCEP server's reply is to another message: its recipientNonce is not the nonce sent. Try again, or ask its "
                    + "administrator.")
        }
    }

    /// The meaning of each failInfo (RFC 8894, section 3.2.1.4.1).
    private static let meanings: [String: String] = [
        "0": "badAlg: it does not support an algorithm of the request",
        "1": "badMessageCheck: it found the request damaged",
        "2": "badRequest: it does not permit the request; check its names, its key and its challenge password",
        "3": "badTime: the clock of this host or of the server is wrong",
        "4": "badCertId: it does not know the certificate or request",
    ]

    /// Returns the refusal. Its native code is the number of the failInfo.
    func failure(_ redaction: Redaction) -> ProviderError {
        let number = text(SCEPAttribute.failInfo)
        let meaning = number.flatMap { Self.meanings[$0] } ?? "failInfo \(number?.prefix(8) ?? "is missing")"
        let details = text(SCEPAttribute.failInfoText).map { " It says: \(redaction($0).prefix(300))" } ?? ""
        return ProviderError(
            .rejected,
            DisplayText.visible("The SCEP server refused the request, with \(meaning).\(details)"),
            nativeCode: number.flatMap { Int($0) }, reason: .signedRefusal)
    }
}

extension ProviderError.Reason {
    /// The server has refused the request in a reply, signed by the CA.
    static let signedRefusal = Self(rawValue: "signedRefusal")
}
