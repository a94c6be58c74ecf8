import CertificateProviding
import FoundationEssentials

/// What a server has issued, once it is known to be what was asked for.
struct IssuedCertificate: Sendable {
    /// Leaf first, without a root.
    let chain: [X509Certificate]

    /// How far a server's clock may be ahead of ours.
    private static let skew: TimeInterval = 300

    /// - Parameters:
    ///   - certificates: The server's answer, in any order.
    ///   - authorities: Whom the server, over a connection on which it was known, has named as its certificate
    ///     authorities.
    /// - Throws: `protocolError`, saying what is wrong. The identity that there is stays.
    init(
        _ certificates: [X509Certificate], for request: EnrolmentRequest, from authorities: [X509Certificate],
        at now: Date
    ) async throws(CertificateProviderError) {
        if let current = request.current?.certificate, certificates.contains(current),
            !certificates.contains(where: { $0 != current && $0.publicKey.isSameKey(as: request.key.publicKey) })
        {
            throw Self.refusal("it is the one that was to be renewed")
        }
        let own = certificates.filter { $0.publicKey.isSameKey(as: request.key.publicKey) }
        guard let leaf = own.first else { throw Self.refusal("it is for another key than the one that was sent") }
        guard own.count == 1 else {
            throw Self.refusal("there are \(own.count) for the key, and which is meant is not said")
        }
        try Self.check(leaf, for: request.names)
        guard leaf.notValidAfter > now else { throw Self.refusal("it has expired on \(leaf.notValidAfter)") }
        guard leaf.notValidBefore <= now + Self.skew else {
            throw Self.refusal("it is not valid before \(leaf.notValidBefore); is this host's clock right?")
        }
        guard leaf.permitsClientAuthentication else { throw Self.refusal("it is not for clients") }
        let others = certificates.filter { $0 != leaf } + authorities
        let validated = try await CertificateChain.validated(
            from: leaf, among: others, trusting: authorities, at: max(now, leaf.notValidBefore))
        guard validated != nil else {
            throw Self.refusal("'\(leaf.issuer)', who has issued it, is not among the server's authorities")
        }
        let built = CertificateChain.build(from: leaf, among: others)
        chain = built.count > 1 && built[built.count - 1].isSelfIssued ? built.dropLast() : built
    }

    /// Whether it says what was asked for. More alternative names are no harm: some servers add their own.
    private static func check(
        _ leaf: X509Certificate, for names: CertificateRequest.Names
    ) throws(CertificateProviderError) {
        let wanted = names.subjectText
        guard wanted.isEmpty || leaf.subject.lowercased() == wanted.lowercased() else {
            throw refusal("it is for '\(leaf.subject)', and '\(wanted)' was asked for")
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
