/// The providers that a program offers. A plain value: only the command, or the service that embeds the framework, adds
/// providers to it.
public struct ProviderRegistry: Sendable {
    private var byID: [ProviderID: ProviderDescriptor] = [:]
    private var byScheme: [String: KeyStoreDescriptor] = [:]

    /// Creates a registry.
    ///
    /// - Throws: `configurationInvalid` if two descriptors have the same id or scheme.
    public init(
        _ descriptors: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = []
    ) throws(CertificateProviderError) {
        for descriptor in descriptors { try register(descriptor) }
        for descriptor in keyStores { try register(descriptor) }
    }

    /// Adds a provider.
    ///
    /// - Throws: `configurationInvalid` if its id is already registered.
    public mutating func register(_ descriptor: ProviderDescriptor) throws(CertificateProviderError) {
        guard byID[descriptor.id] == nil else {
            throw CertificateProviderError(
                .configurationInvalid, "Two providers are called '\(descriptor.id)'; rename one of them.",
                provider: descriptor.id)
        }
        byID[descriptor.id] = descriptor
    }

    /// Adds a key store.
    ///
    /// - Throws: `configurationInvalid` if its scheme is already registered.
    public mutating func register(_ descriptor: KeyStoreDescriptor) throws(CertificateProviderError) {
        guard byScheme[descriptor.scheme] == nil else {
            throw CertificateProviderError(
                .configurationInvalid, "Two key stores have the scheme '\(descriptor.scheme)'; remove one of them.")
        }
        byScheme[descriptor.scheme] = descriptor
    }

    /// All key stores, in alphabetical order of their schemes.
    public var keyStores: [KeyStoreDescriptor] { byScheme.values.sorted { $0.scheme < $1.scheme } }

    /// Returns the key stores as providers get them.
    ///
    /// - Parameters:
    ///   - parameters: The configured parameters of each store, by scheme.
    ///   - environment: Returns the environment of the store with that part of the identity store.
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for a parameter.
    public func keyStores(
        _ parameters: [String: ProviderParameters] = [:],
        in environment: @escaping @Sendable (ProviderID) throws(CertificateProviderError) -> ProviderEnvironment
    ) throws(CertificateProviderError) -> KeyStores {
        var checked: [String: Parameters] = [:]
        for descriptor in keyStores {
            checked[descriptor.scheme] = try Parameters(
                parameters[descriptor.scheme] ?? ProviderParameters(), of: descriptor.parameters,
                owner: descriptor.storageID, keyStores: .none)
        }
        return KeyStores(schemes: keyStores.map(\.scheme)) {
            [byScheme, checked] location throws(CertificateProviderError) in
            guard let descriptor = byScheme[location.scheme], let parameters = checked[location.scheme] else {
                return nil
            }
            return try descriptor.make(try environment(descriptor.storageID), location, parameters)
        }
    }

    /// Returns the provider with this id; `nil` if it is not registered.
    public subscript(id: ProviderID) -> ProviderDescriptor? { byID[id] }

    /// All providers, in alphabetical order of their ids.
    public var descriptors: [ProviderDescriptor] { byID.values.sorted { $0.id < $1.id } }
}
