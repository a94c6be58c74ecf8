public import CertificateProviding
import Enrolment
import ProviderTransport

/// The provider of identities that the PKI engine of Vault or OpenBao issues: the enrolment engine, with a client for the server.
public enum VaultProvider {
    /// The provider's identifier, `vault`.
    public static let id = ProviderID("vault")
    /// The entry of the provider for a registry.
    public static let descriptor = ProviderDescriptor(
        id: id, displayName: "Vault", summary: "Requests an identity from the PKI engine of Vault or OpenBao.",
        parameters: VaultParameter.all,
        distinguishedBy: [
            VaultParameter.url.name, VaultParameter.mount.name, VaultParameter.role.name, VaultParameter.subject.name,
        ]
    ) { environment, parameters throws(ProviderError) in
        let settings = try VaultSettings(parameters)
        return EnrollingProvider(id, VaultPKI(settings: settings, environment: environment), settings.plan, environment)
    }
}

/// The PKI engine of a server, for the enrolment engine.
struct VaultPKI: EnrolmentProtocol {
    let settings: VaultSettings
    let environment: ProviderEnvironment
    var serverName: String { settings.server.authority }
    var source: String { settings.server.origin }

    func session(_ interaction: any UserInteraction) async throws(ProviderError) -> any EnrolmentSession {
        try await VaultServer(settings, environment, interaction)
    }
}
