public import CertificateProviding
public import FoundationEssentials
import OpenSSLSupport
import Signing

/// A signer's reply that has been verified.
public struct SigningReply: Sendable {
    /// The signature of the challenge (ECDSA, DER), or the document with its signature.
    public let data: [UInt8]
    /// The certificate of the signature: from the reply, or from the signature of the document.
    public let certificate: X509Certificate
    /// The path from the certificate to an anchor, which is its last; `nil` if no anchors were given.
    public let chain: [X509Certificate]?

    /// Reads a reply, and verifies it: the signature of the challenge is by the certificate's key; the document begins with the one
    /// that was sent, and what follows has a signature with SHA-2 over the whole file. The certificate is valid, and may sign.
    ///
    /// Nothing but signatures was added to a document. Its time stamp is not verified. Takes time linear in the size of the reply.
    ///
    /// - Parameters:
    ///   - reply: The URL, as it came.
    ///   - data: The document or the challenge that was sent.
    ///   - anchors: The certificate must lead to one of them; `nil` to accept that of any CA. For a challenge, intermediates are
    ///     anchors too: the reply has none.
    ///   - date: The time at which the certificates must be valid.
    /// - Throws: An error whose reason is a code of the protocol, the first that fits: `empty-response`, `parse-url-error`,
    ///   `wrong-operation-type`, the signer's own `message`, `certificate-parse-error`, `public-key-copy-error`,
    ///   `signature-verification-error`.
    public init(
        _ reply: [UInt8], to operation: SigningOperation, of data: [UInt8], anchors: [X509Certificate]? = nil,
        at date: Date = Date()
    ) async throws(ProviderError) {
        guard reply.contains(where: { $0 != 0x0a && $0 != 0x0d }) else { throw ResponseCode.emptyResponse.failure() }
        guard let url = RequestURL(reply) else { throw ResponseCode.parseURLError.failure() }
        let message = url["message"]
        guard url["status"] == "success" || message?.isEmpty == false else {
            throw ResponseCode.parseURLError.failure("It has neither a success nor a message.")
        }
        guard url.host == operation.rawValue else {
            throw ResponseCode.wrongOperationType.error(
                "The reply is for another operation than the request.", code: .malformedData)
        }
        if url["status"] != "success" { throw ResponseCode(rawValue: message ?? "").refusal() }
        let parts =
            operation == .signChallenge ? try Self.challenge(url, data) : try await Self.document(url, data)
        do throws(ProviderError) { try operation.requireUsable(parts.certificate, at: date) } catch {
            throw ResponseCode.signatureVerificationError.failure(error.message, underlying: error)
        }
        if let anchors {
            chain = try await Self.chain(of: parts.certificate, among: parts.others, anchors, date)
        } else {
            chain = nil
        }
        (self.data, certificate) = (parts.data, parts.certificate)
    }

    private typealias Parts = (data: [UInt8], certificate: X509Certificate, others: [X509Certificate])

    private static func challenge(_ url: RequestURL, _ challenge: [UInt8]) throws(ProviderError) -> Parts {
        let certificate = try certificate(url["certificate"]?.strictBase64)
        guard certificate.publicKey.curve == "P-256",
            OpenSSLLibrary().permits(.ecdsaP256SHA256, for: certificate.publicKey)
        else {
            throw ResponseCode.publicKeyCopyError.failure(
                "A challenge is signed by a P-256 key; '\(certificate.subject)' has \(certificate.publicKey.displayName)."
            )
        }
        guard let signature = url["signature"]?.strictBase64,
            certificate.publicKey.isValidSignature(signature, for: challenge, using: .ecdsaP256SHA256)
        else { throw ResponseCode.signatureVerificationError.failure() }
        return (signature, certificate, [])
    }

    private static func document(_ url: RequestURL, _ sent: [UInt8]) async throws(ProviderError) -> Parts {
        let code = ResponseCode.signatureVerificationError
        guard let document = url["document"]?.strictBase64 else {
            throw code.failure("The reply has no document that can be read.")
        }
        // Of another document too: a certificate that cannot be read comes first.
        let verdict: SignatureVerdict?
        do throws(ProviderError) {
            verdict = try await SignatureVerifier(anchors: nil).pdf(SigningContent(document)).last
        } catch { throw code.failure(error.message, underlying: error) }
        guard let verdict, verdict.coverage?.change == .nothing else {
            throw code.failure("The document has no signature that covers it.")
        }
        guard let certificate = verdict.certificate else {
            if verdict.isUnaltered.holds == true { throw ResponseCode.certificateParseError.failure() }
            throw code.failure("The signature is not valid: \(verdict.isUnaltered.reason ?? "").")
        }
        let key = certificate.publicKey
        let library = OpenSSLLibrary()
        let schemes: [SignatureScheme] = [
            .ecdsaP256SHA256, .rsaPKCS1SHA256, .rsaPSSPSSSHA256, .rsaPSSPSSSHA384, .rsaPSSPSSSHA512,
        ]
        guard key.bits > 0, schemes.contains(where: { library.permits($0, for: key) }) else {
            throw ResponseCode.publicKeyCopyError.failure("'\(certificate.subject)' has \(key.displayName).")
        }
        for part in [verdict.isUnaltered, verdict.isSigned] where part.holds != true {
            throw code.failure("The signature is not valid: \(part.reason ?? "").")
        }
        let addition = try SignatureVerifier.addsOnlySignatures(to: sent, in: document)
        guard addition.holds == true else {
            throw code.failure(
                "The signed document is not the one that was sent with a signature: \(addition.reason ?? "").")
        }
        return (document, certificate, verdict.otherCertificates)
    }

    private static func certificate(_ der: [UInt8]?) throws(ProviderError) -> X509Certificate {
        do throws(ProviderError) {
            guard let der else { throw ResponseCode.certificateParseError.failure() }
            return try X509Certificate(derRepresentation: der)
        } catch { throw ResponseCode.certificateParseError.failure(underlying: error) }
    }

    private static func chain(
        of leaf: X509Certificate, among others: [X509Certificate], _ anchors: [X509Certificate], _ date: Date
    ) async throws(ProviderError) -> [X509Certificate] {
        let result: CertificateChain.Validation
        do throws(ProviderError) {
            result = try await CertificateChain.validation(of: leaf, among: others, trusting: anchors, at: date)
        } catch {
            guard error.code != .userCancelled else { throw error }
            throw ResponseCode.signatureVerificationError.failure(underlying: error)
        }
        if let path = result.path { return path }
        throw ResponseCode.signatureVerificationError.failure(
            "'\(leaf.subject)' does not lead to the anchors" + (result.obstacle.map { ": \($0)." } ?? "."))
    }
}
