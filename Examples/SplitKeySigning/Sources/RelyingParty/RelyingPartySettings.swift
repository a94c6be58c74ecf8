import CertificateProviding
import CertificateTLS
import ProviderTransport

/// The section `RelyingParty.` of the property file.
enum RelyingPartySettings {
    static let baseURL = Parameter<ServerURL?>(
        "RelyingParty.base-url", .serverURL,
        summary: "The URL of this relying party. The OpenID provider has BASE/login as its redirect URI."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text), server.query == nil, server.isSecure || server.isLoopback else {
            throw .expected(
                "must be an https: URL, or an http: one of this host, without a user, a query or a fragment")
        }
        return server
    }
    static let issuer = Parameter<String?>(
        "RelyingParty.issuer", .serverURL,
        summary: "The OpenID provider: the URL that its tokens have as issuer, https:.",
        parse: secureURL)
    static let authority = Parameter<String?>(
        "RelyingParty.authority", .serverURL,
        summary: "The base URL of the verifier of signatures, https:. Its receipts have it as issuer.",
        parse: secureURL)
    static let clientID = Parameter<String?>(
        "RelyingParty.client-id", .string, summary: "The identifier of this relying party, from its registration."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty else { throw .expected("must not be blank") }
        return text
    }
    static let clientSecret = Parameter<SecretSource?>.secretSource(
        "RelyingParty.client-secret-source", summary: "Secret source of the secret that belongs to it.")
    static let state = Parameter<String?>(
        "RelyingParty.state", .path, summary: "The directory that remembers which key each user signs with."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be an absolute path") }
        return text
    }
    static let trustAnchors = ServerParameter.trustAnchors(
        "RelyingParty.trust-anchors", defaultValue: "the system trust store",
        summary: "PEM file with the CAs of the OpenID provider and the verifier.")
    static let pins = ServerParameter.pins("RelyingParty.pin")
    static let timeout = Parameter<Duration>.seconds(
        "RelyingParty.timeout", default: 8, in: 1...60,
        summary: "How long the OpenID provider or the verifier may take. Hosts wait ten seconds.")

    static let section = SettingsSection(
        title: "Relying party", namespaces: ["RelyingParty."],
        [
            baseURL.descriptor, issuer.descriptor, authority.descriptor, clientID.descriptor, clientSecret.descriptor,
            state.descriptor, trustAnchors.descriptor, pins.descriptor, timeout.descriptor,
        ])

    private static func secureURL(_ text: String, _ context: ParameterContext) throws(ParameterProblem) -> String {
        guard let server = ServerURL(text), server.isSecure, server.query == nil else {
            throw .expected("must be an https: URL without a user, a query or a fragment")
        }
        return text
    }
}

/// What the parts of a relying party need to know.
struct RelyingPartyConfiguration: Sendable {
    var clientID: String
    var clientSecret: SecretBytes
    /// `<base>/login`.
    var redirectURI: String
    var issuer: String
    var authority: String
    /// The directory of ``BoundKeys``.
    var state: String
    var trust: ServerTrust
    var timeout = Duration.seconds(8)
    /// How many hashes a user may be given in ten minutes.
    var documentsPerUser = 10_000
    /// How many logins may be going on.
    var logins = 20_000

    init(
        clientID: String, clientSecret: SecretBytes, redirectURI: String, issuer: String, authority: String,
        state: String, trust: ServerTrust
    ) {
        (self.clientID, self.clientSecret, self.redirectURI) = (clientID, clientSecret, redirectURI)
        (self.issuer, self.authority, self.state, self.trust) = (issuer, authority, state, trust)
    }

    /// Reads the section, the secret and the trust anchors. Blocks on files.
    ///
    /// - Throws: `configurationInvalid` for what is missing; errors of the secret's source and of the files.
    init(_ settings: Parameters) throws(ProviderError) {
        let base = try settings.required(RelyingPartySettings.baseURL)
        let path = base.path.hasSuffix("/") ? String(base.path.dropLast()) : base.path
        let secret = try settings.required(RelyingPartySettings.clientSecret)
        let trust = ConfiguredTrust(
            anchors: RelyingPartySettings.trustAnchors, pins: RelyingPartySettings.pins, in: settings)
        self.init(
            clientID: try settings.required(RelyingPartySettings.clientID),
            clientSecret: try SecretReader().read(secret),
            redirectURI: base.origin + path + "/login", issuer: try settings.required(RelyingPartySettings.issuer),
            authority: try settings.required(RelyingPartySettings.authority),
            state: try settings.required(RelyingPartySettings.state), trust: try trust.serverTrust())
        timeout = settings[RelyingPartySettings.timeout]
    }
}

extension Parameters {
    func required<Value>(_ parameter: Parameter<Value?>) throws(ProviderError) -> Value {
        guard let value = self[parameter] else { throw invalid(parameter, "is missing; set it") }
        return value
    }
}
