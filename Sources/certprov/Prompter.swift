import ArgumentParser
import CertificateProviding
import Glibc
import Logon
import SigningRequests

/// The values of `--prompt`.
extension RequestSettings.Prompt: ExpressibleByArgument {}

extension CommandContext {
    /// Asks by the program that the property file names, or by that of the usual name.
    static func pinentry(_ options: GlobalOptions, _ registry: ProviderRegistry) -> Pinentry {
        Pinentry { () throws(ProviderError) in
            guard !options.isComplete else { return Pinentry.usualProgram }
            let configuration = try ConfigurationLookup(options: options, registry: registry).configurationIfAny()
            return configuration.settings[RequestSettings.promptProgram] ?? Pinentry.usualProgram
        }
    }

    /// Refuses to ask for a consent where the question would be on a terminal, and a script has the command.
    ///
    /// - Throws: `interactionRequired` if stdin is not a terminal.
    func requirePerson(for action: String) throws(ProviderError) {
        guard options.prompt == .pinentry || isatty(STDIN_FILENO) == 1 else {
            throw ProviderError(
                .interactionRequired, "\(action) needs a confirmation, and stdin is not a terminal; use --yes.")
        }
    }
}
