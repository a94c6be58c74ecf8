package import CertificateProviding
package import FoundationEssentials
import NIOHTTP1

extension HTTPResponse {
    /// When to come back, where the server says so (RFC 9110, section 10.2.3), at most `maximum`.
    package func retryAfter(now: Date) -> Duration? {
        guard let text = headers.first(name: "Retry-After")?.trimmed else { return nil }
        if !text.isEmpty, text.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) {
            // More digits than a number has are no reason to come back at once.
            return .seconds(min(Int64(text) ?? Self.maximumDelay, Self.maximumDelay))
        }
        guard let date = HTTPDate.parse(text, now: now) else { return nil }
        return .seconds(min(max(0, Int64(date.timeIntervalSince(now).rounded(.up))), Self.maximumDelay))
    }

    /// A month.
    private static let maximumDelay: Int64 = 30 * 86_400

    /// What an answer means that is not the one that was asked for.
    package func refusal(by server: ServerURL, of purpose: String, at now: Date) -> CertificateProviderError {
        let said = reason.map { ": " + ($0.hasSuffix(".") ? String($0.dropLast()) : $0) } ?? ""
        let start = "\(server.authority) answers \(purpose) with the status \(status)\(said)"
        let (code, advice): (CertificateProviderError.Code, String) =
            switch status {
            case 401, 407:
                (.rejected, "\(challenge)check the user name and password, the token, or the certificate")
            case 403: (.rejected, "it does not permit this; ask its administrator")
            case 404, 405, 410: (.configurationInvalid, "check 'url' and its label")
            case 408, 429, 500...599: (.unavailable, "try again later")
            case 400...499: (.rejected, "look for the reason in the server's log")
            default: (.protocolError, "the protocol does not have that")
            }
        return CertificateProviderError(
            code, "\(start); \(advice).", nativeCode: status, retryAfter: retryAfter(now: now))
    }

    /// What the server asks for, by its scheme.
    private var challenge: String {
        guard let field = headers.first(name: "WWW-Authenticate"),
            let scheme = field.split(whereSeparator: { $0 == " " || $0 == "," }).first
        else { return "" }
        return "it asks for \(shown(String(scheme), 20)); "
    }

    /// The beginning of a text that the server has put into its answer.
    private var reason: String? {
        guard let type = headers.first(name: "Content-Type")?.lowercased(), type.hasPrefix("text/plain"),
            body.count <= Self.longestReason, let text = String(validating: body, as: UTF8.self)?.trimmed, !text.isEmpty
        else { return nil }
        return shown(redaction(text).split(whereSeparator: \.isNewline).joined(separator: " "), 200)
    }

    /// Larger ones are pages.
    private static let longestReason = 64 * 1024

    /// The beginning of a server's text as it may go into an error: without secrets and control characters.
    package func shown(_ text: String, _ limit: Int) -> String {
        // In this order: the beginning of a secret is not known for one.
        String(String.UnicodeScalarView(redaction(text).unicodeScalars.prefix(limit))).withVisibleControls
    }
}

extension String {
    /// Whether HTTP has such a user name (RFC 7617, section 2).
    package var isUserName: Bool {
        !unicodeScalars.contains { $0 == ":" || $0.properties.generalCategory == .control }
    }

    /// Without blanks at both ends.
    package var trimmed: String {
        let isBlank = { (character: Character) in character.isWhitespace }
        return String(self.drop(while: isBlank).reversed().drop(while: isBlank).reversed())
    }
}
