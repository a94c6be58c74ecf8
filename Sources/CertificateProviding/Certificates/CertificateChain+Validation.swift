public import FoundationEssentials
import SwiftASN1
import X509

extension CertificateChain {
    /// The result of a search for a path from a certificate to a trust anchor.
    package struct Validation: Sendable {
        /// Leaf first, with the anchor; `nil` if no path was found.
        package let path: [X509Certificate]?
        /// The reason why no path was found, as a clause for a message, such as "it expired on …"; `nil` if unknown.
        package let obstacle: String?
    }

    /// Validates a path from a certificate to a trust anchor (RFC 5280, section 6): signatures, validity, basic
    /// constraints, key usage, name constraints and critical extensions. Revocation is not checked.
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
    ) async throws(ProviderError) -> Validation {
        try await validation(
            of: leaf, among: candidates, underAnchors: anchors.map(IssuerIndex.init), for: nil, at: date)
    }

    /// As ``validation(of:among:trusting:at:)``, with trust anchors that have been read for many searches.
    ///
    /// - Parameter usage: The side of TLS that the leaf is for: the extended key usage of each CA certificate of the path,
    ///   if present, must permit it, and none but the anchor may be signed with SHA-1. `nil` for other uses.
    package static func validation(
        of leaf: X509Certificate, among candidates: [X509Certificate], underAnchors anchors: IssuerIndex?,
        for usage: IdentityUsage?, at date: Date
    ) async throws(ProviderError) -> Validation {
        let readable = try leaf.certificate()
        let budget = IssuerStore.SearchBudget()
        let roots = anchors.map { CertificateStore(custom: IssuerStore($0, budget)) } ?? .systemTrustRoots
        var verifier = Verifier(rootCertificates: roots) {
            PathIsValid(usage: usage, date: date)
            LeavesToCaller()
        }
        let others = IssuerIndex(candidates)
        let intermediates = CertificateStore(custom: IssuerStore(others, budget))
        let result = await verifier.validate(leaf: readable, intermediates: intermediates)
        if Task.isCancelled {
            throw ProviderError(
                .userCancelled, "The validation of the certificate '\(leaf.subject)' was cancelled.")
        }
        let path: ValidatedCertificateChain
        switch result {
        case .validCertificate(let found): path = found
        case .couldNotValidate:
            let all = candidates + (anchors?.certificates ?? [])
            return Validation(
                path: nil,
                obstacle: budget.isSpent
                    ? "its CA certificates certify each other in more combinations than the search limit allows"
                    : obstacle(
                        from: leaf, among: all, handled: verifier.policy.verifyingCriticalExtensions, usage, date))
        }
        let same = try path.map { certificate throws(ProviderError) in
            if certificate == readable { return leaf }
            // As it was given, where it was: the same bytes.
            if let same = others.given(certificate) ?? anchors?.given(certificate) { return same }
            return try X509Certificate(certificate)
        }
        return Validation(path: same, obstacle: nil)
    }

    /// Returns a path from the leaf to a trust anchor: leaf first, with the anchor; `nil` if there is none.
    ///
    /// The path is validated by RFC 5280, section 6: signatures, validity, basic constraints, key usage, name constraints and
    /// critical extensions. Revocation is not checked. The number of issuers that are tried is bounded, so that the search takes well under
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
    ) async throws(ProviderError) -> [X509Certificate]? {
        try await validation(of: leaf, among: candidates, trusting: anchors, at: date).path
    }

    /// Returns the first problem of the chain that is built by names.
    private static func obstacle(
        from leaf: X509Certificate, among others: [X509Certificate], handled: [ASN1ObjectIdentifier],
        _ usage: IdentityUsage?, _ date: Date
    ) -> String? {
        let chain = build(from: leaf, among: others)
        var issued: [Certificate] = []
        for (index, certificate) in chain.enumerated() {
            guard let readable = try? certificate.certificate() else {
                return "'\(certificate.subject)' in its chain cannot be used: \(certificate.reasonNotToBeRead)"
            }
            let name = name(certificate, index)
            if let unknown = readable.extensions.first(where: { $0.critical && !handled.contains($0.oid) }) {
                return "\(name) has the critical extension \(unknown.oid), which is not supported"
            }
            if let reason = certificate.reasonNotToBeValid(at: date) { return "\(name) \(reason)" }
            // A path ends at its anchor, for which less is demanded, and this chain may go on.
            if usage != nil, index + 1 < chain.count, readable.isSignedWithSHA1 {
                return "\(name) is signed with SHA-1, which can be forged"
            }
            if index > 0, let reason = readable.reasonNotToIssue(issued, for: usage, isLast: index + 1 == chain.count) {
                return "\(name) \(reason)"
            }
            if let last = issued.last, !readable.publicKey.isValidSignature(last.signature, for: last) {
                return
                    "\(Self.name(chain[index - 1], index - 1)) is not signed by the key of '\(certificate.subject)', the CA that it names"
            }
            issued.append(readable)
        }
        // Everything else that the policy refuses has been looked for.
        return nil
    }
}

/// Validity, basic constraints, key usage and name constraints of a path, whose signatures are verified. The caller checks the use
/// of the leaf.
///
/// RFC5280Policy of swift-certificates is not used: it leaves out what browsers leave out, such as the key usage, and constraints for
/// mail addresses and directory names; and it does not see what a wildcard covers.
private struct PathIsValid: VerifierPolicy {
    let verifyingCriticalExtensions: [ASN1ObjectIdentifier] = [
        .X509ExtensionID.basicConstraints, .X509ExtensionID.nameConstraints, .X509ExtensionID.keyUsage,
    ]
    let usage: IdentityUsage?
    let date: Date

