import ArgumentParser
import CertificateProviding
import IdentityStore

/// The option that says where a command finds the secret to be set.
struct NewSecret: ParsableArguments {
    @Option(help: ArgumentHelp("The source of the new secret, such as file:PATH.", valueName: "source"))
    var newSource: String?

    func validate() throws {
        if let newSource, SecretSource(newSource) == nil {
            throw ValidationError("--new-source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
        }
    }

    /// Without the option, the user is asked.
    var source: SecretSource { newSource.flatMap { SecretSource($0) } ?? .prompt }
}
