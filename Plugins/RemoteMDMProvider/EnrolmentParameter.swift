import CertificateProviding
import ProviderTransport

/// The parameters of the provider.
enum EnrolmentParameter {
    static let `protocol` = Parameter<EnrolmentSettings.EnrolmentKind>.choice(
        "protocol", default: nil, summary: "est (RFC 7030) or scep (RFC 8894).")
    static let url = ServerParameter.url(
        summary: "URL of the server. EST: https://HOST[:PORT][/LABEL]. SCEP: the URL of its SCEP service, http: or "
            + "https:.")
    static let trustAnchors = ServerParameter.trustAnchors(
        summary: "PEM file with the CA of the server's certificate. Without this, ca-fingerprint and pin, fetch asks "
            + "on the terminal. SCEP over https: without this and pin, the system trust store authenticates the "
            + "connection.")
    static let caFingerprint = Parameter<[UInt8]?>(
        "ca-fingerprint", .string, refusesBlank: true,
        summary: "SHA-256 hash of the CA certificate (EST: of the root certificate), in hexadecimal."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try CAFingerprint.parse(text) } catch { throw .error(error) }
    }
    static let caIdentifier = Parameter.string(
        "ca-identifier", needs: [.value("protocol", "scep")],
        summary: "SCEP: identifier of the CA, if the server has several (the message of GetCACert).")
    static let scepAllow3DES = Parameter.flag(
        "scep-allow-3des", needs: [.value("protocol", "scep")],
        summary: "SCEP: whether triple DES is used with a server that does not announce AES.")
    static let pin = ServerParameter.pins()
    static let pinMode = Parameter<Bool>.pinOnly()
    static let username = ServerParameter.userName(
        summary: "User name for HTTP Basic or Digest, or for grant=password.")
    static let passwordSource = Parameter.secretSource(
        "password-source", defaultValue: "prompt, if there is a username", needs: [.given("username")],
        summary: "Secret source of the password.")
    static let bearerSource = Parameter.secretSource(
        "bearer-source", excludes: ["token-url", "username"],
        summary: "Secret source of a bearer token (RFC 6750).")
    static let clientCertificate = Parameter<ClientCertificate.Place?>(
        "client-certificate", .certificate,
        summary: "Certificate that authenticates this host until the server has issued one, such as a device "
            + "certificate: a PEM file, or a key store's URI with pin-source in it."
    ) { text, context throws(ParameterProblem) in
        guard KeyStoreLocation(uri: text, pinSource: nil) != nil else { return .file(text) }
        do throws(ProviderError) { return .keyStore(text, try context.keyStores.store(text)) } catch {
            throw .error(error)
        }
    }
    static let clientKeySource = Parameter.secretSource(
        "client-key-source", needs: [.given("client-certificate")],
        summary: "Secret source of the private key of client-certificate: PEM, not encrypted.")
    static let tokenURL = Parameter<ServerURL?>(
        "token-url", .serverURL, needs: [.given("client-id")],
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
    static let tokenTrustAnchors = ServerParameter.trustAnchors(
        "token-trust-anchors", defaultValue: "the system trust store, for another server",
        needs: [.given("token-url")],
        summary: "OAuth: PEM file with the CA of the token endpoint's certificate.")
    static let tokenPin = ServerParameter.pins(
        "token-pin", needs: [.given("token-url")],
        summary: "OAuth: additional pins for the token endpoint, as with pin.")
    static let tokenPinMode = Parameter<Bool>.pinOnly(
        "token-pin-mode", needs: [.given("token-pin")],
        summary: "OAuth: pin-and-pki, or pin-only for a token endpoint with a self-signed certificate.")
    static let challengeSource = Parameter.secretSource(
        "challenge-source", needs: [.value("protocol", "scep")],
        summary: "SCEP: secret source of the challenge password.")
    static let subject = Parameter.required(
        "subject", .distinguishedName, summary: "Subject of the certificate (RFC 4514), such as CN=client,O=Example.")
    static let names = Parameter<NameRule?>(
        "names", .string, defaultValue: "another subject is used with a warning",
        summary: "requested: the certificate must have the subject; server: the server decides on the subject."
    ) { text, _ throws(ParameterProblem) in
        guard let rule = NameRule(rawValue: text) else { throw .expected("must be requested or server") }
        return rule
    }
    static let subjectAlternativeNames = Parameter<[AlternativeName]>(
        "subject-alternative-names", .names, absent: [],
        summary: "dns:, ip:, email:, uri:, upn: and sid: names, separated by commas; one that has a comma itself in "
            + "double quotes."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try AlternativeName.list(text) } catch { throw .error(error) }
    }
    static let keyType = Parameter<KeyType?>(
        "key-type", .string, defaultValue: "the server's choice, else p256 (SCEP: rsa2048)",
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
    static let timeout = ServerParameter.timeout(
        summary: "Seconds that the server may take for a whole enrolment, and as many again while the request is "
            + "pending.")

    enum NameRule: String { case requested, server }

    /// In the order of the documentation.
    static let all: [ParameterDescriptor] = [
        `protocol`.descriptor, url.descriptor, trustAnchors.descriptor, caFingerprint.descriptor,
        caIdentifier.descriptor, scepAllow3DES.descriptor, pin.descriptor, pinMode.descriptor, username.descriptor,
        passwordSource.descriptor, bearerSource.descriptor, clientCertificate.descriptor, clientKeySource.descriptor,
        tokenURL.descriptor, clientID.descriptor, clientSecretSource.descriptor, clientAuthentication.descriptor,
        scope.descriptor, grant.descriptor, tokenTrustAnchors.descriptor, tokenPin.descriptor,
        tokenPinMode.descriptor,
        challengeSource.descriptor, subject.descriptor, names.descriptor, subjectAlternativeNames.descriptor,
        IdentityUsage.parameter.descriptor, keyType.descriptor, key.descriptor, serverKeygen.descriptor,
        ServerParameter.proxy.descriptor,
        ServerParameter.proxyUsername.descriptor, ServerParameter.proxyPasswordSource.descriptor, timeout.descriptor,
    ]
}
