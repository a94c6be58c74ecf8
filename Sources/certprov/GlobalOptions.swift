import ArgumentParser
import CertificateProviding
import CertprovComposition
import SigningRequests
import Terminal

/// The options that every subcommand has.
struct GlobalOptions: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The property file to use.",
            discussion: """
                Default: $CERTPROV_CONFIG, then certprov/clienthub.properties (or .plist) in $XDG_CONFIG_HOME, then in \
                /etc.
                """, valueName: "file"),
        completion: .file(extensions: ["properties", "plist"]))
    var config: String?

    @Option(
        help: ArgumentHelp(
            "Use only this provider.",
            discussion: """
                With --set and without --config, no property file is read: --set alone configures the provider.
                """,
            valueName: "id"))
    var provider: String?

    @Option(
        name: .customLong("set"), parsing: .singleValue,
        help: ArgumentHelp(
            "Set a parameter of the provider; may be repeated. Never a secret: name its source instead.",
            valueName: "name=value"))
    var parameters: [String] = []

    @Option(
        help: ArgumentHelp(
            "The PKCS#11 URI of an identity or a token: short for --provider pkcs11 --set uri=URI.", valueName: "uri"))
    var uri: String?

    @Option(
        help: ArgumentHelp(
            "How to ask for PINs, passwords and consent: terminal or pinentry; for requests serve and open also queue.",
            discussion: """
                Default: terminal. The pinentry is the program of Signing.prompt-program in the property file, else pinentry in PATH.
                """, valueName: "way"))
    var prompt: RequestSettings.Prompt?

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    var json = false

    @Option(
        help: ArgumentHelp(
            "The form of the log on stderr: text, json (an object a line), or journal (the fields of systemd-journald).",
            discussion: "Default: journal where stderr is a stream of the journal, else text.", valueName: "form"))
    var logFormat: LogFormat?

    @Flag(name: .shortAndLong, help: "Log more on stderr, such as each step to the identity.")
    var verbose: Int

    /// Makes options without values, for ArgumentParser to fill in.
    init() {}

    /// Refuses a malformed `--set`, a `--set` without provider, and a PIN on the command line.
    func validate() throws {
        if parameters.contains(where: { !$0.contains("=") }) {
            // Not shown: a text in the wrong form may hold a secret.
            throw ValidationError("--set takes NAME=VALUE; one has no '='.")
        }
        if !parameters.isEmpty && drivenProvider == nil {
            throw ValidationError("--set needs a provider: name it with --provider.")
        }
        if config?.isEmpty == true { throw ValidationError("--config needs the name of a file.") }
        if let provider, uri != nil, provider != BuiltIns.providerOfURI {
            throw ValidationError("--uri is short for --provider \(BuiltIns.providerOfURI); remove it, or --provider.")
        }
        let names = drivenParameters.map { String($0.prefix { $0 != "=" }) }
        if let twice = Dictionary(grouping: names, by: \.self).first(where: { $0.value.count > 1 })?.key {
            throw ValidationError("'\(twice.withVisibleControls)' is set twice; remove one.")
        }
        let remedies = [
            "uri=": "--set pin-source=…", "key=": "--set key-pin-source=…",
            "client-certificate=": "pin-source in the URI",
        ]
        for (name, remedy) in remedies
        where drivenParameters.contains(where: { $0.hasPrefix(name) && $0.lowercased().contains("pin-value") }) {
            throw ValidationError(
                "A PIN on the command line is visible to all users of this host: name its source with \(remedy).")
        }
    }
}

extension LogFormat: ExpressibleByArgument {}

extension GlobalOptions {
    /// Whether stderr has lines of JSON only.
    var reportsJSON: Bool { json || logFormat == .json }
    /// The provider that the options name, also through ``uri``.
    var drivenProvider: String? { provider ?? uri.map { _ in BuiltIns.providerOfURI } }
    /// The parameters for ``drivenProvider``, with ``uri`` as one of them.
    var drivenParameters: [String] { parameters + (uri.map { ["uri=\($0)"] } ?? []) }
    /// Whether no property file is read. The one that the environment names is for those who say nothing.
    var isComplete: Bool { config == nil && !drivenParameters.isEmpty }
}
