import CertificateProviding

/// The URL path of a SCEP server (RFC 8894), and how to authenticate its CA.
struct SCEPConfiguration: Sendable {
    /// The path of the SCEP service, with its query if it has one; percent-encoded.
    let target: String
    /// The identifier of the CA, if the server has several.
    let authorityIdentifier: String?
    /// The CA fingerprint: the SHA-256 hash of the CA's certificate.
    let fingerprint: [UInt8]?
    /// The CA's certificate must lead to one of these. If there is a fingerprint as well, both must match.
    let trustAnchors: [X509Certificate]
    /// The CA certificates that the CA has announced as its successors, or that the user has confirmed.
    let known: [X509Certificate]
    /// Asks the user to confirm the CA, if nothing else authenticates it.
    let confirm: Confirmation?
    /// Whether requests may be encrypted with triple DES where the server does not know AES.
    let permitsTripleDES: Bool

    /// Returns if the user confirms the certificates, and throws otherwise.
    typealias Confirmation = @Sendable ([X509Certificate]) async throws(ProviderError) -> Void

    /// - Parameter fingerprint: The SHA-256 hash.
    /// - Throws: `configurationInvalid`.
    init(
        target: String, authorityIdentifier: String? = nil, fingerprint: [UInt8]? = nil,
        trustAnchors: [X509Certificate] = [], known: [X509Certificate] = [], confirm: Confirmation? = nil,
        permitsTripleDES: Bool = false
    ) throws(ProviderError) {
        guard fingerprint != nil || !(trustAnchors + known).isEmpty || confirm != nil else {
            throw ProviderError(
                .configurationInvalid,
                "No CA is configured to be trusted; set 'ca-fingerprint' to the SHA-256 hash of its certificate, or "
                    + "set 'trust-anchors'.")
        }
        self.target = target
        self.authorityIdentifier = authorityIdentifier
        self.fingerprint = fingerprint
        self.trustAnchors = trustAnchors
        self.known = known
        self.confirm = confirm
        self.permitsTripleDES = permitsTripleDES
    }
}
