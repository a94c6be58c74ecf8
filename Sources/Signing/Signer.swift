public import CertificateProviding
public import FoundationEssentials
import OpenSSLSupport
import SignedData

/// Signs with an identity: data, CMS and PDF, with time stamps. The key signs wherever it is.
///
/// Each signature is verified before it is returned, and none is repeated by itself.
public struct Signer: Sendable {
    /// The identity that signs.
    public let identity: Identity
    /// The scheme of the signatures.
    public let scheme: SignatureScheme
    /// Stamps the signatures of CMS and PDF; `nil` for signatures without time stamp.
    public let timeStamps: TimeStampServer?
    /// Whether signatures of CMS and PDF have what verifies them when the servers of the CAs are gone.
    public let isLongTerm: Bool
    /// The time for what a signature has of these servers, with all attempts.
    var validationDataTimeout = Duration.seconds(30)
    /// The clock of the signing time.
    let now: @Sendable () -> Date
    /// Reads content and verifies: what blocks.
    let executor: BlockingExecutor

    /// Creates a signer. Does not use the key.
    ///
    /// - Parameters:
    ///   - scheme: One of the key's schemes; by default that of the curve, for RSA RSASSA-PKCS1-v1_5 with SHA-256, and RSASSA-PSS
    ///     where the certificate permits nothing else.
    ///   - timeStamps: Stamps each signature of CMS and PDF. If that fails, there is no signature.
    ///   - isLongTerm: Whether to add chains, OCSP answers and revocation lists of signer and time stamp: level B-LT. They come from the URLs in
    ///     the certificates, by the proxy and the network of `timeStamps`, within half a minute. If that fails, there is no signature.
    ///   - now: The clock of the signing time.
    ///   - executor: Reads content; by default a thread of its own, while there is work.
    /// - Throws: `certificateNotUsable` for a leaf that is not valid now or not for signatures (``requireUsable(_:at:)``),
    ///   `unsupportedAlgorithm` for a scheme that the key does not have, `configurationInvalid` for level B-LT without time stamps.
    public init(
        _ identity: Identity, scheme: SignatureScheme? = nil, timeStamps: TimeStampServer? = nil,
        isLongTerm: Bool = false, now: @escaping @Sendable () -> Date = { Date() },
        executor: BlockingExecutor = .threads(maximum: 1)
    ) throws(ProviderError) {
        guard timeStamps != nil || !isLongTerm else {
            throw ProviderError(
                .configurationInvalid,
                "Level B-LT needs a time stamp, which says when the signature was there. Name a time-stamp server.")
        }
        do throws(ProviderError) { try Self.requireUsable(identity.certificate, at: now()) } catch {
            throw error.attributed(to: identity.provenance.provider)
        }
        // The certificate of an RSA key may permit one digest only.
        let library = OpenSSLLibrary()
        let schemes = identity.key.signatureSchemes.filter {
            $0.digestAlgorithm == nil || library.permits($0, for: identity.certificate.publicKey)
        }
        let preferred = schemes.contains(.rsaPKCS1SHA256) ? .rsaPKCS1SHA256 : schemes.first
        guard let chosen = scheme ?? preferred, schemes.contains(chosen) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key of '\(identity.certificate.subject)' does not sign"
                    + (scheme.map { " with \($0)" } ?? "")
                    + (schemes.isEmpty ? "." : "; use one of: \(schemes.map(\.description).joined(separator: ", "))."),
                provider: identity.provenance.provider)
        }
        self.scheme = chosen
        (self.identity, self.timeStamps, self.isLongTerm) = (identity, timeStamps, isLongTerm)
        (self.now, self.executor) = (now, executor)
    }

    /// The level of its signatures of CMS and PDF (EN 319 122-1 and EN 319 142-1): `B-B`, `B-T` or `B-LT`.
    public var level: String { isLongTerm ? "B-LT" : timeStamps != nil ? "B-T" : "B-B" }

    /// Checks that a certificate is valid, and that its key usage, where it has one, permits digitalSignature or nonRepudiation
    /// (RFC 5280, section 4.2.1.3). Needs no key, and so no PIN.
    ///
    /// - Throws: `certificateNotUsable`.
    public static func requireUsable(_ leaf: X509Certificate, at date: Date) throws(ProviderError) {
        func refusal(_ reason: String) -> ProviderError {
            ProviderError(.certificateNotUsable, "The certificate '\(leaf.subject)' cannot sign: \(reason).")
        }
        switch leaf.status(at: date) {
        case .expired:
            throw refusal(
                "it expired on \(leaf.notValidAfter.formatted(.iso8601)); obtain another one, or check this host's clock"
            )
        case .notYetValid:
            throw refusal("it is not valid before \(leaf.notValidBefore.formatted(.iso8601)); check this host's clock")
        case .valid: break
        }
        guard leaf.permits(.signature) else {
            throw refusal(
                "its key usage permits neither digitalSignature nor nonRepudiation; have one issued that does")
        }
    }

    /// Signs content as it is. Suspends for as long as reading and the key take.
    ///
    /// Content that a key takes by its digest is not held in memory. For other keys, such as Ed25519, at most 64 MiB are signed.
    ///
    /// - Returns: DER for ECDSA, the raw octets otherwise.
    /// - Throws: `storeReadFailed`, `unsupportedAlgorithm` for too much content, `keyMismatch` for a signature that does not verify,
    ///   and errors of the key.
    public func rawSignature(of content: SigningContent) async throws(ProviderError) -> [UInt8] {
        let message = try await executor.run { [identity, scheme] () throws(ProviderError) in
            try RawMessage(content, for: identity.key, scheme)
        }
        if let signature = try await message.signature(verifiedBy: identity.certificate.publicKey) { return signature }
        throw ProviderError(
            .keyMismatch,
            "The signature does not verify with the certificate '\(identity.certificate.subject)': its key store has another key, or is faulty, or the certificate does not permit \(scheme).",
            provider: identity.provenance.provider)
    }
}
