public import CertificateProviding
import Crypto

/// The provider's parameters, checked.
struct TokenSettings: Sendable {
    enum Login: String, Sendable { case auto, always, never }

    let uri: TokenURI
    let modulePath: String?
    let pinSource: SecretSource?
    /// A PIN in the URI itself.
    let pinValue: SecretBytes?
    let login: Login
    let deletesObjects: Bool
    let timeout: Duration
    /// The entry in the store: another URI is another choice.
    let entryName: String

    static let defaultTimeout = 20

    static let pinValueIsUnsafe =
        "The URI contains the PIN ('pin-value'), readable for all who can read the configuration; write the PIN to a file "
        + "that only you can read, and set 'pin-source' to it."

    init(_ parameters: ProviderParameters, provider: ProviderID) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: Self.parameters, provider: provider)
        let text = parameters.string(Parameter.uri)
        guard text?.isEmpty != true else {
            throw parameters.invalid(Parameter.uri, "must not be empty", provider: provider)
        }
        uri = try parameters.reading(Parameter.uri, provider: provider) { () throws(CertificateProviderError) in
            try TokenURI(text ?? "pkcs11:")
        }
        guard uri.meansIdentity else {
            throw parameters.invalid(
                Parameter.uri, "must name an identity: leave out 'type', or set it to 'cert' or 'private'",
                provider: provider)
        }
        modulePath = parameters.string(Parameter.modulePath)
        if let source = try parameters.secretSource(Parameter.pinSource, provider: provider) {
            pinSource = source
        } else {
            pinSource = try uri.pinSource.map { text throws(CertificateProviderError) in
                try Self.source(inURI: text, provider)
            }
        }
        // The parameter goes before.
        pinValue = parameters.string(Parameter.pinSource) == nil ? uri.pinValue : nil
        guard let login = Login(rawValue: parameters.string(Parameter.login) ?? "auto") else {
            throw parameters.invalid(Parameter.login, "must be auto, always or never", provider: provider)
        }
        self.login = login
        deletesObjects = try Self.flag(parameters, Parameter.deleteObjects, provider)
        let timeout = parameters.string(Parameter.timeout) ?? String(Self.defaultTimeout)
        guard let seconds = Int(timeout), (1...3600).contains(seconds) else {
            throw parameters.invalid(
                Parameter.timeout, "must be a number of seconds from 1 to 3600", provider: provider)
        }
        self.timeout = .seconds(seconds)
        let name = Array("\(modulePath ?? "")\0\(uri.text)".utf8)
        entryName = String(Array(SHA256.hash(data: name)).hexEncoded.prefix(32))
    }

    /// The `pin-source` of a URI: a file, by its path or as a `file:` URI (RFC 7512, section 2.4).
    private static func source(
        inURI text: String, _ provider: ProviderID
    ) throws(CertificateProviderError) -> SecretSource {
        guard !text.hasPrefix("|") else {
            throw CertificateProviderError(
                .configurationInvalid,
                "A 'pin-source' that runs a command ('|…') is refused; write the PIN to a file that only you can read.",
                provider: provider)
        }
        guard let path = text.lowercased().hasPrefix("file:") ? path(ofFileURI: text) : text, path.hasPrefix("/"),
            !path.utf8.contains(0)
        else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The 'pin-source' of the URI must be an absolute path on this host, or a 'file:' URI of one.",
                provider: provider)
        }
        return .file(path)
    }

    /// `file:/path`, `file:///path` or `file://localhost/path` (RFC 8089, section 2), percent-encoded in its own right.
    private static func path(ofFileURI text: String) -> String? {
        var rest = text.dropFirst(5)
        if rest.hasPrefix("//") {
            rest = rest.dropFirst(2)
            let host = rest.prefix { $0 != "/" }
            guard host.isEmpty || host.lowercased() == "localhost" else { return nil }
            rest = rest.dropFirst(host.count)
        }
        return percentDecoded(rest)
    }

    /// `nil` where a percent sign is not followed by two hexadecimal digits (RFC 3986, section 2.1), or it is no UTF-8.
    private static func percentDecoded(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            let digits = rest.prefix(2)
            guard digits.count == 2, digits.allSatisfy({ Character(UnicodeScalar($0)).isHexDigit }),
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
            else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func flag(
        _ parameters: ProviderParameters, _ name: String, _ provider: ProviderID
    ) throws(CertificateProviderError) -> Bool {
        switch parameters.string(name)?.lowercased() {
        case nil, "false": false
        case "true": true
        default: throw parameters.invalid(name, "must be true or false", provider: provider)
        }
    }
}

extension TokenSettings {
    enum Parameter {
        static let uri = "uri"
        static let modulePath = "module-path"
        static let pinSource = "pin-source"
        static let login = "login"
        static let deleteObjects = "delete-objects"
        static let timeout = "timeout"
    }

    static let parameters = [
        ParameterDescriptor(
            Parameter.uri, .string, defaultValue: "any identity on any token",
            summary: "The RFC 7512 URI of the identity, or as much of it as identifies it."),
        ParameterDescriptor(
            Parameter.modulePath, .library, defaultValue: "the modules that p11-kit is configured with",
            summary: "The PKCS#11 library to load, or its directory if 'uri' has 'module-name'."),
        ParameterDescriptor(
            Parameter.pinSource, .secretSource, defaultValue: "the URI's pin-source, else a prompt",
            summary: "The secret source of the PIN."),
        ParameterDescriptor(
            Parameter.login, .string, defaultValue: "auto",
            summary: "'auto' logs in if needed, 'always' before anything is read; 'never' uses public objects only."),
        ParameterDescriptor(
            Parameter.deleteObjects, .boolean, defaultValue: "false",
            summary: "Whether deleting the identity also destroys its objects on the token, permanently."),
        ParameterDescriptor(
            Parameter.timeout, .string, defaultValue: String(TokenSettings.defaultTimeout),
            summary: "How many seconds a caller waits for the module, before the operation fails."),
    ]
}

extension PKCS11TokenProvider {
    /// For a registry.
    public static var descriptor: ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "PKCS#11 token", summary: "An identity whose private key stays in a PKCS#11 token.",
            parameters: TokenSettings.parameters, makeProvider: { PKCS11TokenProvider(environment: $0) })
    }
}
