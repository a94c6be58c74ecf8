import ArgumentParser

@main
enum Main {
    static func main() { RootCommand.run() }
}

/// The command `certprov`.
struct Certprov: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "certprov",
        abstract: "Get the X.509 identity of a service for mutual TLS, from a file, a token or an enrolment server.",
        discussion: "Results go to stdout, everything else to stderr. Secrets are never taken from the command line.",
        version: "0.1.0",
        groupedSubcommands: [
            CommandGroup(
                name: "Identity",
                subcommands: [
                    List.self, Fetch.self, Renew.self, Delete.self, Explain.self, Connect.self, Check.self,
                    Providers.self, StoreCommand.self,
                ]),
            CommandGroup(
                name: "Key", subcommands: [Keygen.self, StoreCertificate.self, KeysCommand.self]),
            CommandGroup(
                name: "Signature", subcommands: [SignCommand.self, Verify.self, RequestsCommand.self]),
            CommandGroup(
                name: "Application",
                subcommands: [
                    Register.self, Unregister.self, Status.self, Update.self, Unlock.self, Lock.self, Passcode.self,
                    Password.self, VaultCommand.self, Request.self, AccessTokenCommand.self,
                ]),
            CommandGroup(name: "Host", subcommands: [Serve.self, TunnelCommand.self, Metrics.self]),
            CommandGroup(name: "Plugin", subcommands: [PluginCommand.self]),
        ])
}
