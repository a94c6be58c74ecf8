import CertificateProviding
import ServerTransport

/// The parameters of the provider.
enum EnrolmentParameter {
    static let `protocol` = Parameter<EnrolmentSettings.EnrolmentKind>.choice(
        "protocol", default: nil, summary: "est (RFC 7030) or scep (RFC 8894).")
    static let url = Parameter<ServerURL>(
        "url", .serverURL, absent: nil,
        summary: "URL of the server. EST: https://HOST[:PORT][/LABEL]. SCEP: the URL of its SCEP service, http: or "
            + "https:."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text) else {
            throw .expected("must be an http: or https: URL with a host, and without a user or a fragment")
        }
        return server
    }
    static let trustAnchors = Parameter.string(
        "trust-anchors", .certificateFile,
        summary: "PEM file with the CA of the server's certificate. Without this, ca-fingerprint and pin, fetch asks "
            + "on the terminal. SCEP over https: without this and pin, the system trust store authenticates the "
            + "connection.")
    static let caFingerprint = Parameter<[UInt8]?>(
        "ca-fingerprint", .string, absent: .some(nil), isBlankRefused: true,
        summary: "SHA-256 hash of the CA certificate (EST: of the root certificate), in hexadecimal."
    ) { text, _ throws(ParameterProblem) in
        do throws(CertificateProviderError) { return try CAFingerprint.parse(text) } catch { throw .error(error) }
    }
    static let caIdentifier = Parameter.string(
        "ca-identifier", needs: [.value("protocol", "scep")],
        summary: "SCEP: identifier of the CA, if the server has several (the message of GetCACert).")
    static let scepAllow3DES = Parameter.flag(
        "scep-allow-3des", needs: [.value("protocol", "scep")],
        summary: "SCEP: whether triple DES is used with a server that does not announce AES.")
    static let pin = pins(
        "pin",
        summary: "Pins, separated by commas; the server's chain must contain one of them: sha256/BASE64 of a public "
            + "key, or a certificate file.")
    static let pinMode = Parameter<EnrolmentSettings.PinMode>.choice(
        "pin-mode", default: .both, summary: "pin-and-pki, or pin-only for a server with a self-signed certificate.")
    static let username = userName("username", summary: "User name for HTTP Basic or Digest, or for grant=password.")
    static let passwordSource = Parameter.secretSource(
        "password-source", defaultValue: "prompt, if there is a username", needs: [.given("username")],
        summary: "Secret source of the password.")
    static let bearerSource = Parameter.secretSource(
        "bearer-source", excludes: ["token-url", "username"],
        summary: "Secret source of a bearer token (RFC 6750).")
    static let clientCertificate = Parameter<ClientCertificate.Place?>(
        "client-certificate", .certificate, absent: .some(nil),
        summary: "Certificate that authenticates this host until the server has issued one, such as a device "
            + "certificate: a PEM file, or a key store's URI with pin-source in it."
    ) { text, context throws(ParameterProblem) in
        guard KeyStoreLocation(uri: text, pinSource: nil) != nil else { return .file(text) }
        do throws(CertificateProviderError) { return .keyStore(try context.keyStores.store(text)) } catch {
            throw .error(error)
        }
    }
    static let clientKeySource = Parameter.secretSource(
        "client-key-source", needs: [.given("client-certificate")],
        summary: "Secret source of the private key of client-certificate: PEM, not encrypted.")
    static let tokenURL = Parameter<ServerURL?>(
        "token-url", .serverURL, absent: .some(nil),
        summary: "OAuth 2 (RFC 6749): URL of the token endpoint, https: only."
    ) { text, _ throws(ParameterProblem) in
        guard let endpoint = ServerURL(text), endpoint.isSecure else {
            throw .expected("must be https://HOST[:PORT]/PATH (RFC 6749, section 3.2)")
        }
        return endpoint
    }
    static let clientID = Parameter.string(
        "client-id", needs: [.given("token-url")],
        summary: "OAuth: the client's identifier.")
    static let clientSecretSource = Parameter.secretSource(
        "client-secret-source", defaultValue: "prompt; none with grant=password", needs: [.given("token-url")],
        summary: "OAuth: secret source of the client's secret.")
    static let clientAuthentication = Parameter<OAuthSettings.Authentication>.choice(
        "client-authentication", default: .basic, needs: [.given("token-url")],
        summary: "OAuth: basic, or body for a server that wants the secret in the body.")
    static let scope = Parameter.string(
        "scope", needs: [.given("token-url")],
        summary: "OAuth: scopes, separated by spaces.")
    static let grant = Parameter<OAuthSettings.Grant>.choice(
        "grant", default: .clientCredentials, needs: [.given("token-url")],
        summary: "OAuth: client-credentials, or the legacy password with username and password-source.")
    static let tokenTrustAnchors = Parameter.string(
        "token-trust-anchors", .certificateFile, defaultValue: "the system trust store, for another server",
        needs: [.given("token-url")],
        summary: "OAuth: PEM file with the CA of the token endpoint's certificate.")
    static let tokenPin = pins(
        "token-pin", needs: [.given("token-url")],
        summary: "OAuth: additional pins for the token endpoint, as with pin.")
    static let challengeSource = Parameter.secretSource(
        "challenge-source", needs: [.value("protocol", "scep")],
        summary: "SCEP: secret source of the challenge password.")
    static let subject = Parameter.required(
        "subject", summary: "Subject of the certificate (RFC 4514), such as CN=client,O=Example.")
    static let subjectAlternativeNames = Parameter.string(
        "subject-alternative-names",
        summary: "dns:, ip:, email: and uri: names, separated by commas.")
    static let keyType = Parameter<KeyType?>(
        "key-type", .string, absent: .some(nil), defaultValue: "the server's choice, else p256 (SCEP: rsa2048)",
        summary: KeyType.allCases.map(\.rawValue).joined(separator: ", ") + "."
    ) { text, _ throws(ParameterProblem) in
        guard let type = KeyType(rawValue: text) else {
            throw .expected("must be one of \(KeyType.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        return type
    }
    static let key = Parameter<any KeyStore>.keyStore(
        "key", default: "store:",
        summary: "Key store of the private key: store:, or a token's RFC 7512 URI.")
    static let serverKeygen = Parameter.flag(
        "server-keygen", needs: [.value("protocol", "est")],
        summary: "EST: whether the server makes the private key, which it then knows.")
    static let proxy = Parameter<ProxySettings.Place>(
        "proxy", .proxyURL, absent: .environment,
        defaultValue: "https_proxy or http_proxy, and no_proxy, of the environment",
        summary: "http://HOST:PORT of the proxy for all requests, or none."
    ) { text, _ throws(ParameterProblem) in
        if text == "none" { return .none }
        guard let proxy = HTTPProxy(text) else {
            throw .expected("must be http://HOST:PORT or none; set the user with 'proxy-username'")
        }
        return .configured(proxy)
    }
    static let proxyUsername = userName(
        "proxy-username", needs: [.given("proxy")], summary: "User name for the proxy (HTTP Basic).")
    static let proxyPasswordSource = Parameter.secretSource(
        "proxy-password-source", defaultValue: "prompt, if there is a proxy-username",
        needs: [.given("proxy-username")],
        summary: "Secret source of the proxy's password.")
    static let timeout = Parameter.seconds(
        "timeout", default: 60, in: 1...86_400,
        summary: "Seconds that the server may take for a whole enrolment, and as many again while the request is "
            + "pending.")

    /// In the order of the documentation.
    static let all: [ParameterDescriptor] = [
        `protocol`.descriptor, url.descriptor, trustAnchors.descriptor, caFingerprint.descriptor,
        caIdentifier.descriptor, scepAllow3DES.descriptor, pin.descriptor, pinMode.descriptor, username.descriptor,
        passwordSource.descriptor, bearerSource.descriptor, clientCertificate.descriptor, clientKeySource.descriptor,
        tokenURL.descriptor, clientID.descriptor, clientSecretSource.descriptor, clientAuthentication.descriptor,
        scope.descriptor, grant.descriptor, tokenTrustAnchors.descriptor, tokenPin.descriptor,
        challengeSource.descriptor, subject.descriptor, subjectAlternativeNames.descriptor, keyType.descriptor,
        key.descriptor, serverKeygen.descriptor, proxy.descriptor, proxyUsername.descriptor,
        proxyPasswordSource.descriptor, timeout.descriptor,
    ]

    /// Pins, separated by commas. A blank among them is an error: its value may have been lost, for example by a variable
    /// that is not set.
    private static func pins(
        _ name: String, needs: [ParameterCondition] = [], summary: String
    ) -> Parameter<[String]> {
        Parameter(
            name, .pins, absent: [], isBlankRefused: true, needs: needs, summary: summary
        ) { text, _ throws(ParameterProblem) in
            let pins = text.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
            guard !pins.contains("") else {
                throw .expected("has an empty pin; write the pin there, or remove the parameter")
            }
            return pins
        }
    }

    private static func userName(
        _ name: String, needs: [ParameterCondition] = [], summary: String
    ) -> Parameter<String?> {
        Parameter(name, .string, absent: .some(nil), needs: needs, summary: summary) {
            text, _ throws(ParameterProblem) in
            guard text.isUserName else { throw .expected("must not have a colon or a control character (RFC 7617)") }
            return text
        }
    }
}
