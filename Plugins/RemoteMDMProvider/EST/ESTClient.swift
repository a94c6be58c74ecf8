import CertificateProviding
import Enrolment
import FoundationEssentials
import NIOHTTP1
import ProviderTransport
import SwiftASN1
import X509

/// Enrolment over Secure Transport (RFC 7030, RFC 8951).
struct ESTClient: Sendable {
    let session: ServerSession
    /// `/.well-known/est`, and the label if there is one.
    let base: String
    let now: @Sendable () -> Date
    /// Whether the server makes the key (section 4.4). The key that signs the request is then not certified.
    let asksForKey: Bool
    private let knownAttributes = CachedAnswer<CSRAttributes>()

    /// - Parameter server: The server's URL, with the label as its path.
    init(
        _ server: ServerURL, session: ServerSession, now: @escaping @Sendable () -> Date, asksForKey: Bool = false
    ) {
        let path = server.path.split(separator: "/")
        let wellKnown: [Substring] = [".well-known", "est"]
        base = "/" + ((path.starts(with: wellKnown) ? [] : wellKnown) + path).joined(separator: "/")
        self.session = session
        self.now = now
        self.asksForKey = asksForKey
    }

    /// Returns the server's CA certificates. No secret has been sent up to then.
    func authorities() async throws(ProviderError) -> [X509Certificate] {
        let response = try await get("cacerts", accepting: "application/pkcs7-mime")
        guard response.status == 200 else {
            throw response.refusal(of: "the request for its certificates", by: session.server, at: now())
        }
        try response.requireType("application/pkcs7-mime", "certificates")
        return try CertificateBag.certificates(in: Base64Body.decode(response.body))
    }

    /// Returns the authorities that authenticate the server from now on.
    func lastingAuthorities(among authorities: [X509Certificate]) -> [X509Certificate] {
        Roots.all(in: authorities, at: now())
    }

    /// Returns the server's CSR attributes; empty if it names none (section 4.5.2).
    func attributes() async throws(ProviderError) -> CSRAttributes {
        try await knownAttributes { () async throws(ProviderError) in try await fetchAttributes() }
    }

    private func fetchAttributes() async throws(ProviderError) -> CSRAttributes {
        let response = try await get("csrattrs", accepting: "application/csrattrs")
        switch response.status {
        case 200:
            guard !response.body.isEmpty else { return CSRAttributes() }
            try response.requireType("application/csrattrs", "CSR attributes")
            return try CSRAttributes(derRepresentation: Base64Body.decode(response.body))
        case 202, 204, 404, 405, 501: return CSRAttributes()
        // Some servers authenticate only the request for a certificate. Refused credentials are not sent again.
        case 401, 403:
            if await !session.hasSentPassword, await !session.hasRefusedCredentials { return CSRAttributes() }
            throw response.refusal(of: "the request for its CSR attributes", by: session.server, at: now())
        default: throw response.refusal(of: "the request for its CSR attributes", by: session.server, at: now())
        }
    }

    /// Requests a certificate, or asks again for a pending one.
    func enrol(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        let wishes = try await attributes()
        let issues = request.current == nil ? "simpleenroll" : "simplereenroll"
        let http = HTTPRequest(
            method: .post, target: "\(base)/\(asksForKey ? "serverkeygen" : issues)",
            headers: [
                "Content-Type": "application/pkcs10", "Content-Transfer-Encoding": "base64",
                "Accept": asksForKey ? "multipart/mixed" : "application/pkcs7-mime",
            ])
        let response = try await session.response(to: http) { connection throws(ProviderError) in
            guard wishes.wantsBinding else { return Base64Body.encode(request.csr.derRepresentation) }
            let proof = try Self.proof(of: connection)
            let content = RequestContent(names: request.names, usage: request.usage, wishes: wishes)
            return Base64Body.encode(try await content.signed(with: request.key, attributes: [proof]).derRepresentation)
        }
        switch response.status {
        // Some servers call it created.
        case 200 where asksForKey, 201 where asksForKey:
            let made = try ServerGeneratedKey(response)
            return .generated(privateKey: made.privateKey, made.certificates)
        case 200, 201:
            try response.requireType("application/pkcs7-mime", "certificates")
            return .issued(try CertificateBag.certificates(in: Base64Body.decode(response.body)))
        case 202: return .pending(retryAfter: response.retryAfter(now: now()))
        default: throw response.refusal(of: "the request for a certificate", by: session.server, at: now())
        }
    }

    private func get(_ operation: String, accepting type: String) async throws(ProviderError) -> HTTPResponse {
        try await session.response(
            to: HTTPRequest(target: "\(base)/\(operation)", headers: ["Accept": type], isRepeatable: true))
    }

    /// Returns the challenge password with the channel binding (section 3.5), which proves that the holder of the key
    /// is at this end of the connection.
    private static func proof(
        of connection: ServerConnection
    ) throws(ProviderError) -> CertificateSigningRequest.Attribute {
        guard let binding = connection.channelBinding else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "\(connection.server.authority) wants a request that is bound to the TLS connection (RFC 7030, "
                    + "section 3.5), but this connection has no channel binding; enable TLS 1.3 there.")
        }
        let text = Data(binding).base64EncodedString()
        do {
            return try CertificateSigningRequest.Attribute(
                oid: CSRAttributes.challengePassword, values: [ASN1Any(erasing: ASN1PrintableString(text))])
        } catch {
            throw ProviderError(.internal, "The channel binding cannot be encoded.", underlying: error)
        }
    }
}

extension HTTPResponse {
    /// Checks the content type.
    ///
    /// - Throws: `protocolError` for another type, such as that of a captive portal's page.
    func requireType(_ type: String, _ content: String) throws(ProviderError) {
        guard mediaType == type else {
            let actual = headers.first(name: "Content-Type") ?? ""
            throw ProviderError(
                .protocolError,
                "The server's answer is of type '\(excerpt(of: actual, limit: 80))', but \(content) (\(type)) are expected; check "
                    + "'url'.")
        }
    }
}
