import ArgumentParser

/// The command `dvs`.
struct DVSCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dvs", abstract: "Sign documents with a key that is split between a PIN and this host.",
        discussion: """
            A relying party learns from the one authority whether a signature is valid. The settings are in the section SplitKey. of \
            the property file. Results go to stdout, everything else to stderr.
            """,
        version: "0.1.0",
        subcommands: [
            EnrolCommand.self, ListCommand.self, CanSignCommand.self, LoginCommand.self, SignCommand.self,
            ChangePINCommand.self, ForgetCommand.self,
        ])
}
