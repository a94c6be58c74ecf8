import CertificateProviding

extension ProviderRegistry {
    typealias Surroundings = @Sendable (ProviderID) throws(CertificateProviderError) -> ProviderEnvironment

    /// Makes a provider and gives it its parameters. It can have others made in its turn.
    ///
    /// - Parameter environment: Returns what the provider of that id is given.
    /// - Throws: `configurationInvalid` for one that is not installed, what `environment` throws, and what the provider
    ///   says of its parameters.
    func provider(
        _ id: ProviderID, _ parameters: ProviderParameters, in environment: @escaping Surroundings
    ) throws(CertificateProviderError) -> (any CertificateProvider, executor: BlockingExecutor) {
        guard let descriptor = self[id] else {
            let installed = descriptors.map(\.id.rawValue).joined(separator: ", ")
            throw CertificateProviderError(
                .configurationInvalid, "There is no provider '\(id)'; installed: \(installed).", provider: id)
        }
        do throws(CertificateProviderError) {
            var surroundings = try environment(id)
            surroundings.makeProvider = { id, parameters throws(CertificateProviderError) in
                try self.provider(id, parameters, in: environment).0
            }
            let provider = descriptor.makeProvider(surroundings)
            guard provider.id == id else {
                throw CertificateProviderError(.internal, "The provider '\(id)' calls itself '\(provider.id)'.")
            }
            try provider.setParameters(descriptor.ownParameters(of: parameters))
            return (provider, surroundings.executor)
        } catch {
            throw error.attributed(to: id)
        }
    }
}
