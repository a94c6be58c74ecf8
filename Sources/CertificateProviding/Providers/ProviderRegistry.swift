/// Providers and key stores that are installed beside a program, such as plugins. A ``ProviderRegistry`` asks it for those
/// that it does not have itself.
package protocol ProviderSource: Sendable {
    /// The ids of the installed providers, in alphabetical order. Blocks on the file system at most.
    var providerIDs: [ProviderID] { get }

    /// The places of installed providers and key stores, for errors: a clause without a period. Blocks on the file system
    /// at most.
    var whereabouts: String { get }

    /// Returns a provider; `nil` if it is not installed. Blocks for a bounded time, such as for the start of a plugin.
    ///
    /// - Parameter configured: What the configuration says for it, which may be more or less than it has parameters.
    /// - Throws: `configurationInvalid` for one that is installed and must not be used, and errors of its start.
    func provider(
        _ id: ProviderID, _ configured: ProviderParameters
    ) throws(ProviderError) -> ProviderDescriptor?

    /// Returns the key store of a URI scheme; `nil` if it is not installed. Blocks as ``provider(_:_:)`` does.
    ///
    /// - Throws: As ``provider(_:_:)``.
    func keyStore(
        _ scheme: String, _ configured: ProviderParameters
    ) throws(ProviderError) -> KeyStoreDescriptor?

    /// Returns a source that looks into `directory`, an absolute path, before all others.
    func looking(in directory: String) -> any ProviderSource
}

/// The providers that a program offers. A plain value: only the command, or the service that embeds the framework, adds
/// providers to it.
public struct ProviderRegistry: Sendable {
    private var byID: [ProviderID: ProviderDescriptor] = [:]
    private var byScheme: [String: KeyStoreDescriptor] = [:]
    private var source: (any ProviderSource)?
    /// The sections of the property file that the program reads, besides those of the Logon manager.
    package let sections: [SettingsSection]

    /// Creates a registry.
    ///
    /// - Parameters:
    ///   - descriptors: The providers of the program.
    ///   - keyStores: The key stores of the program.
    ///   - sections: Sections of the property file.
    /// - Throws: `configurationInvalid` if two descriptors have the same id or scheme.
    public init(
        _ descriptors: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        sections: [SettingsSection] = []
    ) throws(ProviderError) {
        try self.init(descriptors, keyStores: keyStores, sections: sections, source: nil)
    }

    /// - Parameter source: Has further ones.
    package init(
        _ descriptors: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        sections: [SettingsSection] = [], source: (any ProviderSource)?
    ) throws(ProviderError) {
        self.source = source
        self.sections = sections
        for descriptor in descriptors { try register(descriptor) }
        for descriptor in keyStores { try register(descriptor) }
    }

    /// Adds a provider.
    ///
    /// - Throws: `configurationInvalid` if its id is already registered.
    public mutating func register(_ descriptor: ProviderDescriptor) throws(ProviderError) {
        guard byID[descriptor.id] == nil else {
            throw ProviderError(
                .configurationInvalid, "Two providers are called '\(descriptor.id)'; rename one of them.",
                provider: descriptor.id)
        }
        byID[descriptor.id] = descriptor
    }

    /// Adds a key store.
    ///
    /// - Throws: `configurationInvalid` if its scheme is already registered.
    public mutating func register(_ descriptor: KeyStoreDescriptor) throws(ProviderError) {
        guard byScheme[descriptor.scheme] == nil else {
            throw ProviderError(
                .configurationInvalid, "Two key stores have the scheme '\(descriptor.scheme)'; remove one of them.")
        }
        byScheme[descriptor.scheme] = descriptor
    }

    /// The key stores of the program, in alphabetical order of their schemes. Those of a source are not among them.
    package var keyStores: [KeyStoreDescriptor] { byScheme.values.sorted { $0.scheme < $1.scheme } }

    /// The places of further providers and key stores, for errors: a clause; `nil` without a source. Blocks on the file
    /// system at most.
    package var whereabouts: String? { source?.whereabouts }

