import CertificateProviding
import FoundationEssentials

/// Verifies the certificates that a peer has presented. Everything that it needs has been read: it does not block.
struct PeerVerifier: Sendable {
    enum Role: Sendable {
        case client
        /// A server at this DNS name or IP address.
        case server(String)
    }

    /// `nil` for the system trust store.
    var anchors: IssuerIndex?
    /// The name of the anchors in messages.
    var anchorsName: String
    /// The setting with the trust anchors, which messages say to check.
    var settingName: String?
    /// `nil` if revocation is not checked.
    var revocation: RevocationCheck?
    /// Which of the verified peers are admitted.
    var peers = PeerPolicy.everyVerifiedPeer

    /// The maximum size in bytes of the chain that a client presents. BoringSSL puts it into the session tickets of TLS 1.3, which SwiftNIO
    /// SSL cannot switch off, and ends the connection where that fails.
    static let maximumClientChainSize = 30_000

    /// Verifies a chain: that it leads to a trust anchor (RFC 5280, section 6), that it permits this use in TLS, that the leaf
    /// is valid for the server's name (RFC 9525), that no certificate is revoked, and that the peer is admitted. The chain is the leaf
    /// if a pin alone authenticates the peers.
    ///
    /// - Parameter shown: Leaf first, the others in any order.
    /// - Returns: The chain that was verified: leaf first, with the trust anchor.
    func verify(
        _ shown: [X509Certificate], as role: Role, at date: Date
    ) async throws(PeerRefusal) -> [X509Certificate] {
        guard let leaf = shown.first else { throw PeerRefusal(.malformed, role, "it presented none") }
        if case .client = role {
            let size = shown.reduce(0) { $0 + $1.derRepresentation.count }
            guard size <= Self.maximumClientChainSize else {
                throw PeerRefusal(
                    .tooLarge, role,
                    "its chain has \(size) bytes, and a server takes at most \(Self.maximumClientChainSize); leave certificates out that "
                        + "do not lead to the trust anchor")
            }
        }
        let status = leaf.status(at: date)
        guard status == .valid else {
            throw PeerRefusal(
                .expired, role,
                status == .expired
                    ? "it expired on \(leaf.notValidAfter.formatted(.iso8601)); have it renewed, or check this host's clock"
                    : "it is not valid before \(leaf.notValidBefore.formatted(.iso8601)); check this host's clock")
        }
        try checkUse(of: leaf, as: role)
        let path =
            peers.isPinOnly ? [leaf] : try await path(from: leaf, among: Array(shown.dropFirst()), as: role, at: date)
        guard peers.pins.match(path, isPinOnly: peers.isPinOnly) else { throw PeerRefusal(unpinned: leaf, role) }
        do throws(RevocationCheck.Refusal) { try revocation?.check(path, at: date) } catch {
            throw PeerRefusal(error.isRevoked ? .revoked : .unknownRevocation, role, error.clause)
        }
        guard let peer = TLSPeer(chain: path) else { throw PeerRefusal(.malformed, role, "it presented none") }
        guard peers.admits(peer) else {
            let hint =
                peer.names.count(where: \.isURI) > 1
                ? "; a certificate with several URIs matches no pattern with uri:spiffe:" : ""
            throw PeerRefusal(
                .notAdmitted, role,
                "none of its names is among those that are admitted; if it is to be admitted, add one to Peers.allow: "
                    + RefusedPeers.shortened("\(peer)", to: 600) + hint)
        }
        return path
    }

    private func checkUse(of leaf: X509Certificate, as role: Role) throws(PeerRefusal) {
        switch role {
        case .client:
            guard leaf.permits(.client) else {
                throw PeerRefusal(
                    .usage, role,
                    "'\(leaf.subject)' is not valid for TLS clients; its key usage must permit digitalSignature, and its "
                        + "extended key usage clientAuth")
            }
        case .server(let host):
            guard leaf.permits(.server) else {
                throw PeerRefusal(
                    .usage, role,
                    "'\(leaf.subject)' is not valid for TLS servers; its key usage must permit digitalSignature, and its "
                        + "extended key usage serverAuth")
            }
            guard leaf.isValid(forHost: host) else {
                let names = leaf.subjectAlternativeNames.map(\.description).joined(separator: ", ")
                throw PeerRefusal(
                    .name, role,
                    names.isEmpty
                        ? "it is not valid for '\(host)', but for no name at all; have one issued with that name"
                        : "it is not valid for '\(host)', but for \(names); connect by a name that it is valid for")
            }
        }
    }

    private func path(
        from leaf: X509Certificate, among others: [X509Certificate], as role: Role, at date: Date
    ) async throws(PeerRefusal) -> [X509Certificate] {
        // It is trusted itself, whether it may issue certificates or not.
        if let anchors, leaf.isSelfIssued, anchors.certificates.contains(leaf) { return [leaf] }
        let validation: CertificateChain.Validation
        do throws(ProviderError) {
            let use: IdentityUsage = if case .client = role { .client } else { .server }
            validation = try await CertificateChain.validation(
                of: leaf, among: others, underAnchors: anchors, for: use, at: date)
        } catch { throw PeerRefusal(.malformed, error) }
        guard let path = validation.path else {
            var reason =
                validation.obstacle ?? "'\(leaf.subject)', issued by '\(leaf.issuer)', does not lead to a trust anchor"
            if !leaf.isAuthority, let anchors, anchors.certificates.contains(leaf) {
                reason =
                    "the trust anchors have '\(leaf.subject)' itself, which is not a CA's and has not signed itself; add the "
                    + "certificate of '\(leaf.issuer)' in its place"
            }
            throw PeerRefusal(
                .untrusted, role,
                "\(reason) (trust anchors: \(anchorsName)); "
                    + (settingName.map { "check \($0)" } ?? "check the trust anchors"))
        }
        return path
    }
}
