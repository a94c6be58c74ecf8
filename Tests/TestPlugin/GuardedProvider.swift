import CertificateProviding
import Foundation

/// Sends its password to a server that rejects each one: a file with a line for each attempt.
final class GuardedProvider: CertificateProvider {
    private static let role = Parameter.required("role", summary: "The role at the server.")
    private static let log = Parameter.required("log", .path, summary: "The file of the attempts.")
    private static let source = Parameter.requiredSecretSource("password-source", summary: "The password.")
    static let descriptor = ProviderDescriptor(
        id: ProviderID("guarded"), displayName: "Guarded", summary: "Is rejected.",
        parameters: [role.descriptor, log.descriptor, source.descriptor]
    ) { GuardedProvider($0, $1) }

    let id = ProviderID("guarded")
    private let environment: ProviderEnvironment
    private let (log, source): (String, SecretSource)

    private init(_ environment: ProviderEnvironment, _ parameters: Parameters) {
        self.environment = environment
        (log, source) = (parameters[Self.log], parameters[Self.source])
    }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let password = try await environment.secret(from: source, prompt: "Password", interaction: interaction)
        if try await environment.isRejected(password, for: "server") {
            throw ProviderError(.wrongPassword, "The server has rejected the password; set another one.")
        }
        guard let file = fopen(log, "a") else { throw ProviderError(.internal, "The log cannot be opened.") }
        fputs("attempt\n", file)
        fclose(file)
        await environment.noteOutcome(of: password, for: "server", isRejected: true)
        throw ProviderError(.rejected, "The server rejects the password; set another one.")
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? { nil }
    func deleteStoredCertificate() throws(ProviderError) {}
}
