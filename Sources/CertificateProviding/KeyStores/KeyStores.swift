/// The key stores of a program, by the scheme of their URIs. Providers get it as ``ProviderEnvironment/keyStores``.
public struct KeyStores: Sendable {
    /// Makes a store for a place; nil for a scheme that is not installed.
    private let make: @Sendable (KeyStoreLocation) throws(ProviderError) -> (any KeyStore)?
    private let schemes: [String]
    private let whereabouts: @Sendable () -> String?

    /// Creates the key stores of a program. ``ProviderRegistry/keyStores(_:in:)`` does it for those of a registry.
    ///
    /// - Parameters:
    ///   - schemes: The built-in ones, for errors.
    ///   - make: Makes a store for a place; nil for a scheme that is not installed. Does no I/O.
    public init(
        schemes: [String], _ make: @escaping @Sendable (KeyStoreLocation) throws(ProviderError) -> (any KeyStore)?
    ) {
        self.init(schemes: schemes, whereabouts: { nil }, make)
    }

    /// - Parameter whereabouts: Returns where others are installed, for errors: a clause.
    init(
        schemes: [String], whereabouts: @escaping @Sendable () -> String?,
        _ make: @escaping @Sendable (KeyStoreLocation) throws(ProviderError) -> (any KeyStore)?
    ) {
        (self.schemes, self.whereabouts, self.make) = (schemes, whereabouts, make)
    }

    /// For an environment without key stores.
    public static let none = KeyStores(schemes: []) { _ in nil }

    /// Returns a store for the place, or the place of the key, that a URI names. Does no I/O for a built-in store; a plugin
    /// may be started to learn of its parameters.
    ///
    /// - Parameters:
    ///   - uri: Such as `store:`, `pkcs11:token=hsm`, or the URI of a key.
    ///   - pinSource: The source of the store's PIN.
    ///   - parameter: The provider's parameter that has the URI, for the store's messages.
    /// - Throws: `configurationInvalid` for a URI that no installed store knows, or that its store cannot read, and errors of
    ///   a plugin.
    public func store(
        _ uri: String, pinSource: SecretSource? = nil, parameter: String? = nil
    ) throws(ProviderError) -> any KeyStore {
        guard let location = KeyStoreLocation(uri: uri, pinSource: pinSource, parameter: parameter),
            let store = try make(location)
        else {
            let others = whereabouts()
            let known = schemes.map { "\($0):" } + (others == nil && !schemes.isEmpty ? [] : ["the scheme of a plugin"])
            throw ProviderError(
                .configurationInvalid,
                "No key store is installed for the URI; it must begin with \(known.alternatives)"
                    + (others.map { "; \($0)." } ?? "."))
        }
        return store
    }
}

/// The place of a key store.
public struct KeyStoreLocation: Sendable {
    /// Such as `pkcs11:token=hsm`.
    public let uri: String
    /// In lower case, without the colon.
    public let scheme: String
    /// The source of the PIN, where the configuration names one.
    public let pinSource: SecretSource?
    /// The provider's parameter that has the URI, for messages: `key` say, whose PIN's source is `key-pin-source`.
    public let parameter: String?

    /// Returns nil for a text without a scheme (RFC 3986, section 3.1).
    public init?(uri: String, pinSource: SecretSource?, parameter: String? = nil) {
        guard let colon = uri.firstIndex(of: ":") else { return nil }
        let scheme = uri[..<colon].lowercased()
        guard let first = scheme.utf8.first, (0x61...0x7a).contains(first),
            scheme.utf8.allSatisfy({
                (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || [0x2b, 0x2d, 0x2e].contains($0)
            })
        else { return nil }
        self.uri = uri
        self.scheme = scheme
        self.pinSource = pinSource
        self.parameter = parameter
    }
}

/// An installed key store: the scheme of its URIs, its parameters, and how to make one.
public struct KeyStoreDescriptor: Sendable {
    /// The scheme of its URIs, in lower case and without the colon.
    public let scheme: String
    /// The store's name in errors, and that of its part of this host's identity store.
    public let id: ProviderID
    /// For people, such as `PKCS#11 token`.
    public let displayName: String
    /// One sentence.
    public let summary: String
    /// `KeyStore.<scheme>.<name>` in the property file.
    public let parameters: [ParameterDescriptor]
    /// Whether its keys are outside this host's identity store, and so stay when that is destroyed.
    package let isExternal: Bool
    /// Whether it loads libraries of others into the process, which may write to its standard streams.
    package var loadsVendorCode: Bool { parameters.contains { $0.kind == .library } }
    /// Makes a store for a place. Does no I/O and prompts for nothing; the parameters are parsed and checked.
    ///
    /// Throws `configurationInvalid` for a place whose URI the store cannot read.
    package let make:
        @Sendable (ProviderEnvironment, KeyStoreLocation, Parameters) throws(ProviderError) -> any KeyStore

    /// Creates a descriptor.
    ///
    /// - Parameters:
    ///   - scheme: The scheme of its URIs, in lower case and without the colon.
    ///   - id: The store's name in errors, and that of its part of this host's identity store.
    ///   - displayName: A name for people, such as `PKCS#11 token`.
    ///   - summary: One sentence.
    ///   - parameters: The store's own parameters; a configuration has them as `KeyStore.<scheme>.<name>`.
    ///   - isExternal: Whether its keys are outside this host's identity store.
    ///   - make: Makes a store for a place. Does no I/O and prompts for nothing; the parameters are parsed and checked.
    public init(
        scheme: String, id: ProviderID, displayName: String, summary: String, parameters: [ParameterDescriptor],
        isExternal: Bool = true,
        make:
            @escaping @Sendable (ProviderEnvironment, KeyStoreLocation, Parameters) throws(ProviderError) ->
            any KeyStore
    ) {
        self.scheme = scheme
        self.id = id
        self.displayName = displayName
        self.summary = summary
        self.parameters = parameters
        self.isExternal = isExternal
        self.make = make
    }
}
