import CertificateProviding

/// A protocol by which a server issues certificates.
protocol EnrolmentProtocol: Sendable {
    /// Makes the connection that all goes over, where the server is known by that.
    ///
    /// - Throws: `protocolError` where the server is not trusted.
    func connect() async throws(CertificateProviderError)

    /// Asks the server for its certificates. Nothing that is secret has been sent by then.
    func authorities() async throws(CertificateProviderError) -> [X509Certificate]

    /// Returns those of a server's authorities that it is to be known by from now on; `nil` where nothing new is known.
    func lastingAuthorities(
        among authorities: [X509Certificate]
    ) async throws(CertificateProviderError) -> [X509Certificate]?

    /// What the server wants in requests, and what kind of key.
    func attributes() async throws(CertificateProviderError) -> CSRAttributes

    /// Asks for a certificate, or asks again for one that is pending.
    func enrol(_ request: EnrolmentRequest) async throws(CertificateProviderError) -> EnrolmentAnswer
}

/// What a certificate is wanted for.
struct EnrolmentRequest: Sendable {
    /// What it must have.
    let names: CertificateRequest.Names
    /// What it is asked for with.
    let content: RequestContent
    /// A request with that content and key and nothing else, DER: the same whenever it is sent.
    let csr: [UInt8]
    /// The key that the certificate is wanted for.
    let key: any IdentityKey
    /// The identity that is to be renewed.
    let current: Identity?
    /// Whether the server has this request already, and has not decided yet.
    let isPending: Bool
}

enum EnrolmentAnswer: Sendable {
    /// The certificates as the server sends them, in whatever order.
    case issued([X509Certificate])
    /// Certificates for a key that the server has made itself.
    case generated(ServerGeneratedKey)
    /// When to ask again, where the server says so.
    case pending(retryAfter: Duration?)
}
