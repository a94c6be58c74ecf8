public import CertificateProviding
public import FoundationEssentials

/// Whom a client takes for the server it wants to talk to: trust anchors, pins, or both.
public struct ServerTrust: Sendable {
    /// Who may have certified the server.
    public var trustAnchors: TrustAnchors
    /// One of them must match a certificate that the server shows. Empty: not looked at.
    public var pins: [CertificatePin]
    /// Whether a pin is enough, and chain, name and validity are not looked at: for appliances with certificates that
    /// they have signed themselves. Without pins nothing is trusted then.
    public var isPinOnly: Bool

    public init(trustAnchors: TrustAnchors, pins: [CertificatePin] = [], isPinOnly: Bool = false) {
        self.trustAnchors = trustAnchors
        self.pins = pins
        self.isPinOnly = isPinOnly
    }

    /// Verifies what a server has shown. Does not block but on the trust anchors' file.
    ///
    /// A chain leads to a trust anchor (RFC 5280, section 6), its leaf is for the name or address (RFC 9525; not the
    /// common name) and for servers. With ``isPinOnly`` a pin must match the leaf: that the server has the keys of
    /// other certificates in its chain is not proven by the handshake.
    ///
    /// - Parameters:
    ///   - chain: Leaf first, the others in any order.
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - date: The time that the certificates must be valid at.
    /// - Throws: `protocolError`, saying what is wrong with the chain; `userCancelled`; what the trust anchors report.
    public func verify(
        _ chain: [X509Certificate], for host: String, at date: Date
    ) async throws(CertificateProviderError) {
        guard let leaf = chain.first else { throw refusal("it has none") }
        if isPinOnly {
            guard pins.contains(where: { $0.matches(leaf) }) else { throw pinMismatch(leaf) }
            return
        }
        let trusted = try await verifyPublicly(chain, leaf, for: host, at: date)
        if !pins.isEmpty && !trusted.contains(where: { one in pins.contains { $0.matches(one) } }) {
            throw pinMismatch(leaf)
        }
    }

    /// - Returns: The chain that leads to a trust anchor.
    private func verifyPublicly(
        _ chain: [X509Certificate], _ leaf: X509Certificate, for host: String, at date: Date
    ) async throws(CertificateProviderError) -> [X509Certificate] {
        let status = leaf.status(at: date)
        guard status == .valid else {
            throw refusal(
                status == .expired
                    ? "it has expired on \(leaf.notValidAfter.formatted(.iso8601))"
                    : "it is not valid before \(leaf.notValidBefore.formatted(.iso8601)); is the clock right?")
        }
        guard leaf.permitsServerAuthentication else { throw refusal("'\(leaf.subject)' is not for servers") }
        guard leaf.isValid(forHost: host) else {
            let names = leaf.subjectAlternativeNames.joined(separator: ", ")
            throw refusal("it is not for '\(host)' but for \(names.isEmpty ? "no name at all" : names)")
        }
        let validation = try await CertificateChain.validation(
            of: leaf, among: Array(chain.dropFirst()), trusting: trustAnchors.certificates(), at: date)
        guard let trusted = validation.path else {
            throw refusal(
                validation.obstacle ?? "'\(leaf.subject)', issued by '\(leaf.issuer)', leads to no trust anchor")
        }
        return trusted
    }

    private func refusal(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(.protocolError, "The server's certificate is not trusted: \(reason).")
    }

    private func pinMismatch(_ leaf: X509Certificate) -> CertificateProviderError {
        refusal(
            "no pin matches it; that of '\(leaf.subject)' would be \(CertificatePin.publicKeyText(of: leaf))")
    }
}
