import CertificateProviding
import FoundationEssentials
import X509

/// What a server has issued, once it is known to be what was asked for.
struct IssuedCertificate: Sendable {
    /// Leaf first, without a root.
    let chain: [X509Certificate]

    /// How far a server's clock may be ahead of ours.
    static let skew: TimeInterval = 300

    /// - Parameters:
    ///   - certificates: The server's answer, in any order.
    ///   - authorities: Whom the server, over a connection on which it was known, has named as its certificate
    ///     authorities.
    ///   - intermediates: What may lie between, beside what the answer holds: some servers name their root only.
    /// - Throws: `protocolError`, saying what is wrong; `unsupportedAlgorithm` for a key or signature that is not known
    ///   here; `userCancelled`. The identity that there is stays.
    init(
        _ certificates: [X509Certificate], for request: EnrolmentRequest, from authorities: [X509Certificate],
        through intermediates: [X509Certificate] = [], at now: Date
    ) async throws(CertificateProviderError) {
        if let current = request.current?.certificate, certificates.contains(current),
            !certificates.contains(where: { $0 != current && $0.publicKey.isSameKey(as: request.key.publicKey) })
        {
            throw Self.refusal("it is the one that was to be renewed")
        }
        // Some servers send it twice.
        let own = Set(certificates.filter { $0.publicKey.isSameKey(as: request.key.publicKey) })
        guard let leaf = own.first else { throw Self.refusal("it is for another key than the one that was sent") }
        guard own.count == 1 else {
            throw Self.refusal("there are \(own.count) for the key, and which is meant is not said")
        }
        try Self.check(leaf, for: request.names)
        guard leaf.notValidAfter > now else {
            throw Self.refusal("it has expired on \(leaf.notValidAfter.formatted(.iso8601))")
        }
        guard leaf.notValidBefore <= now + Self.skew else {
            throw Self.refusal(
                "it is not valid before \(leaf.notValidBefore.formatted(.iso8601)); is this host's clock right?")
        }
        guard leaf.permitsClientAuthentication else { throw Self.refusal("it is not for clients") }
        guard !leaf.isAuthority else { throw Self.refusal("it is one of an authority, which was not asked for") }
        guard try leaf.certificate().signatureAlgorithm != .sha1WithRSAEncryption else {
            throw Self.refusal("it is signed with SHA-1, which anybody with some money can forge")
        }
        let others = certificates.filter { $0 != leaf } + authorities + intermediates
        let date = max(now, leaf.notValidBefore)
        let validation = try await CertificateChain.validation(
            of: leaf, among: others, trusting: authorities, at: date)
        guard let path = validation.path else {
            throw Self.refusal(
                validation.obstacle ?? "'\(leaf.issuer)', who has issued it, is not among the server's authorities")
        }
        chain = try await Self.withoutRoot(path, among: others, at: date)
    }

    /// The server's authorities are trusted, and where a path ends with one of them need not be its root: those who only
    /// know the root need what is between.
    private static func withoutRoot(
        _ path: [X509Certificate], among others: [X509Certificate], at date: Date
    ) async throws(CertificateProviderError) -> [X509Certificate] {
        var path = path
        while let last = path.last, !last.isSelfIssued, path.count < maximumLength {
            let issuers = others.filter { $0.subjectDER == last.issuerDER && !path.contains($0) }
            let step = try await CertificateChain.validated(from: last, among: [], trusting: issuers, at: date)
            guard let issuer = step?.dropFirst().first else { break }
            path.append(issuer)
        }
        return path.count > 1 && path[path.count - 1].isSelfIssued ? path.dropLast() : path
    }

    /// Longer than any hierarchy in use.
    private static let maximumLength = 16

    /// Whether a certificate has the names that are configured.
    static func has(_ leaf: X509Certificate, _ names: CertificateRequest.Names) -> Bool {
        (try? check(leaf, for: names)) != nil
    }

    /// Whether it says what was asked for. More alternative names are no harm: some servers add their own.
    private static func check(
        _ leaf: X509Certificate, for names: CertificateRequest.Names
    ) throws(CertificateProviderError) {
        let wanted = names.subjectText
        guard wanted.isEmpty || leaf.subject.lowercased() == wanted.lowercased() else {
            throw refusal(
                "it is for '\(leaf.subject)', and '\(wanted)' was asked for; where that is right, set 'subject' to it")
        }
        let known = Set(leaf.subjectAlternativeNames.map { $0.lowercased() })
        if let missing = names.alternativeNames.first(where: { !known.contains($0.lowercased()) }) {
            throw refusal("it lacks the name '\(missing)'")
        }
    }

    private static func refusal(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(.protocolError, "The certificate that the server has issued is refused: \(reason).")
    }
}
