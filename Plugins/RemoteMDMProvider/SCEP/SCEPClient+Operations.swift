import CertificateProviding
import FoundationEssentials
import Logging
import NIOHTTP1
import OpenSSLSupport
import ServerTransport

/// The operations of a SCEP server (RFC 8894, section 4), each one HTTP request.
extension SCEPClient {
    /// What servers and those between take of a URL, at the least.
    private static let maximumTarget = 8000

    /// GetCACert, and what can be trusted of it.
    func fetchAuthorities() async throws(CertificateProviderError) -> SCEPAuthorities {
        let response = try await send(.get, "GetCACert", message: configuration.authorityIdentifier)
        try check(response, of: "GetCACert")
        // One certificate, or a bag. The content type should tell, and often does not.
        let certificates =
            if let single = try? X509Certificate(derRepresentation: response.body) {
                [single]
            } else {
                try CertificateBag.certificates(in: response.body)
            }
        return try await SCEPAuthorities(certificates, configuration: configuration, now: now())
    }

    /// GetCACaps. A server that does not answer it, or not soon, has no capabilities (RFC 8894, section 3.5.1).
    func fetchCapabilities() async throws(CertificateProviderError) -> SCEPCapabilities {
        do {
            let response = try await send(.get, "GetCACaps", message: configuration.authorityIdentifier)
            try check(response, of: "GetCACaps")
            return SCEPCapabilities(text: String(decoding: response.body, as: UTF8.self))
        } catch  where error.code != .userCancelled {
            logger.notice("the SCEP server does not tell its capabilities", metadata: ["error": "\(error)"])
            return .none
        }
    }

    /// GetNextCACert: the certificates that the CA will issue with, signed by the CA that there is now.
    ///
    /// They will be trusted by themselves, and so who signs must be that too: a CA that is trusted because it leads to
    /// an anchor cannot make another one. Where anchors are configured besides the CA's fingerprint, its successor must
    /// lead to them as it does itself.
    ///
    /// - Throws: `notFound` for a server that has none, `protocolError` for those that nobody speaks for.
    func nextAuthorities() async throws(CertificateProviderError) -> [X509Certificate] {
        let current = try await currentAuthorities()
        guard try await capabilities().hasNextAuthority else {
            throw CertificateProviderError(.notFound, "The SCEP server announces no next CA.")
        }
        let response = try await send(.get, "GetNextCACert", message: configuration.authorityIdentifier)
        try check(response, of: "GetNextCACert")
        let signed: CMSSignedContent
        do throws(OpenSSLError) {
            signed = try library.verifySignedData(response.body, signers: current.roots.map(\.derRepresentation))
        } catch {
            throw CertificateProviderError(
                .protocolError,
                "The SCEP server's next CA is not signed by the present one, or by one that is only trusted as another's.",
                underlying: error)
        }
        // Unlike a reply, this makes trust.
        guard ["SHA256", "SHA384", "SHA512"].contains(signed.digest) else {
            throw CertificateProviderError(
                .unsupportedAlgorithm, "The SCEP server's next CA is signed with \(signed.digest); have it use SHA-256."
            )
        }
        return try await acceptable(CertificateBag.certificates(in: signed.content), signed: response.body, current)
    }

    private func acceptable(
        _ next: [X509Certificate], signed announcement: [UInt8], _ current: SCEPAuthorities
    ) async throws(CertificateProviderError) -> [X509Certificate] {
        let anchors = configuration.trustAnchors
        let speakers = current.roots.filter((anchors + configuration.known).contains)
        let isByAnchor =
            (try? library.verifySignedData(announcement, signers: speakers.map(\.derRepresentation))) != nil
        guard !anchors.isEmpty, !isByAnchor else { return next }
        var leading: [X509Certificate] = []
        for one in next where try await SCEPAuthorities.leads(one, to: anchors, through: next, now()) {
            leading.append(one)
        }
        guard !leading.isEmpty else {
            throw CertificateProviderError(
                .protocolError, "The SCEP server's next CA leads to no trust anchor; add it to 'trust-anchors'.")
        }
        return leading
    }

    /// PKIOperation.
    func performOperation(
        _ message: [UInt8], canPost: Bool
    ) async throws(CertificateProviderError) -> HTTPResponse {
        let response: HTTPResponse
        if canPost {
            response = try await send(.post, "PKIOperation", body: message)
        } else {
            response = try await send(.get, "PKIOperation", message: Data(message).base64EncodedString())
        }
        try check(response, of: "PKIOperation")
        return response
    }

    private func send(
        _ method: HTTPRequest.Method, _ operation: String, message: String? = nil, body: [UInt8] = []
    ) async throws(CertificateProviderError) -> HTTPResponse {
        var target = configuration.target + (configuration.target.contains("?") ? "&" : "?") + "operation=\(operation)"
        if let message { target += "&message=" + message.percentEncoded }
        guard target.utf8.count <= Self.maximumTarget else {
            throw CertificateProviderError(
                .protocolError,
                """
                The SCEP server takes requests in the URL only, and this one needs \(target.utf8.count) characters, of which \
                servers take \(Self.maximumTarget); it must announce POSTPKIOperation.
                """)
        }
        let headers: HTTPHeaders = method == .post ? ["Content-Type": "application/x-pki-message"] : [:]
        // A message to the CA is another one each time: it may have issued for the first.
        return try await transport(
            HTTPRequest(
                method: method, target: target, headers: headers, body: body,
                isRepeatable: operation != "PKIOperation",
                isOptional: ["GetCACaps", "GetNextCACert"].contains(operation)))
    }

    private func check(_ response: HTTPResponse, of operation: String) throws(CertificateProviderError) {
        guard response.status == 200 else { throw Self.failure(response, operation, now()) }
        guard !response.body.isEmpty, response.body.count <= AuthenticatingSession.maximumBody else {
            throw CertificateProviderError(
                .protocolError, "The SCEP server's answer to \(operation) has \(response.body.count) bytes.")
        }
    }

    /// The text of an error page is left out: it might quote the challenge.
    private static func failure(
        _ response: HTTPResponse, _ operation: String, _ now: Date
    ) -> CertificateProviderError {
        let status = response.status
        let answer = "The SCEP server answered \(operation) with HTTP status \(status)"
        return switch (status, operation) {
        case (401, _), (403, _):
            CertificateProviderError(.rejected, "\(answer): it does not permit this.")
        case (404, _), (405, _), (410, _):
            CertificateProviderError(.configurationInvalid, "\(answer): it has no SCEP there; check the address.")
        case (500, "PKIOperation"):
            // What some servers say to a wrong challenge, which sending it again does not make right.
            CertificateProviderError(
                .rejected, "\(answer): it refuses the request, or has failed at it; check the challenge password.")
        case (408, _), (429, _), (500...599, _):
            CertificateProviderError(
                .unavailable, "\(answer); try again later.", retryAfter: response.retryAfter(now: now))
        case (400...499, _):
            CertificateProviderError(.rejected, "\(answer); look for the reason in the server's log.")
        default:
            CertificateProviderError(.protocolError, "\(answer), which means nothing here; check the address.")
        }
    }
}

extension String {
    /// All but the unreserved characters (RFC 3986, section 2.3) as `%XX`.
    fileprivate var percentEncoded: String {
        let unreserved = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~".utf8)
        return utf8.map { byte in
            unreserved.contains(byte) ? String(Unicode.Scalar(byte)) : "%" + [byte].hexEncoded.uppercased()
        }.joined()
    }
}
