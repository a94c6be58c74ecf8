package import CertificateProviding
package import LogonCore
import RemoteMDMParameters

/// What only one of the two programs can do, and the other hands over.
package struct ProgramAbilities: Sendable {
    package var propertyLists: PropertyListFormat
    package var makeRemoteMDMProvider: @Sendable (ProviderEnvironment) -> any CertificateProvider

    package init(
        propertyLists: PropertyListFormat,
        makeRemoteMDMProvider: @escaping @Sendable (ProviderEnvironment) -> any CertificateProvider
    ) {
        self.propertyLists = propertyLists
        self.makeRemoteMDMProvider = makeRemoteMDMProvider
    }

    static let none = ProgramAbilities(
        propertyLists: PropertyListFormat { _, file throws(CertificateProviderError) in
            throw CertificateProviderError(
                .configurationInvalid, "\(file.withVisibleControls): This program does not read property lists.")
        },
        makeRemoteMDMProvider: { _ in
            AbsentProvider(
                id: RemoteMDMParameters.id,
                error: CertificateProviderError(.internal, "This program has no network stack."))
        })
}
