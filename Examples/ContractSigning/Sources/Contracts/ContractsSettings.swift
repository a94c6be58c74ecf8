public import CertificateProviding
public import ProviderTransport

/// The section `Contracts.` of the property file.
public enum ContractsSettings {
    /// When a signed contract goes to the server.
    public enum Synchronise: String, CaseIterable, Sendable {
        /// The person is asked after the signature.
        case ask
        /// At once.
        case now
        /// When `contracts sync` runs.
        case later
    }

    public static let url = Parameter<ServerURL?>(
        "Contracts.url", .serverURL, defaultValue: "no server: contracts are signed here only",
        summary: "The server of the contracts, https:."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text), server.isSecure, server.query == nil else {
            throw .expected("must be an https: URL with a host, and without a user, a query or a fragment")
        }
        return server
    }
    public static let trustAnchors = ServerParameter.trustAnchors(
        "Contracts.trust-anchors", defaultValue: "the CA of the pairing, by Contracts.ca-fingerprint or Contracts.pin",
        needs: [.given(url.name)])
    public static let caFingerprint = Parameter<String?>.string(
        "Contracts.ca-fingerprint", needs: [.given(url.name)],
        summary: "SHA-256 fingerprint of the server's CA certificate, for a pairing without its file.")
    public static let pin = ServerParameter.pins("Contracts.pin", needs: [.given(url.name)])
    public static let key = Parameter<String?>.string(
        "Contracts.key", defaultValue: "store:", needs: [.given(url.name)],
        summary: "The key store of the paired identity's key: store:, or the URI of a token, such as pkcs11:token=host."
    )
    public static let timeout = Parameter<Duration>.seconds(
        "Contracts.timeout", default: 300, in: 1...86_400,
        summary: "How long a pairing, and each request of a synchronisation, waits for the server.")
    public static let callbackSchemes = Parameter<Set<String>>(
        "Contracts.callback-schemes", .list, absent: [], defaultValue: "none",
        summary:
            "The URL schemes of the programs that are told of results. Not file, http, https, data, javascript or sellsign."
    ) { text, _ throws(ParameterProblem) in
        let schemes = text.split(separator: ",", omittingEmptySubsequences: false).map {
            $0.split(separator: " ").joined(separator: " ").lowercased()
        }
        let others = ["file", "http", "https", "ftp", "data", "javascript", "mailto", "about", "sellsign"]
        guard schemes.allSatisfy({ isScheme($0) && !others.contains($0) }) else {
            throw .expected("must be URL schemes of programs, such as myapp, separated by commas")
        }
        return Set(schemes)
    }
    public static let urlOpener = Parameter<String>(
        "Contracts.url-opener", .string, absent: "xdg-open", defaultValue: "xdg-open",
        summary: "The program that opens callbacks: its absolute path, or its name in PATH. The URL is its argument.",
        parse: program)
    public static let renderer = Parameter<String?>(
        "Contracts.renderer", .string, defaultValue: "none: contracts without a PDF are refused",
        summary: "The program that makes the PDF of a template: gets the file on stdin, and writes the PDF to stdout."
    ) { text, context throws(ParameterProblem) in try program(text, context) }
    public static let synchronise = Parameter<Synchronise>.choice(
        "Contracts.synchronise", default: .ask,
        summary: "When a signed contract goes to the server: the person is asked, now, or later by contracts sync.")

    /// The section.
    public static let section = SettingsSection(
        title: "Contracts", namespaces: ["Contracts."],
        [
            url.descriptor, trustAnchors.descriptor, caFingerprint.descriptor, pin.descriptor, key.descriptor,
            timeout.descriptor, callbackSchemes.descriptor, urlOpener.descriptor, renderer.descriptor,
            synchronise.descriptor,
        ])

    private static func program(_ text: String, _ context: ParameterContext) throws(ParameterProblem) -> String {
        guard !text.isEmpty, text.hasPrefix("/") || !text.contains("/") else {
            throw .expected("must be an absolute path, or the name of a program without a slash")
        }
        return text
    }

    /// Whether a text is the scheme of a URL (RFC 3986, section 3.1).
    static func isScheme(_ text: String) -> Bool {
        guard let first = text.utf8.first, (97...122).contains(first) else { return false }
        return text.utf8.allSatisfy { byte in
            (97...122).contains(byte) || (48...57).contains(byte) || [0x2B, 0x2D, 0x2E].contains(byte)
        }
    }
}

extension ContractsSettings {
    /// The settings that errors about the server name.
    static let names = ServerSettingNames(
        address: "'Contracts.url'", path: "'Contracts.url'", trustAnchors: "'Contracts.trust-anchors'",
        timeout: "'Contracts.timeout'")
}
