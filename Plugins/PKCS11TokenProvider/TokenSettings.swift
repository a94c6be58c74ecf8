public import CertificateProviding

/// The provider's parameters, checked.
struct TokenSettings: Sendable {
    enum LoginPolicy: String, Sendable, CaseIterable { case auto, always, never }

    /// The names of the parameters in messages.
    private(set) var names: Names
    private(set) var uri: PKCS11URI
    let modulePath: String?
    private(set) var pinSource: SecretSource?
    /// A PIN in the URI itself.
    let pinValue: SecretBytes?
    let login: LoginPolicy
    let deletesObjects: Bool
    /// The side of TLS that the identity is for.
    let usage: IdentityUsage
    let timeout: Duration
    /// The entry in the store: another URI is another choice.
    private(set) var entryName: String

    /// Parts of sentences such as `set 'uri' to …`.
    struct Names: Sendable {
        var uri = "'uri'"
        var pinSource = "'pin-source'"

        /// Returns the names for a key store that another provider's parameter names.
        static func of(_ parameter: String) -> Names {
            Names(uri: "'\(parameter)'", pinSource: "'\(parameter)-pin-source'")
        }
    }

    static let pinValueIsUnsafe =
        "The URI contains the PIN ('pin-value'), readable for all who can read the configuration; write the PIN to a "
        + "file that only you can read, and set 'pin-source' to it."

    init(_ parameters: Parameters) throws(ProviderError) {
        names = Names()
        uri = if let uri = parameters[Parameter.uri] { uri } else { try PKCS11URI("pkcs11:") }
        modulePath = parameters[Parameter.modulePath]
        // The parameter goes before.
        if let source = parameters[Parameter.pinSource] {
            (pinSource, pinValue) = (source, nil)
        } else {
            pinSource = try uri.pinSource.map(Self.source(inURI:))
            pinValue = uri.pinValue
        }
        login = parameters[Parameter.login]
        deletesObjects = parameters[Parameter.deleteObjects]
        timeout = parameters[Parameter.timeout]
        usage = parameters[IdentityUsage.parameter]
        entryName = Self.entryName(modulePath, uri, usage)
    }

    /// Reads the settings of a key store at a place.
    init(_ location: KeyStoreLocation, _ parameters: Parameters) throws(ProviderError) {
        names = location.parameter.map(Names.of) ?? Names()
        uri = try PKCS11URI(location.uri)
        try Self.refusePIN(in: uri)
        modulePath = parameters[Parameter.modulePath]
        pinSource = if let source = location.pinSource { source } else { try uri.pinSource.map(Self.source(inURI:)) }
        pinValue = nil
        login = .auto
        deletesObjects = false
        timeout = parameters[Parameter.timeout]
        usage = .client
        entryName = Self.entryName(modulePath, uri, usage)
    }

    /// The settings for another object on the same tokens.
    func narrowed(to uri: PKCS11URI) throws(ProviderError) -> TokenSettings {
        try Self.refusePIN(in: uri)
        var copy = self
        copy.uri = uri
        if let source = uri.pinSource { copy.pinSource = try Self.source(inURI: source) }
        copy.entryName = Self.entryName(modulePath, uri, usage)
        copy.names = Names(uri: "the URI", pinSource: "the pin-source of the URI")
        return copy
    }

    private static func refusePIN(in uri: PKCS11URI) throws(ProviderError) {
        guard uri.pinValue == nil else {
            throw ProviderError(
                .configurationInvalid,
                "The URI contains a PIN, readable for all who can read the configuration; write the PIN to a file that "
                    + "only you can read, and name that as its pin-source.")
        }
    }

    private static func entryName(_ modulePath: String?, _ uri: PKCS11URI, _ usage: IdentityUsage) -> String {
        StoredIdentity.name(distinguishedBy: [modulePath ?? "", uri.text] + usage.distinguishingProperties)
    }

    /// The `pin-source` of a URI: a file, by its path or as a `file:` URI (RFC 7512, section 2.4).
    private static func source(inURI text: String) throws(ProviderError) -> SecretSource {
        guard !text.hasPrefix("|") else {
            throw ProviderError(
                .configurationInvalid,
                "A 'pin-source' that runs a command ('|…') is refused; write the PIN to a file that only you can read.")
        }
        guard let path = text.lowercased().hasPrefix("file:") ? path(ofFileURI: text) : text, path.hasPrefix("/"),
            !path.utf8.contains(0)
        else {
            throw ProviderError(
                .configurationInvalid,
                "The 'pin-source' of the URI must be an absolute path on this host, or a 'file:' URI of one.")
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
        return ByteText.percentDecoded(rest.utf8).flatMap { String(validating: $0, as: UTF8.self) }
    }
}

extension TokenSettings {
    enum Parameter {
        static let uri = CertificateProviding.Parameter<PKCS11URI?>(
            "uri", .string, defaultValue: "any identity on any token", refusesBlank: true,
            summary: "The RFC 7512 URI of the identity, or as much of it as identifies it."
        ) { text, _ throws(ParameterProblem) in
            let uri: PKCS11URI
            do throws(ProviderError) { uri = try PKCS11URI(text) } catch { throw .error(error) }
            guard uri.meansIdentity else {
                throw .expected("must name an identity: leave out 'type', or set it to 'cert' or 'private'")
            }
            return uri
        }
        static let modulePath = CertificateProviding.Parameter.string(
            "module-path", .library, defaultValue: "the modules that p11-kit is configured with",
            summary: "The PKCS#11 library to load, or its directory if 'uri' has 'module-name'.")
        static let pinSource = CertificateProviding.Parameter.secretSource(
            "pin-source", defaultValue: "the URI's pin-source, else a prompt", summary: "The secret source of the PIN.")
        static let login = CertificateProviding.Parameter<LoginPolicy>.choice(
            "login", default: .auto,
            summary: "'auto' logs in if needed, 'always' before anything is read; 'never' uses public objects only.")
        static let deleteObjects = CertificateProviding.Parameter.flag(
            "delete-objects",
            summary: "Whether deleting the identity also destroys its objects on the token, permanently.")
        static let timeout = CertificateProviding.Parameter.seconds(
            "timeout", default: 20, in: 1...3600,
            summary: "How many seconds a caller waits for the module, before the operation fails.")
    }
}

extension PKCS11TokenProvider {
    /// The provider's entry for a ``/CertificateProviding/ProviderRegistry``.
    package static var descriptor: ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "PKCS#11 token", summary: "An identity whose private key stays in a PKCS#11 token.",
            parameters: [
                TokenSettings.Parameter.uri.descriptor, TokenSettings.Parameter.modulePath.descriptor,
                TokenSettings.Parameter.pinSource.descriptor, TokenSettings.Parameter.login.descriptor,
                TokenSettings.Parameter.deleteObjects.descriptor, TokenSettings.Parameter.timeout.descriptor,
                IdentityUsage.parameter.descriptor,
            ], distinguishedBy: [TokenSettings.Parameter.uri.name, TokenSettings.Parameter.modulePath.name]
        ) { environment, parameters throws(ProviderError) in
            try PKCS11TokenProvider(environment, parameters)
        }
    }
}

extension ProviderDescriptor {
    /// The provider `pkcs11`: an identity on a PKCS#11 token.
    public static var pkcs11: ProviderDescriptor { PKCS11TokenProvider.descriptor }
}
