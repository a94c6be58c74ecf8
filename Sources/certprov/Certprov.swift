import ArgumentParser

@main
struct Certprov: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "certprov",
        abstract: "Get the X.509 identity that a service needs for mutual TLS, from wherever it is kept.",
        discussion: "Results go to stdout, everything else to stderr. Secrets are never taken from the command line.",
        version: "0.1.0",
        subcommands: [
            List.self, Fetch.self, Delete.self, Explain.self, Connect.self, Providers.self, Check.self,
        ])
}