    func chainMeetsPolicyRequirements(chain: UnverifiedCertificateChain) -> PolicyEvaluationResult {
        for certificate in chain {
            guard certificate.notValidBefore <= date, date <= certificate.notValidAfter else {
                return .failsToMeetPolicy(reason: "a certificate is not valid at this time")
            }
            // Its extensions would count here, and not for others.
            guard certificate.version != .v1 || certificate.extensions.isEmpty else {
                return .failsToMeetPolicy(reason: "a certificate of version 1 has extensions")
            }
        }
        // An anchor that is presented itself is a CA's, or a root of version 1. The caller knows better where it trusts a leaf.
        if chain.count == 1, let only = chain.first, only.version != .v1, (try? only.isAuthority) != true {
            return .failsToMeetPolicy(reason: "a trust anchor is not a CA's")
        }
        if usage != nil, chain.dropLast().contains(where: \.isSignedWithSHA1) {
            return .failsToMeetPolicy(reason: "a certificate is signed with SHA-1")
        }
        for (index, certificate) in chain.enumerated().dropFirst() {
            let issued = chain.prefix(index)
            if let reason = certificate.reasonNotToIssue(issued, for: usage, isLast: index + 1 == chain.count) {
                return .failsToMeetPolicy(reason: "a CA certificate \(reason)")
            }
        }
        return .meetsPolicy
    }
}

extension Certificate {
    fileprivate var isSignedWithSHA1: Bool { signatureAlgorithm == .sha1WithRSAEncryption }

    /// The number of comparisons of names with name constraints that a path may need: a CA that is constrained chooses both.
    private static let maximumComparisons = 1 << 16

    /// Returns why the certificate may not have issued others, as a clause without subject; `nil` if it may.
    ///
    /// A CA certificate is one by its basic constraints, and its key usage, if present, permits to sign certificates (RFC 5280,
    /// section 6.1.4, k and n). The trust anchor may also be a root of version 1, which has no extensions. The extended key
    /// usage restricts what the CA issues, as OpenSSL and BoringSSL see it.
    ///
    /// - Parameters:
    ///   - issued: The path below it.
    ///   - isLast: Whether the path ends here.
    fileprivate func reasonNotToIssue(
        _ issued: some Collection<Certificate>, for usage: IdentityUsage?, isLast: Bool
    ) -> String? {
        do {
            let isRootOfVersion1 = version == .v1 && isLast && issuer == subject
            guard try isRootOfVersion1 || isAuthority else {
                return "is not a CA certificate and must not issue certificates"
            }
            if let keyUsage = try extensions.keyUsage, !keyUsage.keyCertSign {
                return "must not issue certificates, by its key usage"
            }
            if let side = usage?.refusal(by: try extensions.extendedKeyUsage) {
                return "does not permit \(side), by its extended key usage"
            }
            let below = issued.dropFirst().filter { $0.issuer != $0.subject }.count
            if case .isCertificateAuthority(let length?)? = try extensions.basicConstraints, below > length {
                return "permits a path length of \(length), and has \(below) CA certificates below it"
            }
            guard let constraints = try extensions.nameConstraints else { return nil }
            // The names of a CA that certifies a key of its own are permitted (RFC 5280, section 6.1.3, b and c).
            let named = issued.enumerated().filter { $0.offset == 0 || $0.element.issuer != $0.element.subject }
            let names = named.flatMap(\.element.constrainedNames)
            let (permitted, excluded) = (constraints.permittedSubtrees, constraints.excludedSubtrees)
            let count = permitted.count + excluded.count
            guard names.count.multipliedReportingOverflow(by: count).partialValue <= Self.maximumComparisons else {
                return "has \(count) name constraints for \(names.count) names, more than can be compared"
            }
            return NameConstraint.refusal(
                of: names, permitted: permitted.map(NameConstraint.init), excluded: excluded.map(NameConstraint.init))
        } catch { return "has a malformed extension" }
    }

    fileprivate var isAuthority: Bool {
        get throws {
            if case .isCertificateAuthority? = try extensions.basicConstraints { true } else { false }
        }
    }

    /// The names that constraints apply to: the alternative names, the subject, and, where no alternative name is a mail address,
    /// those of the subject (RFC 5280, section 4.2.1.10).
    private var constrainedNames: [AlternativeName] {
        var names =
            extensions[oid: .X509ExtensionID.subjectAlternativeName].map { AlternativeName.names(derEncoded: $0.value) }
            ?? []
        let hasMailAddress = names.contains { if case .email = $0 { true } else { false } }
        if !subject.isEmpty { names.append(.directory(subject)) }
        guard !hasMailAddress else { return names }
        let emailAddress: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 1]
        let attributes = subject.flatMap { relativeName in relativeName.filter { $0.type == emailAddress } }
        return names + attributes.map { .email(DistinguishedName.text(of: $0.value) ?? "") }
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
    init(_ certificate: X509.Certificate) throws(ProviderError) {
        var serializer = DER.Serializer()
        do { try serializer.serialize(certificate) } catch {
            throw ProviderError(.internal, "A certificate cannot be encoded as DER.", underlying: error)
        }
        try self.init(derRepresentation: serializer.serializedBytes)
    }
}
