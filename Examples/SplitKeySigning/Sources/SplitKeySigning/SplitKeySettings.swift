public import CertificateProviding
public import ProviderTransport

/// The section `SplitKey.` of the property file.
public enum SplitKeySettings {
    public static let authority = Parameter<ServerURL?>(
        "SplitKey.authority", .serverURL, summary: "The authority that enrols and verifies, https:."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text), server.isSecure, server.query == nil else {
            throw .expected("must be an https: URL with a host, and without a user, a query or a fragment")
        }
        return server
    }
    public static let companyID = Parameter<String?>.string(
        "SplitKey.company-id", defaultValue: "any", summary: "The company that keys must be of.")
    public static let relyingParty = Parameter<ServerURL?>(
        "SplitKey.relying-party", .serverURL, defaultValue: "none: signatures are made offline only",
        summary: "The server that has documents to sign: https:, or http: on this host."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text), server.isSecure || server.isLoopback, server.query == nil else {
            throw .expected(
                "must be an https: URL, or an http: URL of this host, without a user, a query or a fragment")
        }
        return server
    }
    public static let trustAnchors = ServerParameter.trustAnchors(
        "SplitKey.trust-anchors", summary: "PEM file with the CAs of the certificates of both servers.")
    public static let pin = ServerParameter.pins("SplitKey.pin")
    public static let pinSource = Parameter<SecretSource?>.secretSource(
        "SplitKey.pin-source", defaultValue: "prompt", summary: "Secret source of the signing PIN.")
    public static let loginPINSource = Parameter<SecretSource?>.secretSource(
        "SplitKey.login-pin-source", defaultValue: "prompt", summary: "Secret source of the login PIN.")
    public static let pairingHelper = Parameter<String?>(
        "SplitKey.pairing-helper", .string, defaultValue: "pairing-helper beside dvs, else in PATH",
        summary: "The program that computes in G2, for an enrolment: its absolute path, or its name in PATH."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") || !text.contains("/") else {
            throw .expected("must be an absolute path, or the name of a program without a slash")
        }
        return text
    }
    public static let timeout = Parameter<Duration>.seconds(
        "SplitKey.timeout", default: 10, in: 1...86_400, summary: "How long each request waits for its server.")

    /// The section.
    public static let section = SettingsSection(
        title: "Split keys", namespaces: ["SplitKey."],
        [
            authority.descriptor, companyID.descriptor, relyingParty.descriptor, trustAnchors.descriptor,
            pin.descriptor, pinSource.descriptor, loginPINSource.descriptor, pairingHelper.descriptor,
            timeout.descriptor,
        ])

    /// The settings that errors about the servers name.
    static let names = ServerSettingNames(
        address: "'SplitKey.authority' and 'SplitKey.relying-party'",
        path: "'SplitKey.authority' and 'SplitKey.relying-party'", trustAnchors: "'SplitKey.trust-anchors'",
        timeout: "'SplitKey.timeout'")
}
