import CertificateProviding
import Enrolment
import ProviderTransport

/// The parameters of the provider, which are `CertificateProvider.vault.<name>` in the property file.
enum VaultParameter {
    static let url = ServerParameter.url(
        isSecure: true, summary: "URL of the server, such as https://vault.example.com:8200.")
    static let trustAnchors = ServerParameter.trustAnchors()
    static let pin = ServerParameter.pins()
    static let mount = path("mount", absent: "pki", summary: "Path of the PKI engine.")
    static let role = path("role", absent: nil, summary: "Role of the PKI engine. It decides what is issued.")
    static let tokenSource = Parameter.requiredSecretSource(
        "token-source", summary: "Secret source of the Vault token.")
    static let subject = Parameter<CertificateRequest.Names>(
        "subject", .string, absent: nil, summary: "Subject of the certificate (RFC 4514), such as CN=host17."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try CertificateRequest.Names(subject: text) } catch {
            throw .error(error)
        }
    }
    static let keyType = Parameter<KeyType>.choice("key-type", default: .p256, summary: "Type of the private key.")
    static let key = Parameter<any KeyStore>.keyStore(
        "key", default: "store:", summary: "Key store of the private key: store:, or a token's RFC 7512 URI.")
    static let timeout = ServerParameter.timeout()

    /// In the order of the documentation.
    static let all: [ParameterDescriptor] = [
        url.descriptor, trustAnchors.descriptor, pin.descriptor, mount.descriptor, role.descriptor,
        tokenSource.descriptor, subject.descriptor, IdentityUsage.parameter.descriptor, keyType.descriptor,
        key.descriptor,
        ServerParameter.proxy.descriptor, ServerParameter.proxyUsername.descriptor,
        ServerParameter.proxyPasswordSource.descriptor, timeout.descriptor,
    ]

    /// A text that becomes a part of the request's path.
    private static func path(_ name: String, absent: String?, summary: String) -> Parameter<String> {
        Parameter(
            name, .string, absent: absent, defaultValue: absent, summary: summary
        ) { text, _ throws(ParameterProblem) in
            guard text.utf8.allSatisfy({ $0.isInPath }), !text.hasPrefix("/"), !text.hasSuffix("/") else {
                throw .expected("must consist of letters, digits, '-', '_', '.', and '/' in between")
            }
            return text
        }
    }
}

/// The parameters, parsed and checked.
struct VaultSettings: Sendable {
    let server: ServerURL
    let trust: ConfiguredTrust
    let proxy: ProxySettings
    let tokenSource: SecretSource
    /// Such as `pki/sign/host`.
    let operation: String
    let plan: EnrolmentPlan

    init(_ parameters: Parameters) throws(ProviderError) {
        server = parameters[VaultParameter.url]
        trust = ConfiguredTrust(anchors: VaultParameter.trustAnchors, pins: VaultParameter.pin, in: parameters)
        proxy = try ProxySettings(parameters)
        tokenSource = parameters[VaultParameter.tokenSource]
        let names = parameters[VaultParameter.subject]
        operation = "\(parameters[VaultParameter.mount])/sign/\(parameters[VaultParameter.role])"
        plan = EnrolmentPlan(
            names: names, usage: parameters[IdentityUsage.parameter], keyStore: parameters[VaultParameter.key],
            keyType: parameters[VaultParameter.keyType],
            timeout: parameters[VaultParameter.timeout],
            storageName: StoredIdentity.name(
                distinguishedBy: [server.origin + server.path, operation, names.subjectText]
                    + parameters[IdentityUsage.parameter].distinguishingProperties))
        // The server gets the token.
        try trust.requireConfigured(for: server)
        guard server.query == nil else { throw parameters.invalid(VaultParameter.url, "must not have a query") }
    }
}

extension UInt8 {
    fileprivate var isInPath: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-_./".utf8.contains(self)
        }
    }
}
