import ArgumentParser

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

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    var json = false

    @Flag(name: .shortAndLong, help: "Log requests, keys and sources of PINs on stderr.")
    var verbose = false

    init() {}

    func validate() throws {
        if config?.isEmpty == true { throw ValidationError("--config needs the name of a file.") }
    }
}

/// The user whose key a subcommand uses.
struct UserOption: ParsableArguments, Sendable {
    @Option(help: ArgumentHelp("The user. Default: the only one with keys here.", valueName: "user"))
    var user: String?

    init() {}
}
