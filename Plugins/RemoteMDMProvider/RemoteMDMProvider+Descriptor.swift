public import CertificateProviding

enum Parameter {
    static let `protocol` = "protocol"
    static let url = "url"
    static let trustAnchors = "trust-anchors"
    static let pin = "pin"
    static let pinMode = "pin-mode"
    static let username = "username"
    static let passwordSource = "password-source"
    static let bearerSource = "bearer-source"
    static let subject = "subject"
    static let subjectAlternativeNames = "subject-alternative-names"
    static let keyType = "key-type"
    static let timeout = "timeout"
}

extension RemoteMDMProvider {
    public static let descriptor = ProviderDescriptor(
        id: id, displayName: "Device management",
        summary: "An identity that a server issues, over EST or SCEP.", parameters: parameters
    ) { RemoteMDMProvider(environment: $0) }

    static let parameters: [ParameterDescriptor] = [
        .init(Parameter.protocol, .string, isRequired: true, summary: "est (RFC 7030)."),
        .init(Parameter.url, .string, isRequired: true, summary: "The server, with the label as path: https://HOST[:PORT][/LABEL]."),
        .init(Parameter.trustAnchors, .path, summary: "PEM file with the authority of the server's certificate."),
        .init(
            Parameter.pin, .string,
            summary: "What one of the server's certificates must be: sha256/BASE64 of its public key, or a file; several with commas."),
        .init(
            Parameter.pinMode, .string, defaultValue: "pin-and-pki",
            summary: "pin-and-pki, or pin-only for a server with a certificate of its own making."),
        .init(Parameter.username, .string, summary: "For HTTP Basic or Digest."),
        .init(
            Parameter.passwordSource, .secretSource, defaultValue: "prompt, where there is a username",
            summary: "Where the password is."),
        .init(Parameter.bearerSource, .secretSource, summary: "Where a bearer token is (RFC 6750)."),
        .init(Parameter.subject, .string, isRequired: true, summary: "RFC 4514, such as CN=client,O=Example."),
        .init(
            Parameter.subjectAlternativeNames, .string,
            summary: "dns:, ip:, email: and uri: names, with commas between them."),
        .init(
            Parameter.keyType, .string, defaultValue: "what the server wants, else p256",
            summary: KeyType.allCases.map(\.rawValue).joined(separator: ", ") + "."),
        .init(
            Parameter.timeout, .string, defaultValue: String(Settings.defaultTimeout),
            summary: "How long to wait for the server, in seconds."),
    ]
}
