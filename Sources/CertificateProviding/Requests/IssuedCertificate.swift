public import FoundationEssentials
import X509

/// An issued chain that was checked against its request, for providers that enrol with a server.
public struct IssuedCertificate: Sendable {
    /// Leaf first, without a root.
    public let chain: [X509Certificate]
    /// Whether the leaf has the requested subject. Some servers drop it, or have one of their own: the certificate is as good
    /// for a key that the server has not made.
    public let hasRequestedSubject: Bool

    /// How far a server's clock may be ahead of ours.
    public static let clockSkew: TimeInterval = 300

    /// Checks an answer: the leaf is for the key, has the alternative names and any subject, is valid now, permits
    /// the usage, and leads to an authority.
    /// Blocks for no I/O.
    ///
    /// - Parameters:
    ///   - certificates: The server's answer, in any order.
    ///   - key: The key that the request was signed with.
    ///   - names: The requested names. The certificate may have more alternative names, and another subject
    ///     (``hasRequestedSubject``), but some name.
    ///   - usage: The side of TLS that the certificate and its CA certificates must permit.
    ///   - current: The certificate to be renewed; `nil` for a first enrolment.
    ///   - authorities: The CA certificates that the server has sent over an authenticated connection.
    ///   - intermediates: Further certificates for the chain, besides those in the answer: some servers send only
    ///     their root.
    /// - Throws: `protocolError` with the reason; `unsupportedAlgorithm` for an unknown key or signature algorithm;
    ///   `userCancelled`. The existing identity stays.
    public init(
        _ certificates: [X509Certificate], for key: PublicKeyInfo, _ names: CertificateRequest.Names,
        usage: IdentityUsage = .client, renewing current: X509Certificate? = nil, from authorities: [X509Certificate],
        through intermediates: [X509Certificate] = [], at now: Date
    ) async throws(ProviderError) {
        if let current, certificates.contains(current),
            !certificates.contains(where: { $0 != current && $0.publicKey == key })
        {
            throw Self.refusal("it is the certificate that was to be renewed")
        }
        // Some servers send it twice.
        let own = Set(certificates.filter { $0.publicKey == key })
        guard let leaf = own.first else { throw Self.refusal("it is for another key than that of the request") }
        guard own.count == 1 else {
            throw Self.refusal("the answer contains \(own.count) certificates for the key, but one is expected")
        }
        try Self.check(leaf, for: names)
        hasRequestedSubject = Self.hasSubject(leaf, of: names)
        guard leaf.notValidAfter > now else {
            throw Self.refusal("it expired on \(leaf.notValidAfter.formatted(.iso8601))")
        }
        guard leaf.notValidBefore <= now + Self.clockSkew else {
            throw Self.refusal(
                "it is not valid before \(leaf.notValidBefore.formatted(.iso8601)); check this host's clock")
        }
        guard leaf.keyUsage?.digitalSignature ?? true else {
            throw Self.refusal("its key usage does not permit digital signatures")
        }
        guard !leaf.isAuthority else { throw Self.refusal("it is a CA certificate, which was not requested") }
        guard try leaf.certificate().signatureAlgorithm != .sha1WithRSAEncryption else {
            throw Self.refusal("it is signed with SHA-1, which can be forged; configure the server for SHA-256")
        }
        let others = certificates.filter { $0 != leaf } + authorities + intermediates
        let date = max(now, leaf.notValidBefore)
        let validation = try await CertificateChain.validation(
            of: leaf, among: others, trusting: authorities, at: date)
        guard let path = validation.path else {
            throw Self.refusal(
                validation.obstacle ?? "its issuer '\(leaf.issuer)' is not among the server's authorities")
        }
        let whole = try await Self.completed(path, among: others, at: date)
        // The path is valid; its extended key usages are left to check, the root's too.
        if let obstacle = CertificateChain.obstacle(in: whole, for: usage, at: date) { throw Self.refusal(obstacle) }
        chain = CertificateChain.withoutRoot(whole)
    }

    /// Completes a path up to its root. All of the server's authorities are trusted, so the path may end below the root;
    /// peers that know only the root need the certificates in between.
    private static func completed(
        _ path: [X509Certificate], among others: [X509Certificate], at date: Date
    ) async throws(ProviderError) -> [X509Certificate] {
        var path = path
        while let last = path.last, !last.isRoot, path.count < CertificateChain.maximumLength {
            let issuers = others.filter { $0.subjectName == last.issuerName && !path.contains($0) }
            let step = try await CertificateChain.validated(from: last, among: [], trusting: issuers, at: date)
            guard let issuer = step?.dropFirst().first else { break }
            path.append(issuer)
        }
        return path
    }

    /// Whether a certificate has the subject of the names, without regard to case; true if they have none.
    public static func hasSubject(_ leaf: X509Certificate, of names: CertificateRequest.Names) -> Bool {
        names.subjectText.isEmpty || leaf.subject.lowercased() == names.subjectText.lowercased()
    }

    /// Whether a certificate has the alternative names, and perhaps more.
    public static func hasAlternativeNames(_ leaf: X509Certificate, of names: CertificateRequest.Names) -> Bool {
        missingName(leaf, names) == nil
    }

    private static func missingName(_ leaf: X509Certificate, _ names: CertificateRequest.Names) -> AlternativeName? {
        let known = Set(leaf.subjectAlternativeNames.map(\.normalized))
        return names.alternativeNames.first { !known.contains($0.normalized) }
    }

    /// Checks that a certificate has a name, and the requested alternative names. More of them are accepted: some servers add
    /// their own.
    private static func check(
        _ leaf: X509Certificate, for names: CertificateRequest.Names
    ) throws(ProviderError) {
        if let missing = missingName(leaf, names) { throw refusal("it lacks the name '\(missing)'") }
        guard !leaf.subject.isEmpty || !leaf.subjectAlternativeNames.isEmpty else {
            throw refusal(
                "it has no name: the server has dropped the subject '\(names.subjectText)'; set 'subject-alternative-names' too"
            )
        }
    }

    private static func refusal(_ reason: String) -> ProviderError {
        ProviderError(.protocolError, "The certificate that the server has issued is refused: \(reason).")
    }
}
