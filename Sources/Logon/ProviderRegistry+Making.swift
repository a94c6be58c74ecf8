import CertificateProviding

extension ProviderRegistry {
    typealias Surroundings = @Sendable (ProviderID) throws(ProviderError) -> ProviderEnvironment

    /// Creates a provider and sets its parameters. The provider can create others through its environment, which is returned too.
    ///
    /// - Parameter environment: Returns the environment of the provider with this id.
    /// - Throws: `configurationInvalid` for a provider that is not installed, errors of `environment`, and errors of
    ///   the provider about its parameters.
    func provider(
        _ id: ProviderID, _ parameters: ProviderParameters, _ keyStores: KeyStores,
        in environment: @escaping Surroundings
    ) throws(ProviderError) -> (any CertificateProvider, ProviderEnvironment) {
        guard let descriptor = try provider(id, parameters) else {
            let installed = providerIDs.map(\.rawValue).joined(separator: ", ")
            throw ProviderError(
                .configurationInvalid,
                "The provider '\(id)' is not installed; installed: \(installed)"
                    + (whereabouts.map { "; \($0)." } ?? "."), provider: id)
        }
        do throws(ProviderError) {
            var surroundings = try environment(id)
            surroundings.keyStores = keyStores
            let provider = try descriptor.makeProvider(surroundings, descriptor.ownParameters(of: parameters))
            guard provider.id == id else {
                throw ProviderError(.internal, "The provider '\(id)' calls itself '\(provider.id)'.")
            }
            return (provider, surroundings)
        } catch {
            throw error.attributed(to: id)
        }
    }
}
