import CertificateProviding

/// Why a peer is refused.
struct PeerRefusal: Error {
    /// The value of the dimension `reason` of the counter.
    enum Reason: String {
        /// Its certificate cannot be read, or it has none.
        case malformed
        /// Its chain is larger than a server takes.
        case tooLarge = "too_large"
        /// It is outside of its validity period.
        case expired
        /// It does not permit this use.
        case usage
        /// It is for other names than the server's.
        case name
        /// It does not lead to a trust anchor.
        case untrusted
        /// A certificate of its chain is revoked.
        case revoked
        /// A revocation list is missing or overdue.
        case unknownRevocation = "unknown_revocation"
        /// None of the pins matches.
        case notPinned = "not_pinned"
        /// Its names are not among those of ``PeerPolicy``.
        case notAdmitted = "not_admitted"
    }

    var reason: Reason
    var error: ProviderError

    init(_ reason: Reason, _ error: ProviderError) { (self.reason, self.error) = (reason, error) }

    /// - Parameter clause: Completes "… is not trusted: ".
    init(_ reason: Reason, _ role: PeerVerifier.Role, _ clause: String) {
        let peer = if case .client = role { "client" } else { "server" }
        self.init(
            reason, ProviderError(.serverNotTrusted, "The \(peer)'s certificate is not trusted: \(clause)."))
    }

    init(unpinned leaf: X509Certificate, _ role: PeerVerifier.Role) {
        self.init(
            .notPinned, role,
            "no pin matches it; the pin of '\(leaf.subject)' is \(CertificatePin.publicKeyText(of: leaf))")
    }
}
