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
        subcommands: [
            List.self, Fetch.self, Delete.self, Explain.self, Connect.self, Providers.self, Check.self, Renew.self,
            Keygen.self, StoreCertificate.self, SignCommand.self, KeysCommand.self, RequestsCommand.self,
            AccessTokenCommand.self,
            StoreCommand.self, Register.self, Unregister.self, Status.self,
            Update.self, Unlock.self,
            Lock.self,
            Passcode.self, Password.self, VaultCommand.self, PluginCommand.self,
        ])
}
