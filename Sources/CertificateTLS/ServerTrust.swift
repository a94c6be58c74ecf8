public import CertificateProviding
package import FoundationEssentials

/// The criteria by which a client authenticates a server: trust anchors, pins, or both.
public struct ServerTrust: Sendable {
    /// The trust anchors for the server.
    public var trustAnchors: TrustAnchors
    /// The pins. One of them must match a certificate of the server's chain. Empty: no pins are required.
    public var pins: [CertificatePin]
    /// Whether a matching pin is sufficient, without checks of chain, name and validity: for appliances with
    /// self-signed certificates. Without pins, no server is trusted then.
    package var isPinOnly: Bool
    /// The SHA-256 hash of a CA certificate that the server presents: it is the trust anchor, in place of ``trustAnchors``. `nil` by
    /// default.
    public var presentedAuthority: [UInt8]?
    /// The setting with the trust anchors, such as `'trust-anchors'`: messages say to change it. `nil` if there is none.
    package var settingName: String?

    /// Creates the criteria.
    public init(trustAnchors: TrustAnchors, pins: [CertificatePin] = [], isPinOnly: Bool = false) {
        self.trustAnchors = trustAnchors
        self.pins = pins
        self.isPinOnly = isPinOnly
    }

    /// Verifies the certificates that a server has presented. Blocks on the file of the trust anchors only.
    ///
    /// The chain must lead to a trust anchor (RFC 5280, section 6), and the leaf must be valid for the name or address
    /// (RFC 9525; the common name is ignored) and for servers. With ``isPinOnly`` a pin must match the leaf: the
    /// handshake does not prove that the server has the keys of the other certificates.
    ///
    /// - Parameters:
    ///   - chain: Leaf first, the others in any order.
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - date: The time at which the certificates must be valid.
    /// - Throws: `serverNotTrusted` with the problem of the chain; `userCancelled`; errors of the trust anchors.
    package func verify(
        _ chain: [X509Certificate], for host: String, at date: Date
    ) async throws(ProviderError) {
        guard let leaf = chain.first else { throw refusal("the server presented none") }
        let trusted = isPinOnly ? chain : try await verifyPublicly(chain, for: host, at: date)
        guard pins.match(trusted, isPinOnly: isPinOnly) else { throw PeerRefusal(unpinned: leaf, .server(host)).error }
    }

    /// Verifies the chain without pins.
    ///
    /// - Returns: The chain that leads to a trust anchor.
    private func verifyPublicly(
        _ chain: [X509Certificate], for host: String, at date: Date
    ) async throws(ProviderError) -> [X509Certificate] {
        var trustAnchors = trustAnchors
        if let presentedAuthority {
            guard let anchor = chain.first(where: { $0.isAuthority && $0.sha256Fingerprint == presentedAuthority })
            else {
                throw refusal(
                    """
                    none of the \(chain.count) certificates that the server presents is the CA with the fingerprint \
                    \(DisplayText.hexadecimal(presentedAuthority)). Few servers present their root: use the fingerprint of the \
                    CA below it, or set \(settingName ?? "the trust anchors") to a file with the root
                    """)
            }
            trustAnchors = .certificates([anchor]).named("the CA with the configured fingerprint")
        }
        let anchors = try trustAnchors.certificates().map(IssuerIndex.init)
        let verifier = PeerVerifier(anchors: anchors, anchorsName: trustAnchors.name, settingName: settingName)
        do throws(PeerRefusal) { return try await verifier.verify(chain, as: .server(host), at: date) } catch {
            throw error.error
        }
    }

    private func refusal(_ reason: String) -> ProviderError {
        ProviderError(.serverNotTrusted, "The server's certificate is not trusted: \(reason).")
    }
}
