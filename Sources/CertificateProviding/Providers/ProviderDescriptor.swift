/// An installed provider: its name, its parameters, and how to make one.
public struct ProviderDescriptor: Sendable {
    /// The name in the configuration, such as `pkcs12`.
    public let id: ProviderID
    /// For people, such as `PKCS#12 file`.
    public let displayName: String
    /// One sentence.
    public let summary: String
    /// With the parameters that the framework adds, such as the source of a key store's PIN.
    public let parameters: [ParameterDescriptor]
    /// Whether it loads libraries of others into the process, which may write to its standard streams.
    package var loadsVendorCode: Bool { parameters.contains { $0.kind == .library } }
    private let make: @Sendable (ProviderEnvironment, Parameters) throws(ProviderError) -> any CertificateProvider

    /// Creates a descriptor.
    ///
    /// - Parameters:
    ///   - id: The name in the configuration, such as `pkcs12`.
    ///   - displayName: A name for people, such as `PKCS#12 file`.
    ///   - summary: One sentence.
    ///   - parameters: The provider's own; the framework adds others, such as the source of a key store's PIN.
    ///   - names: The parameters of which another value means another identity; nil for all but sources of secrets, trust, timeouts and
    ///     `usage`. A plugin's host keeps apart what configurations store by them.
    ///   - make: Makes the provider of parameters that are parsed and checked. Does no I/O, starts no process and
    ///     prompts for nothing.
    public init(
        id: ProviderID, displayName: String, summary: String, parameters: [ParameterDescriptor],
        distinguishedBy names: [String]? = nil,
        make:
            @escaping @Sendable (ProviderEnvironment, Parameters) throws(ProviderError) ->
            any CertificateProvider
    ) {
        self.id = id
        self.displayName = displayName
        self.summary = summary
        self.parameters = parameters.flatMap(\.withCompanion).map { parameter in
            names.map { parameter.distinguishing($0.contains(parameter.name)) } ?? parameter
        }
        self.make = make
    }

    /// Parses and checks the parameters, and makes the provider.
    ///
    /// - Throws: `unsupportedParameter`, `configurationInvalid`, and what the provider says of its parameters.
    public func makeProvider(
        _ environment: ProviderEnvironment, _ texts: ProviderParameters
    ) throws(ProviderError) -> any CertificateProvider {
        try make(environment, try check(texts, environment))
    }

    /// Parses and checks the parameters. Does no I/O.
    ///
    /// - Throws: `unsupportedParameter` for a name that the provider does not have; `configurationInvalid`, with the
    ///   place, for a value that is missing, cannot be parsed or does not fit another one.
    public func check(
        _ texts: ProviderParameters, _ environment: ProviderEnvironment
    ) throws(ProviderError) -> Parameters {
        try Parameters(texts, of: parameters, owner: id, keyStores: environment.keyStores)
    }
}
