public import CertificateProviding

/// What is known of the remote-MDM provider without its network stack: programs that start often need no more.
public enum RemoteMDMParameters {
    public static let id = ProviderID("mdm")

    /// - Parameter makeProvider: Makes the provider, or something that stands for it.
    public static func descriptor(
        makeProvider: @escaping @Sendable (ProviderEnvironment) -> any CertificateProvider
    ) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Device management",
            summary: "An identity that a server issues, over EST (RFC 7030) or SCEP (RFC 8894).",
            parameters: documented, makeProvider: makeProvider)
    }

    package static let defaultTimeout = 60

    package static let documented: [ParameterDescriptor] = [
        .init(Parameter.protocol, .string, isRequired: true, summary: "est (RFC 7030) or scep (RFC 8894)."),
        .init(
            Parameter.url, .serverURL, isRequired: true,
            summary: "The server. EST: https://HOST[:PORT][/LABEL]. SCEP: the URL of its program, http: or https:."),
        .init(
            Parameter.trustAnchors, .certificateFile,
            summary:
                "PEM file with the authority of the server's certificate; without this, ca-fingerprint and pin a person is asked. SCEP over https: without this and pin, the host's list is for the connection."
        ),
        .init(
            Parameter.caFingerprint, .string,
            summary: "The SHA-256 digest of the authority's certificate (EST: of the root's), in hexadecimal."),
        .init(
            Parameter.caIdentifier, .string,
            summary: "SCEP: which of the server's CAs is meant, where it has several (the message of GetCACert)."),
        .init(
            Parameter.scepAllow3DES, .boolean, defaultValue: "false",
            summary: "SCEP: whether triple DES is used with a server that does not know AES."),
        .init(
            Parameter.pin, .pins,
            summary:
                "What one of the server's certificates must be: sha256/BASE64 of its public key, or a file; several with commas."
        ),
        .init(
            Parameter.pinMode, .string, defaultValue: "pin-and-pki",
            summary: "pin-and-pki, or pin-only for a server with a certificate of its own making."),
        .init(Parameter.username, .string, summary: "For HTTP Basic or Digest, or for grant=password."),
        .init(
            Parameter.passwordSource, .secretSource, defaultValue: "prompt, where there is a username",
            summary: "Where the password is."),
        .init(Parameter.bearerSource, .secretSource, summary: "Where a bearer token is (RFC 6750)."),
        .init(
            Parameter.clientCertificate, .certificate,
            summary:
                "What the server knows this host by until it has issued a certificate itself, such as the device's own: a PEM file, or a token's URI, with pin-source in it."
        ),
        .init(
            Parameter.clientKeySource, .secretSource,
            summary: "Where the private key of client-certificate is: PEM, not encrypted."),
        .init(
            Parameter.tokenURL, .serverURL,
            summary: "OAuth 2 (RFC 6749): where bearer tokens are issued, https: only."),
        .init(Parameter.clientID, .string, summary: "OAuth: the client's identifier."),
        .init(
            Parameter.clientSecretSource, .secretSource, defaultValue: "prompt; none with grant=password",
            summary: "OAuth: where the client's secret is."),
        .init(
            Parameter.clientAuthentication, .string, defaultValue: "basic",
            summary: "OAuth: basic, or body for a server that wants the secret among the parameters."),
        .init(Parameter.scope, .string, summary: "OAuth: scopes, with blanks between them."),
        .init(
            Parameter.grant, .string, defaultValue: "client-credentials",
            summary: "OAuth: client-credentials, or the legacy password with username and password-source."),
        .init(
            Parameter.tokenTrustAnchors, .certificateFile,
            defaultValue: "the host's, for another server",
            summary: "OAuth: PEM file with the authority of the token endpoint's certificate."),
        .init(
            Parameter.tokenPin, .pins,
            summary: "OAuth: what one of the token endpoint's certificates must be besides, as with pin."),
        .init(Parameter.challengeSource, .secretSource, summary: "SCEP: where the challenge password is."),
        .init(Parameter.subject, .string, isRequired: true, summary: "RFC 4514, such as CN=client,O=Example."),
        .init(
            Parameter.subjectAlternativeNames, .string,
            summary: "dns:, ip:, email: and uri: names, with commas between them."),
        .init(
            Parameter.keyType, .string, defaultValue: "what the server wants, else p256 (SCEP: rsa2048)",
            summary: KeyType.allCases.map(\.rawValue).joined(separator: ", ") + "."),
        .init(
            Parameter.key, .string, defaultValue: "store",
            summary: "Where the private key lives: store, or a token's RFC 7512 URI."),
        .init(
            Parameter.keyPINSource, .secretSource, defaultValue: "the URI's pin-source; else a person is asked",
            summary: "Where the PIN of the token is; a service needs it."),
        .init(
            Parameter.serverKeygen, .boolean, defaultValue: "false",
            summary: "EST: whether the server makes the key, which it then knows."),
        .init(
            Parameter.proxy, .proxyURL, defaultValue: "what https_proxy or http_proxy, and no_proxy, say",
            summary: "http://HOST:PORT of a proxy for all that is sent, or none."),
        .init(Parameter.proxyUsername, .string, summary: "For HTTP Basic, where the proxy wants that."),
        .init(
            Parameter.proxyPasswordSource, .secretSource, defaultValue: "prompt, where there is a proxy-username",
            summary: "Where the password for the proxy is."),
        .init(
            Parameter.timeout, .string, defaultValue: String(defaultTimeout),
            summary:
                "How long the server may take for a whole enrolment, in seconds; and as long again for its decision, where it has none yet."
        ),
    ]
}

/// The names of the parameters.
package enum Parameter {
    package static let `protocol` = "protocol"
    package static let url = "url"
    package static let trustAnchors = "trust-anchors"
    package static let caFingerprint = "ca-fingerprint"
    package static let caIdentifier = "ca-identifier"
    package static let scepAllow3DES = "scep-allow-3des"
    package static let pin = "pin"
    package static let pinMode = "pin-mode"
    package static let username = "username"
    package static let passwordSource = "password-source"
    package static let bearerSource = "bearer-source"
    package static let clientCertificate = "client-certificate"
    package static let clientKeySource = "client-key-source"
    package static let tokenURL = "token-url"
    package static let clientID = "client-id"
    package static let clientSecretSource = "client-secret-source"
    package static let clientAuthentication = "client-authentication"
    package static let scope = "scope"
    package static let grant = "grant"
    package static let tokenTrustAnchors = "token-trust-anchors"
    package static let tokenPin = "token-pin"
    /// Those that say nothing without ``tokenURL``.
    package static let ofTokens = [
        clientID, clientSecretSource, clientAuthentication, scope, grant, tokenTrustAnchors, tokenPin,
    ]
    package static let challengeSource = "challenge-source"
    package static let subject = "subject"
    package static let subjectAlternativeNames = "subject-alternative-names"
    package static let keyType = "key-type"
    package static let key = "key"
    package static let keyPINSource = "key-pin-source"
    package static let serverKeygen = "server-keygen"
    package static let proxy = "proxy"
    package static let proxyUsername = "proxy-username"
    package static let proxyPasswordSource = "proxy-password-source"
    package static let timeout = "timeout"
}
