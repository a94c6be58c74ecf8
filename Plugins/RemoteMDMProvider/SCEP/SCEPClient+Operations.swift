import CertificateProviding
import FoundationEssentials
import Logging
import NIOHTTP1
import OpenSSLSupport
import ProviderTransport

/// The operations of a SCEP server (RFC 8894, section 4), each one HTTP request.
extension SCEPClient {
    /// The length of a URL, in bytes, that servers and proxies accept at least.
    private static let maximumTarget = 8000

    /// Sends GetCACert, and returns the certificates that can be trusted.
    func fetchAuthorities() async throws(ProviderError) -> SCEPAuthorities {
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

    /// Sends GetCACaps. A server that does not answer, or not in time, has no capabilities (RFC 8894, section 3.5.1).
    func fetchCapabilities() async throws(ProviderError) -> SCEPCapabilities {
        do {
            let response = try await send(.get, "GetCACaps", message: configuration.authorityIdentifier)
            try check(response, of: "GetCACaps")
            return SCEPCapabilities(text: String(decoding: response.body, as: UTF8.self))
        } catch {
            guard await !endsRun(error) else { throw error }
            logger.notice("the SCEP server does not announce its capabilities", metadata: ["error": "\(error)"])
            return .none
        }
    }

    /// Whether the failure of an optional operation ends the run: the next one would send a refused password or token again.
    func endsRun(_ error: ProviderError) async -> Bool {
        let isRefusal = [.rejectedPassword, .rejectedProxyPassword].contains(error.reason)
        if error.code == .userCancelled || isRefusal { return true }
        return await hasRefusedCredentials()
    }

    /// Sends GetNextCACert, and returns the certificates of the next CA, signed by the current one.
    ///
    /// They become trust anchors, so their signer must be a trust anchor itself: a CA that is trusted because it leads
    /// to an anchor cannot introduce another one. If trust anchors are configured in addition to the CA fingerprint,
    /// the next CA must lead to them, as the current one does.
    ///
    /// - Throws: `notFound` if the server announces no next CA, `serverNotTrusted` if no trust anchor has signed it.
    func nextAuthorities() async throws(ProviderError) -> [X509Certificate] {
        let current = try await currentAuthorities()
        guard try await capabilities().hasNextAuthority else {
            throw ProviderError(.notFound, "The SCEP server announces no next CA.")
        }
        let response = try await send(.get, "GetNextCACert", message: configuration.authorityIdentifier)
        try check(response, of: "GetNextCACert")
        let signed: CMSSignedContent
        do throws(OpenSSLError) {
            signed = try library.verifySignedData(response.body, signers: current.roots.map(\.derRepresentation))
        } catch {
            throw ProviderError(
                .serverNotTrusted,
                "The SCEP server's next CA is not signed by the current CA, or that one is not itself a trust anchor.",
                underlying: error)
        }
        // Unlike a reply, this makes trust.
        guard ["SHA256", "SHA384", "SHA512"].contains(signed.digest) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The SCEP server's next CA is signed with \(signed.digest), which is not accepted; configure the "
                    + "server for SHA-256.")
        }
        return try await acceptable(CertificateBag.certificates(in: signed.content), signed: response.body, current)
    }

    private func acceptable(
        _ next: [X509Certificate], signed announcement: [UInt8], _ current: SCEPAuthorities
    ) async throws(ProviderError) -> [X509Certificate] {
        let anchors = configuration.trustAnchors
        // Beside a fingerprint, anchors limit what the pinned CA may announce, also when it is remembered.
        let known = configuration.fingerprint == nil ? configuration.known : []
        let speakers = current.roots.filter((anchors + known).contains)
        let isByAnchor =
            (try? library.verifySignedData(announcement, signers: speakers.map(\.derRepresentation))) != nil
        guard !anchors.isEmpty, !isByAnchor else { return next }
        var leading: [X509Certificate] = []
        for one in next where try await SCEPAuthorities.leads(one, to: anchors, through: next, now()) {
            leading.append(one)
        }
        guard !leading.isEmpty else {
            throw ProviderError(
                .serverNotTrusted,
                "The SCEP server's next CA does not lead to a trust anchor; add it to 'trust-anchors'.")
        }
        return leading
    }

    /// Sends a PKIOperation.
    func performOperation(
        _ message: [UInt8], canPost: Bool
    ) async throws(ProviderError) -> HTTPResponse {
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
    ) async throws(ProviderError) -> HTTPResponse {
        var target = configuration.target + (configuration.target.contains("?") ? "&" : "?") + "operation=\(operation)"
        if let message { target += "&message=" + ByteText.percentEncoded(message.utf8) }
        guard target.utf8.count <= Self.maximumTarget else {
            throw ProviderError(
                .protocolError,
                """
                The SCEP server accepts requests only in the URL, and this one needs \(target.utf8.count) characters, \
                more than the \(Self.maximumTarget) that servers accept; configure it for POSTPKIOperation.
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

    private func check(_ response: HTTPResponse, of operation: String) throws(ProviderError) {
        guard response.status == 200 else { throw Self.failure(response, operation, now()) }
        guard !response.body.isEmpty, response.body.count <= ServerSession.maximumBody else {
            throw ProviderError(
                .protocolError,
                "The SCEP server's answer to \(operation) has \(response.body.count) bytes; expected 1 to "
                    + "\(ServerSession.maximumBody).")
        }
    }

    /// Returns the error for an HTTP status. The text of the server's page is left out: it might quote the challenge.
    private static func failure(
        _ response: HTTPResponse, _ operation: String, _ now: Date
    ) -> ProviderError {
        let status = response.status
        let answer = "The SCEP server answered \(operation) with HTTP status \(status)"
        if response.hasRefusedPassword {
            return ProviderError(
                .rejected, "\(answer): it does not accept the password; check 'username' and 'password-source'.",
                nativeCode: status, reason: .rejectedPassword)
        }
        let reason: ProviderError.Reason? = response.mayRefuseCertificate ? .rejectedCertificate : nil
        return switch (status, operation) {
        case (401, _):
            ProviderError(
                .rejected, "\(answer): it does not permit this; ask its administrator.", nativeCode: status,
                reason: reason)
        case (403, _):
            ProviderError(
                .rejected, "\(answer): \(response.adviceForForbidden).", nativeCode: status, reason: reason)
        case (404, _), (405, _), (410, _):
            ProviderError(
                .configurationInvalid, "\(answer): there is no SCEP service at this URL; check 'url'.")
        case (500, "PKIOperation"):
            // Some servers answer so to a wrong challenge; sending it again does not help.
            ProviderError(
                .rejected,
                "\(answer): it has refused the request or failed to process it; check the challenge password.")
        case (408, _), (429, _), (500...599, _):
            ProviderError(
                .unavailable, "\(answer); \(response.adviceToWait(now: now)).",
                retryAfter: response.retryAfter(now: now))
        case (400...499, _):
            ProviderError(
                .rejected, "\(answer); look for the reason in the server's log.", nativeCode: status,
                reason: reason)
        default:
            ProviderError(.protocolError, "\(answer), which SCEP does not define; check 'url'.")
        }
    }
}
