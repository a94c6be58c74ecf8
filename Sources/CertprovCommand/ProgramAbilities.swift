package import CertificateProviding
import RemoteMDMParameters

/// What only one of the two programs can do, and the other hands over.
package struct ProgramAbilities: Sendable {
    package var makeRemoteMDMProvider: @Sendable (ProviderEnvironment) -> any CertificateProvider

    package init(
        makeRemoteMDMProvider: @escaping @Sendable (ProviderEnvironment) -> any CertificateProvider
    ) {
        self.makeRemoteMDMProvider = makeRemoteMDMProvider
    }

    static let none = ProgramAbilities(
        makeRemoteMDMProvider: { _ in
            AbsentProvider(
                id: RemoteMDMParameters.id,
                error: CertificateProviderError(.internal, "This program has no network stack."))
        })
}
