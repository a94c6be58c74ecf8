public import FoundationEssentials
import SwiftASN1
// RFC5280Policy takes the time of the validation only through this interface of swift-certificates; without it, every
// chain is judged at the host's time.
@_spi(FixedExpiryValidationTime) import X509

extension CertificateChain {
    /// The result of a search for a path from a certificate to a trust anchor.
    package struct Validation: Sendable {
        /// Leaf first, with the anchor; `nil` if no path was found.
        package let path: [X509Certificate]?
        /// The reason why no path was found, as a clause for a message, such as "it expired on …"; `nil` if unknown.
        package let obstacle: String?
    }

    /// Validates a path from a certificate to a trust anchor (RFC 5280, section 6): signatures, validity, basic
    /// constraints, name constraints and critical extensions. Revocation is not checked.
    ///
    /// The number of issuers that are tried is bounded, so that the search takes well under a second for any input.
    /// Candidates that did not issue any certificate of the path, by their names, do not count.
    ///
    /// - Parameters:
    ///   - candidates: Certificates that the path may go through, in any order. Those that swift-certificates cannot
    ///     read
    ///     are left out.
    ///   - anchors: The trust anchors, roots or not; `nil` for the system trust store, whose file is then read.
    ///   - date: The time at which all certificates must be valid.
    /// - Throws: `unsupportedAlgorithm` for a leaf that swift-certificates cannot read, `userCancelled` if the task was
    ///   cancelled.
    package static func validation(
        of leaf: X509Certificate, among candidates: [X509Certificate], trusting anchors: [X509Certificate]?,
        at date: Date
    ) async throws(CertificateProviderError) -> Validation {
        try await validation(
            of: leaf, among: candidates, underAnchors: anchors.map(IssuerIndex.init), for: nil, at: date)
    }

    /// As ``validation(of:among:trusting:at:)``, with trust anchors that have been read for many searches.
    ///
    /// - Parameter usage: The side of TLS that the leaf is for: the extended key usage of each CA certificate of the path,
    ///   if present, must permit it. `nil` for other uses.
    package static func validation(
        of leaf: X509Certificate, among candidates: [X509Certificate], underAnchors anchors: IssuerIndex?,
        for usage: IdentityUsage?, at date: Date
    ) async throws(CertificateProviderError) -> Validation {
        let readable = try leaf.certificate()
        let budget = IssuerStore.SearchBudget()
        let roots = anchors.map { CertificateStore(custom: IssuerStore($0, budget)) } ?? .systemTrustRoots
        var verifier = Verifier(rootCertificates: roots) {
            RFC5280Policy(fixedExpiryValidationTime: date)
            LeavesToCaller()
            AuthoritiesPermit(usage: usage)
        }
        let others = IssuerIndex(candidates)
        let intermediates = CertificateStore(custom: IssuerStore(others, budget))
        let result = await verifier.validate(leaf: readable, intermediates: intermediates)
        if Task.isCancelled {
            throw CertificateProviderError(
                .userCancelled, "The validation of the certificate '\(leaf.subject)' was cancelled.")
        }
        guard case .validCertificate(let path) = result else {
            let all = candidates + (anchors?.certificates ?? [])
            return Validation(
                path: nil,
                obstacle: budget.isSpent
                    ? "its CA certificates certify each other in more combinations than the search limit allows"
                    : obstacle(
                        from: leaf, among: all, handled: verifier.policy.verifyingCriticalExtensions, usage, date))
        }
        let same = try path.map { certificate throws(CertificateProviderError) in
            if certificate == readable { return leaf }
            // As it was given, where it was: the same bytes.
            if let same = others.given(certificate) ?? anchors?.given(certificate) { return same }
            return try X509Certificate(certificate)
        }
        return Validation(path: same, obstacle: nil)
    }

