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
        let readable = try leaf.certificate()
        let budget = IssuerStore.SearchBudget()
        let roots = anchors.map { CertificateStore(custom: IssuerStore($0, budget)) } ?? .systemTrustRoots
        var verifier = Verifier(rootCertificates: roots) {
            RFC5280Policy(fixedExpiryValidationTime: date)
            LeavesToCaller()
        }
        let intermediates = CertificateStore(custom: IssuerStore(candidates, budget))
        let result = await verifier.validate(leaf: readable, intermediates: intermediates)
        if Task.isCancelled {
            throw CertificateProviderError(
                .userCancelled, "The validation of the certificate '\(leaf.subject)' was cancelled.")
        }
        guard case .validCertificate(let path) = result else {
            let others = candidates + (anchors ?? [])
            return Validation(
                path: nil,
                obstacle: budget.isSpent
                    ? "its CA certificates certify each other in more combinations than the search limit allows"
                    : obstacle(from: leaf, among: others, handled: verifier.policy.verifyingCriticalExtensions, date))
        }
        let known = [leaf] + candidates + (anchors ?? [])
        let same = try path.map { certificate throws(CertificateProviderError) in
            // As it was given, where it was: the same bytes.
            if let same = known.first(where: { (try? $0.certificate()) == certificate }) { return same }
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
        from leaf: X509Certificate, among others: [X509Certificate], handled: [ASN1ObjectIdentifier], _ date: Date
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
        }
        return nil
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
