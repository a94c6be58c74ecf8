public import CertificateProviding
import FoundationEssentials
package import SignedData

extension Signer {
    /// Returns a detached CMS signature of content (RFC 5652; EN 319 122-1), DER: level B-B, with a time stamp B-T, with validation data
    /// B-LT.
    ///
    /// Its signed attributes are content-type, message-digest, signing-time and signing-certificate-v2. Content is not held in
    /// memory. Suspends for as long as reading, the key and the time-stamp server take.
    ///
    /// - Throws: `storeReadFailed`, `unsupportedAlgorithm`, `keyMismatch` for a signature that does not verify, errors of the key, and
    ///   those of ``TimeStampServer``; for level B-LT those with the reason `validationData`.
    public func detachedCMS(of content: SigningContent) async throws(ProviderError) -> [UInt8] {
        let signer = try cmsSigner()
        let algorithm = signer.digestAlgorithm
        let digest = try await executor.run { () throws(ProviderError) in try content.digest(by: algorithm) }
        return try await cms(signer, digest).derRepresentation()
    }

    /// Returns a CMS signature around content that is in memory. See ``detachedCMS(of:)``.
    ///
    /// - Throws: As ``detachedCMS(of:)``.
    public func attachedCMS(of content: [UInt8]) async throws(ProviderError) -> [UInt8] {
        let signer = try cmsSigner()
        return try await cms(signer, signer.digestAlgorithm.digest(of: content)).derRepresentation(content: content)
    }

    /// Writes a CMS signature with its content. The content is copied into a temporary file without a name until the signature is there.
    ///
    /// - Parameters:
    ///   - spool: Holds the content.
    ///   - write: Writes bytes to the result.
    package func attachedCMS(
        of content: SigningContent, spool: ContentSpool,
        write: @escaping @Sendable (UnsafeRawBufferPointer) throws(ProviderError) -> Void
    ) async throws(ProviderError) {
        let signer = try cmsSigner()
        let algorithm = signer.digestAlgorithm
        let digest = try await executor.run { () throws(ProviderError) in
            try content.digest(by: algorithm) { piece throws(ProviderError) in try spool.append(piece) }
        }
        let (head, tail) = try await cms(signer, digest).derRepresentation(aroundContentOf: spool.count)
        try await executor.run { () throws(ProviderError) in
            try SigningContent(head).read(write)
            try spool.content().read(write)
            try SigningContent(tail).read(write)
        }
    }

    private func cms(_ signer: CMSSigner, _ digest: [UInt8]) async throws(ProviderError) -> CMSSignature {
        var (signature, data) = try await signature(
            by: signer, ofDigest: digest, attributes: [.signingTime(now()), .signingCertificate(identity.certificate)])
        if let data {
            signature.addValidationData(
                certificates: data.certificates, revocationLists: data.revocationLists, ocspAnswers: data.ocspAnswers)
        }
        return signature
    }

    package func cmsSigner() throws(ProviderError) -> CMSSigner {
        try CMSSigner(
            certificateChain: CertificateChain.withoutRoot(identity.certificateChain), key: identity.key, scheme: scheme
        )
    }

    /// Signs, stamps the signature if that is wanted, and fetches the validation data of both.
    func signature(
        by signer: CMSSigner, ofDigest digest: [UInt8], attributes: [CMSSignerAttribute]
    ) async throws(ProviderError) -> (CMSSignature, ValidationData?) {
        var signature = try await signer.signature(ofDigest: digest, attributes: attributes)
        guard let timeStamps else { return (signature, nil) }
        let token = try await timeStamps.token(for: signature.value)
        signature.unsignedAttributes = [.timeStamp(token)]
        // After the stamp: older data would not say that the certificates were good then.
        return (signature, isLongTerm ? try await ValidationData(of: self, timeStamps, token) : nil)
    }
}