    /// Returns a path from the leaf to a trust anchor: leaf first, with the anchor; `nil` if there is none.
    ///
    /// The path is validated by RFC 5280, section 6: signatures, validity, basic constraints, name constraints and critical
    /// extensions. Revocation is not checked. The number of issuers that are tried is bounded, so that the search takes well under
    /// a second for any input.
    ///
    /// - Parameters:
    ///   - candidates: Certificates that the path may go through, in any order. Those that swift-certificates cannot
    ///     read are left out.
    ///   - anchors: The trust anchors, roots or not; `nil` for the system trust store, whose file is then read.
    ///   - date: The time at which all certificates must be valid.
    /// - Throws: `unsupportedAlgorithm` for a leaf that swift-certificates cannot read, `userCancelled` if the task was
    ///   cancelled.
    public static func validated(
        from leaf: X509Certificate, among candidates: [X509Certificate], trusting anchors: [X509Certificate]?,
        at date: Date
    ) async throws(CertificateProviderError) -> [X509Certificate]? {
        try await validation(of: leaf, among: candidates, trusting: anchors, at: date).path
    }

    /// Returns the first problem of the chain that is built by names. The signatures are not verified again.
    private static func obstacle(
        from leaf: X509Certificate, among others: [X509Certificate], handled: [ASN1ObjectIdentifier],
        _ usage: IdentityUsage?, _ date: Date
    ) -> String? {
        for (index, certificate) in build(from: leaf, among: others).enumerated() {
            guard let readable = try? certificate.certificate() else {
                return "'\(certificate.subject)' in its chain cannot be used: \(certificate.reasonNotToBeRead)"
            }
            let name = name(certificate, index)
            if let unknown = readable.extensions.first(where: { $0.critical && !handled.contains($0.oid) }) {
                return "\(name) has the critical extension \(unknown.oid), which is not supported"
            }
            if let reason = certificate.reasonNotToBeValid(at: date) { return "\(name) \(reason)" }
            if index > 0, !certificate.isAuthority {
                return "\(name) is not a CA certificate and must not issue certificates"
            }
            if index > 0, let side = usage?.refusal(by: certificate.extendedKeyUsage) {
                return "\(name) does not permit \(side), by its extended key usage"
            }
        }
        return nil
    }
}

/// The extended key usage of a CA certificate restricts what it issues, as OpenSSL and BoringSSL see it. The caller
/// checks the leaf.
private struct AuthoritiesPermit: VerifierPolicy {
    let verifyingCriticalExtensions: [ASN1ObjectIdentifier] = []
    let usage: IdentityUsage?

    func chainMeetsPolicyRequirements(chain: UnverifiedCertificateChain) -> PolicyEvaluationResult {
        guard let usage else { return .meetsPolicy }
        do {
            for certificate in chain.dropFirst() {
                guard let side = usage.refusal(by: try certificate.extensions.extendedKeyUsage) else { continue }
                return .failsToMeetPolicy(reason: "a CA certificate does not permit \(side)")
            }
        } catch { return .failsToMeetPolicy(reason: "a CA certificate has a malformed extended key usage") }
        return .meetsPolicy
    }
}

/// Accepts critical extensions for the leaf's names and uses: callers check these themselves.
private struct LeavesToCaller: VerifierPolicy {
    let verifyingCriticalExtensions: [ASN1ObjectIdentifier] = [
        .X509ExtensionID.subjectAlternativeName, .X509ExtensionID.extendedKeyUsage,
    ]

    func chainMeetsPolicyRequirements(chain: UnverifiedCertificateChain) -> PolicyEvaluationResult { .meetsPolicy }
}

extension X509Certificate {
    init(_ certificate: X509.Certificate) throws(CertificateProviderError) {
        var serializer = DER.Serializer()
        do { try serializer.serialize(certificate) } catch {
            throw CertificateProviderError(.internal, "A certificate cannot be encoded as DER.", underlying: error)
        }
        try self.init(derRepresentation: serializer.serializedBytes)
    }
}
