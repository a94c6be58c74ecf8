public import FoundationEssentials
import SwiftASN1
@_spi(FixedExpiryValidationTime) import X509

extension CertificateChain {
    /// Validates a path from a certificate to a trust anchor (RFC 5280, section 6), without revocation: signatures,
    /// validity, basic constraints, name constraints, critical extensions.
    ///
    /// - Parameters:
    ///   - candidates: Certificates that the path may go through, in any order. Those that swift-certificates cannot
    ///     read are left out.
    ///   - anchors: Who is trusted, roots or not; `nil` for those that the host trusts, whose file is then read.
    ///   - date: The time that all must be valid at.
    /// - Returns: The path, leaf first, with the anchor; `nil` where there is none.
    /// - Throws: `unsupportedAlgorithm` for a leaf that swift-certificates cannot read.
    public static func validated(
        from leaf: X509Certificate, among candidates: [X509Certificate], trusting anchors: [X509Certificate]?,
        at date: Date
    ) async throws(CertificateProviderError) -> [X509Certificate]? {
        let roots = anchors.map { CertificateStore($0.compactMap { try? $0.certificate() }) } ?? .systemTrustRoots
        var verifier = Verifier(rootCertificates: roots) {
            RFC5280Policy(fixedExpiryValidationTime: date)
            LeavesToCaller()
        }
        let intermediates = CertificateStore(candidates.prefix(maximumCandidates).compactMap { try? $0.certificate() })
        let result = await verifier.validate(leaf: try leaf.certificate(), intermediates: intermediates)
        guard case .validCertificate(let path) = result else { return nil }
        let known = [leaf] + candidates + (anchors ?? [])
        return try path.map { certificate throws(CertificateProviderError) in
            // As it was given, where it was: the same bytes.
            if let same = known.first(where: { (try? $0.certificate()) == certificate }) { return same }
            return try X509Certificate(certificate)
        }
    }

    /// The number of paths through many certificates of one name grows without bound.
    private static let maximumCandidates = 64
}

/// What names and uses the leaf is for, callers look at themselves: that it says so in critical extensions is no
/// obstacle.
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
            throw CertificateProviderError(.internal, "A certificate cannot be written.", underlying: error)
        }
        try self.init(derRepresentation: serializer.serializedBytes)
    }
}
