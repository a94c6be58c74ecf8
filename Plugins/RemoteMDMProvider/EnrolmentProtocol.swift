import CertificateProviding

/// An enrolment protocol: EST or SCEP.
protocol EnrolmentProtocol: Sendable {
    /// Opens the connection for all requests, if the protocol authenticates the server by its connection.
    ///
    /// - Throws: `serverNotTrusted`.
    func connect() async throws(CertificateProviderError)

    /// Returns the server's CA certificates. No secret has been sent up to then.
    func authorities() async throws(CertificateProviderError) -> [X509Certificate]

    /// Returns the authorities that authenticate the server from now on; `nil` to leave them unchanged.
    func lastingAuthorities(
        among authorities: [X509Certificate]
    ) async throws(CertificateProviderError) -> [X509Certificate]?

    /// Returns the CSR attributes that the server wants, and the key type.
    func attributes() async throws(CertificateProviderError) -> CSRAttributes

    /// Requests a certificate, or asks again for a pending one.
    func enrol(_ request: EnrolmentRequest) async throws(CertificateProviderError) -> EnrolmentAnswer
}

/// The input of a request for a certificate.
struct EnrolmentRequest: Sendable {
    /// The names that the certificate must have.
    let names: CertificateRequest.Names
    /// The content of the certificate request.
    let content: RequestContent
    /// A certificate request with that content and key and nothing else, DER: the same in every attempt.
    let csr: [UInt8]
    /// The key to be certified.
    let key: any IdentityKey
    /// The identity to be renewed; `nil` for a first enrolment.
    let current: Identity?
    /// Whether the server has this request and has not decided yet.
    let isPending: Bool
}

/// The server's answer to a request for a certificate.
enum EnrolmentAnswer: Sendable {
    /// The certificates as the server sends them, in any order.
    case issued([X509Certificate])
    /// Certificates for a key that the server has made itself.
    case generated(ServerGeneratedKey)
    /// The server has not decided. It may name the delay before the next request.
    case pending(retryAfter: Duration?)
}
