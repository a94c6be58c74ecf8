import CertificateProviding

/// Where a SCEP server (RFC 8894) is, and by what its CA is known.
struct SCEPConfiguration: Sendable {
    /// The path of the server's program, and a query where it has one; percent-encoded.
    let target: String
    /// Which of the server's CAs is meant, where it has several.
    let authorityIdentifier: String?
    /// The SHA-256 digest of the CA's certificate.
    let fingerprint: [UInt8]?
    /// What the CA's certificate must lead to. Where there is a fingerprint too, both must fit.
    let trustAnchors: [X509Certificate]
    /// What the CA may have become since: announced by it, or confirmed by a person.
    let known: [X509Certificate]
    /// Asks a person, where nothing else says which CA to trust.
    let confirm: Confirmation?
    /// Whether requests may be encrypted with triple DES where the server does not know AES.
    let permitsTripleDES: Bool

    /// Returns where the person has confirmed that these are the right ones, and throws otherwise.
    typealias Confirmation = @Sendable ([X509Certificate]) async throws(CertificateProviderError) -> Void

    /// - Parameter fingerprint: The SHA-256 digest.
    /// - Throws: `configurationInvalid`.
    init(
        target: String, authorityIdentifier: String? = nil, fingerprint: [UInt8]? = nil,
        trustAnchors: [X509Certificate] = [], known: [X509Certificate] = [], confirm: Confirmation? = nil,
        permitsTripleDES: Bool = false
    ) throws(CertificateProviderError) {
        guard fingerprint != nil || !(trustAnchors + known).isEmpty || confirm != nil else {
            throw CertificateProviderError(
                .configurationInvalid,
                "Nothing says which CA to trust; give the SHA-256 fingerprint of its certificate, or a trust anchor.")
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