    /// Returns the key stores as providers get them.
    ///
    /// - Parameters:
    ///   - parameters: The configured parameters of each store, by scheme.
    ///   - environment: Returns the environment of the store with that part of the identity store.
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for a parameter.
    public func keyStores(
        _ parameters: [String: ProviderParameters] = [:],
        in environment: @escaping @Sendable (ProviderID) throws(ProviderError) -> ProviderEnvironment
    ) throws(ProviderError) -> KeyStores {
        var checked: [String: Parameters] = [:]
        // A key store that is not configured need not be used.
        for descriptor in keyStores where parameters[descriptor.scheme] != nil {
            checked[descriptor.scheme] = try Parameters(
                parameters[descriptor.scheme] ?? ProviderParameters(), of: descriptor.parameters,
                descriptor.owner, keyStores: .none)
        }
        // The key stores of the source are looked up when a URI names them first.
        let others = BlockingMutex<[String: (KeyStoreDescriptor, Parameters)]>([:])
        return KeyStores(schemes: keyStores.map(\.scheme), whereabouts: { [self] in whereabouts }) {
            [self, checked] location throws(ProviderError) in
            let scheme = location.scheme
            if let descriptor = byScheme[scheme] {
                let parameters = if let known = checked[scheme] { known } else { try descriptor.defaults() }
                return try descriptor.make(try environment(descriptor.id), location, parameters)
            }
            if let (descriptor, parameters) = others.withLock({ $0[scheme] }) {
                return try descriptor.make(try environment(descriptor.id), location, parameters)
            }
            let configured = parameters[scheme] ?? ProviderParameters()
            guard let descriptor = try source?.keyStore(scheme, configured) else { return nil }
            let new = try Parameters(
                configured, of: descriptor.parameters, descriptor.owner, keyStores: .none)
            others.withLock { $0[scheme] = (descriptor, new) }
            return try descriptor.make(try environment(descriptor.id), location, new)
        }
    }

    /// Returns the provider with this id; `nil` if it is not installed.
    ///
    /// - Parameter configured: What the configuration says for it.
    /// - Throws: Errors of a source, which may block for a bounded time.
    package func provider(
        _ id: ProviderID, _ configured: ProviderParameters = ProviderParameters()
    ) throws(ProviderError) -> ProviderDescriptor? {
        if let own = byID[id] { return own }
        return try source?.provider(id, configured)
    }

    /// Returns the key store of a URI scheme; `nil` if it is not installed.
    ///
    /// - Parameter configured: What the configuration says for it.
    /// - Throws: Errors of a source, which may block for a bounded time.
    package func keyStore(
        _ scheme: String, _ configured: ProviderParameters = ProviderParameters()
    ) throws(ProviderError) -> KeyStoreDescriptor? {
        if let own = byScheme[scheme] { return own }
        return try source?.keyStore(scheme, configured)
    }

    /// Returns a registry whose source looks into `directory`, an absolute path, before all others.
    package func looking(in directory: String) -> ProviderRegistry {
        var copy = self
        copy.source = source?.looking(in: directory)
        return copy
    }

    /// The providers of the program, in alphabetical order of their ids. Those of a source are not among them.
    package var descriptors: [ProviderDescriptor] { byID.values.sorted { $0.id < $1.id } }

    /// The ids of all installed providers, in alphabetical order. Blocks on the file system at most.
    package var providerIDs: [ProviderID] {
        let own = byID.keys.sorted()
        return (own + (source?.providerIDs ?? []).filter { byID[$0] == nil }).sorted()
    }
}

extension KeyStoreDescriptor {
    fileprivate var owner: ProviderParameters.Owner { .keyStore(scheme: scheme, storage: id) }

    /// - Throws: `configurationInvalid` if a parameter is required.
    fileprivate func defaults() throws(ProviderError) -> Parameters {
        try Parameters(ProviderParameters(), of: parameters, owner, keyStores: .none)
    }
}
