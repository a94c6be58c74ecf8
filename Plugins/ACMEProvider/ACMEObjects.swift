import CertificateProviding
import FoundationEssentials
import ProviderTransport

/// The server's directory (RFC 8555, section 7.1.1).
struct ACMEDirectory: Decodable, Sendable {
    struct Meta: Decodable, Sendable {
        let termsOfService: String?
        let externalAccountRequired: Bool?
        let profiles: [String: String]?
    }
    let newNonce: String
    let newAccount: String
    let newOrder: String
    let revokeCert: String?
    /// RFC 9773.
    let renewalInfo: String?
    let meta: Meta?
}

/// When to renew (RFC 9773, section 4.2).
struct ACMERenewalInfo: Decodable, Sendable {
    struct Window: Decodable, Sendable {
        let start: String
        let end: String
    }
    let suggestedWindow: Window
    let explanationURL: String?
}

/// A problem document (RFC 7807; RFC 8555, section 6.7).
struct ACMEProblem: Decodable, Sendable {
    struct Part: Decodable, Sendable {
        let type: String?
        let detail: String?
        let identifier: ACMEOrder.Identifier?
    }
    let type: String?
    let detail: String?
    let identifier: ACMEOrder.Identifier?
    let subproblems: [Part]?
    let algorithms: [String]?
    let instance: String?

    static let namespace = "urn:ietf:params:acme:error:"

    /// The type without its namespace, such as `badCSR`; empty if there is none.
    var kind: String { Self.kind(type) }

    private static func kind(_ type: String?) -> String {
        guard let type else { return "" }
        return type.hasPrefix(namespace) ? String(type.dropFirst(namespace.count)) : type
    }

    /// The problem and its parts in one line: type, detail and identifier of each.
    var text: String {
        let whole = Self.text(type, detail, identifier)
        let parts = (subproblems ?? []).prefix(8).map { Self.text($0.type, $0.detail, $0.identifier) }
        return parts.isEmpty ? whole : "\(whole) (\(parts.joined(separator: "; ")))"
    }

    private static func text(_ type: String?, _ detail: String?, _ identifier: ACMEOrder.Identifier?) -> String {
        let words = [kind(type), detail ?? "", identifier.map { "\($0.type):\($0.value)" } ?? ""].filter { !$0.isEmpty }
        return words.map(trimmed).joined(separator: ", ")
    }

    private static func trimmed(_ text: String) -> String { text.hasSuffix(".") ? String(text.dropLast()) : text }

    /// The next step for a user; `nil` where the status has a better one.
    var advice: String? {
        switch kind {
        case "externalAccountRequired": "set 'eab-kid' and 'eab-key-source' to those that the CA gave you"
        case "userActionRequired":
            "read \(instance?.shown ?? "what the server says"), and agree to it; then try again"
        case "badAttestationStatement":
            "check that the server knows this device, and trusts the CA of its attestation key"
        case "invalidContact", "unsupportedContact": "check 'contact'"
        case "badCSR", "badPublicKey": "check 'identifiers', 'subject' and 'key-type'"
        case "rejectedIdentifier", "unsupportedIdentifier":
            "check 'identifiers', and whether the account may request them"
        case "invalidProfile": "check 'profile'"
        case "badRevocationReason": "leave out the reason ('--reason')"
        case "caa": "permit this CA in the CAA records of the name"
        case "connection", "tls":
            "check that the server can reach this host by the name, and that no firewall or other program answers"
        case "dns": "check the name's DNS records as the server sees them"
        case "incorrectResponse", "unauthorized": nil
        case "badSignatureAlgorithm":
            "set 'account-key' to a key store that makes keys for \((algorithms ?? ["another algorithm"]).prefix(8).map(\.shown).joined(separator: ", "))"
        default: nil
        }
    }

    /// The next step after a proof; `nil` where the kind of challenge has a better one. The server has looked, and found nothing or
    /// another answer.
    var adviceForProof: String? { ["connection", "tls"].contains(kind) ? nil : advice }
}

extension ACMEProblem? {
    /// The reason as part of a message; empty without one.
    var reasonForMessage: String { map { ": \(DisplayText.visible(String($0.text.prefix(1000))))" } ?? "" }
}

extension HTTPResponse {
    /// The problem document; `nil` for another content.
    var problem: ACMEProblem? {
        guard mediaType == "application/problem+json" || mediaType == "application/json" else { return nil }
        return try? JSONDecoder().decode(ACMEProblem.self, from: Data(body))
    }

    /// The error for a refusal, with the server's own reason, and the parameter to check.
    ///
    /// - Parameter advice: The next step, unless the problem has a better one.
    func refusal(
        of purpose: String, by server: ServerURL, advice: String? = nil, now: Date
    ) -> ProviderError {
        let problem = problem
        var step = problem?.advice ?? advice
        let isLimited = status == 429 || problem?.kind == "rateLimited"
        if isLimited || (500...599).contains(status) && retryAfter(now: now) != nil { step = adviceToWait(now: now) }
        var error = refusal(of: purpose, by: server, reason: problem?.text, advice: step, at: now)
        // Servers differ in the status.
        if problem?.kind == "rateLimited" { error.code = .unavailable }
        if problem?.kind == "badNonce" { error.code = .unavailable }
        if problem?.kind == "serverInternal" { error.code = .unavailable }
        return error
    }
}

extension String {
    /// The beginning of a server's text, for a message.
    var shown: String { DisplayText.visible(String(prefix(200))) }
}
