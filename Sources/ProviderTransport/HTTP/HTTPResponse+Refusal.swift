public import CertificateProviding
public import FoundationEssentials
import NIOHTTP1

extension HTTPResponse {
    /// How long to wait before the next request, from `Retry-After` (RFC 9110, section 10.2.3): at most a month; `nil`
    /// if the server does not say.
    public func retryAfter(now: Date) -> Duration? {
        guard let text = headers.first(name: "Retry-After")?.trimmed else { return nil }
        if !text.isEmpty, text.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) {
            // A number that is too large means the maximum.
            return .seconds(min(Int64(text) ?? Self.maximumDelay, Self.maximumDelay))
        }
        guard let date = HTTPDate.parse(text, now: now) else { return nil }
        return .seconds(min(max(0, Int64(date.timeIntervalSince(now).rounded(.up))), Self.maximumDelay))
    }

    /// The next step after an answer that says "not now", as part of a message: with the time that the server has named.
    public func adviceToWait(now: Date) -> String {
        guard let delay = retryAfter(now: now) else { return "try again later" }
        return "try again after \((now + delay / .seconds(1)).formatted(.iso8601))"
    }

    /// A month, in seconds.
    private static let maximumDelay: Int64 = 30 * 86_400

    /// Returns the error for a response with an unexpected status. Its reason is `rejectedPassword` if the server has
    /// refused a password, `rejectedCertificate` if it may have refused the certificate.
    ///
    /// - Parameters:
    ///   - purpose: The request, as part of a sentence: `the request for a certificate`.
    ///   - server: The server that has answered.
    ///   - reason: The server's reason, for a protocol whose errors are not plain text. Secrets are removed from it.
    ///   - advice: The next step, where the protocol has a better one than HTTP.
    public func refusal(
        of purpose: String, by server: ServerURL, reason: String? = nil, advice: String? = nil, at now: Date
    ) -> ProviderError {
        let said =
            (reason.map(shownReason) ?? plainReason).map { ": " + ($0.hasSuffix(".") ? String($0.dropLast()) : $0) }
            ?? ""
        let start = "\(server.authority) answers \(purpose) with the status \(status)\(said)"
        let (code, usual): (ProviderError.Code, String) =
            switch status {
            case 401, 407:
                (.rejected, "\(challenge)check the user name and password, the token, or the certificate")
            case 403: (.rejected, adviceForForbidden)
            case 404, 405, 410: (.configurationInvalid, "check \(settingNames.path)")
            case 408, 429, 500...599: (.unavailable, adviceToWait(now: now))
            case 400...499: (.rejected, "look for the reason in the server's log")
            default: (.protocolError, "the protocol does not define this status")
            }
        return ProviderError(
            code, "\(start); \(advice ?? usual).", nativeCode: status, retryAfter: retryAfter(now: now),
            reason: hasRefusedPassword ? .rejectedPassword : mayRefuseCertificate ? .rejectedCertificate : nil)
    }

    /// The next step after the status 403, as part of a message. It names what a server in TLS 1.3 may want that asks for the
    /// client certificate after the handshake.
    public var adviceForForbidden: String {
        guard wantsCertificateLater else { return "it does not permit this; ask its administrator" }
        return """
            it has not asked for the client certificate in the TLS handshake. If it wants one for some paths only, \
            it cannot ask this client for it in TLS 1.3: have it ask in the handshake (Apache: SSLVerifyClient for \
            the whole host, not in a <Location>), or permit TLS 1.2 only
            """
    }

    /// The authentication scheme that the server demands, as part of a message; empty if it names none.
    private var challenge: String {
        guard let field = headers.first(name: "WWW-Authenticate"),
            let scheme = field.split(whereSeparator: { $0 == " " || $0 == "," }).first
        else { return "" }
        return "it asks for \(excerpt(of: String(scheme), limit: 20)); "
    }

    /// The beginning of the server's plain-text body; `nil` if there is none. In one that is cut off, so may be a secret,
    /// which would not be recognised.
    private var plainReason: String? {
        guard isWhole, let type = headers.first(name: "Content-Type")?.lowercased(), type.hasPrefix("text/plain"),
            body.count <= Self.longestReason, let text = String(validating: body, as: UTF8.self)?.trimmed, !text.isEmpty
        else { return nil }
        return shownReason(text)
    }

    private func shownReason(_ text: String) -> String {
        excerpt(of: redaction(text).split(whereSeparator: \.isNewline).joined(separator: " "), limit: 200)
    }

    /// In bytes. Larger bodies are pages.
    private static let longestReason = 64 * 1024

    /// Returns the beginning of a server's text for a message, without secrets and control characters.
    ///
    /// - Parameter limit: In characters (Unicode scalars).
    public func excerpt(of text: String, limit: Int) -> String {
        // Redacted before it is cut: the beginning of a secret would not be recognised.
        String(String.UnicodeScalarView(redaction(text).unicodeScalars.prefix(limit))).withVisibleControls
    }
}

extension String {
    /// Whether this is a valid user name for HTTP Basic (RFC 7617, section 2).
    package var isUserName: Bool {
        !unicodeScalars.contains { $0 == ":" || $0.properties.generalCategory == .control }
    }
}
