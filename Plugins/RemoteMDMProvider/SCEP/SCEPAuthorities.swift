import CertificateProviding
import FoundationEssentials
import SwiftASN1
import X509

/// The trusted certificates of a SCEP server, and their purposes (RFC 8894, section 4.2).
struct SCEPAuthorities: Sendable {
    /// The CA, its issuers and the registration authorities, as far as the server sends them.
    let certificates: [X509Certificate]
    /// Those of ``certificates`` that are trust anchors; the others lead to them.
    let anchors: [X509Certificate]
    /// The trust anchors of all certificates, whether the server sends them or not.
    let roots: [X509Certificate]
    /// The certificates that may have issued: the CAs, or all certificates if none is marked as a CA.
    var issuers: [X509Certificate] {
        let authorities = certificates.filter(\.isAuthority)
        return authorities.isEmpty ? certificates : authorities
    }
    /// The certificate whose key messages are encrypted for.
    let recipient: X509Certificate
    /// The certificates that may sign the server's messages.
    let signers: [X509Certificate]
    /// The name of the issuing CA, DER.
    let issuerDER: [UInt8]

    /// More than any server has. The number is bounded because every path between cross-certified authorities is tried:
    /// forged ones must not keep this host busy.
    private static let maximumCount = 16

    /// - Parameter certificates: As the server has sent them, not trusted yet.
    /// - Throws: `serverNotTrusted` for a CA that is not the configured one, `unsupportedAlgorithm` if no key is RSA.
    init(
        _ certificates: [X509Certificate], configuration: SCEPConfiguration, now: Date
    ) async throws(ProviderError) {
        guard certificates.count <= Self.maximumCount else {
            throw ProviderError(
                .protocolError,
                "The SCEP server has sent \(certificates.count) certificates; at most \(Self.maximumCount) are "
                    + "accepted. Ask its administrator.")
        }
        let roots = try await Self.roots(of: certificates, configuration, now)
        var trusted: [X509Certificate] = []
        for certificate in certificates where !trusted.contains(certificate) {
            let isRoot = roots.contains(certificate)
            if isRoot { trusted.append(certificate) }
            if !isRoot, try await Self.leads(certificate, to: roots, through: certificates, now),
                certificate.isAuthority || Self.mayRegister(certificate)
            {
                trusted.append(certificate)
            }
        }
        let authorities = trusted.filter(\.isAuthority)
        let registration = trusted.filter { !$0.isAuthority }
        // The lowest in the hierarchy, which are those that issue.
        let lowest = authorities.filter { authority in
            // A CA that goes over to another key has links of its own name.
            !authorities.contains {
                $0.subjectDER != authority.subjectDER && $0.issuerDER == authority.subjectDER
            }
        }
        // Of several the one that a request can be encrypted for, wherever in the bag it is.
        let capable = lowest.first { $0.publicKey.algorithm == .rsa } ?? lowest.first
        let issuing =
            lowest.filter { authority in
                authority.subjectDER == capable?.subjectDER
                    && authority.publicKey.algorithm == capable?.publicKey.algorithm
                    && authority.status(at: now) == .valid
            }.max { $0.notValidBefore < $1.notValidBefore } ?? capable
        // A CA's key usage is not checked for encryption: most CAs that decrypt do not have that bit.
        let recipients = registration.filter { Self.usage($0)?.keyEncipherment ?? true } + [issuing].compactMap(\.self)
        self.certificates = trusted
        self.roots = roots
        self.anchors = trusted.filter(roots.contains)
        self.signers = registration.filter { Self.usage($0)?.digitalSignature ?? true } + authorities
        guard !trusted.isEmpty, !signers.isEmpty else {
            throw ProviderError(
                .serverNotTrusted,
                "The certificates of the SCEP server do not lead to a configured trust anchor; add its CA to "
                    + "'trust-anchors', or set 'ca-fingerprint'.")
        }
        guard let recipient = recipients.first(where: { $0.publicKey.algorithm == .rsa }) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The SCEP server has no RSA certificate that a request could be encrypted for; configure one there, or use EST."
            )
        }
        self.recipient = recipient
        self.issuerDER = issuing?.subjectDER ?? recipient.issuerDER
    }

    /// Returns the trust anchors: the certificate with the CA fingerprint, or the configured anchors.
    private static func roots(
        of certificates: [X509Certificate], _ configuration: SCEPConfiguration, _ now: Date
    ) async throws(ProviderError) -> [X509Certificate] {
        guard let fingerprint = configuration.fingerprint else {
            let anchors = configuration.trustAnchors + configuration.known
            guard let confirm = configuration.confirm, anchors.isEmpty else { return anchors }
            let authorities = certificates.filter(\.isAuthority)
            let meant = authorities.isEmpty ? certificates : authorities
            try await confirm(meant)
            return meant
        }
        guard let pinned = certificates.first(where: { $0.sha256Fingerprint == fingerprint }) else {
            // The CA may have changed to the successor that it has announced.
            let successors = certificates.filter(configuration.known.contains)
            guard successors.isEmpty else { return successors }
            let seen = certificates.map { "'\($0.subject)' (\(DisplayText.hexadecimal($0.sha256Fingerprint)))" }
            throw ProviderError(
                .serverNotTrusted,
                """
                The CA is not the configured one: the fingerprint \(DisplayText.hexadecimal(fingerprint)) is not among those of the \
                server's certificates, \(seen.joined(separator: ", ")). No request was sent; check 'url' and \
                'ca-fingerprint'.
                """)
        }
        let anchors = configuration.trustAnchors
        if anchors.isEmpty || anchors.contains(pinned) { return [pinned] }
        guard try await leads(pinned, to: anchors, through: certificates, now) else {
            throw ProviderError(
                .serverNotTrusted,
                "The CA '\(pinned.subject)' has the configured fingerprint, but does not lead to a configured trust "
                    + "anchor; add its root to 'trust-anchors'.")
        }
        return [pinned]
    }

    static func leads(
        _ certificate: X509Certificate, to roots: [X509Certificate], through others: [X509Certificate], _ now: Date
    ) async throws(ProviderError) -> Bool {
        do throws(ProviderError) {
            return try await CertificateChain.validated(from: certificate, among: others, trusting: roots, at: now)
                != nil
        } catch {
            if error.code == .userCancelled { throw error }
            return false
        }
    }

    /// Whether a certificate below the CA may be that of a registration authority.
    ///
    /// The list of certificates is not signed: an attacker with the key of any certificate of the CA could add that
    /// certificate, and receive the challenge passwords of all hosts. A certificate with an extended key usage must
    /// therefore have that of a registration authority.
    private static func mayRegister(_ certificate: X509Certificate) -> Bool {
        guard let readable = try? certificate.certificate() else { return false }
        do {
            guard let usage = try readable.extensions.extendedKeyUsage else { return true }
            return registrationUsages.contains { usage.contains($0) }
        } catch { return false }
    }

    /// Microsoft's Certificate Request Agent, which NDES uses, and id-kp-cmcRA (RFC 6402, section 2.10).
    private static let registrationUsages = [
        ExtendedKeyUsage.Usage(oid: [1, 3, 6, 1, 4, 1, 311, 20, 2, 1]),
        ExtendedKeyUsage.Usage(oid: [1, 3, 6, 1, 5, 5, 7, 3, 28]),
    ]

    private static func usage(_ certificate: X509Certificate) -> KeyUsage? {
        (try? certificate.certificate()).flatMap { try? $0.extensions.keyUsage }
    }
}
