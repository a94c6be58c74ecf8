public import ArgumentParser
import CertificateProviding

/// The options that every subcommand has.
public struct GlobalOptions: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The property file to use.",
            discussion: """
                Default: $CERTPROV_CONFIG, then certprov/clienthub.properties (or .plist) in $XDG_CONFIG_HOME, then in \
                /etc.
                """, valueName: "file"),
        completion: .file(extensions: ["properties", "plist"]))
    public var config: String?

    @Option(
        help: ArgumentHelp(
            "Use only this provider.",
            discussion: """
                With --set and without --config, no property file is read: --set alone configures the provider.
                """,
            valueName: "id"))
    public var provider: String?

    @Option(
        name: .customLong("set"), parsing: .singleValue,
        help: ArgumentHelp(
            "Set a parameter of the provider; may be repeated. Never a secret: name its source instead.",
            valueName: "name=value"))
    public var parameters: [String] = []

    @Option(
        help: ArgumentHelp(
            "The PKCS#11 URI of an identity or a token: short for --provider pkcs11 --set uri=URI.", valueName: "uri"))
    public var uri: String?

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    public var json = false

    @Flag(name: .shortAndLong, help: "Log more on stderr, such as each step to the identity.")
    public var verbose: Int

    public init() {}

    public func validate() throws {
        if parameters.contains(where: { !$0.contains("=") }) {
            // Not shown: what was written in the wrong form may hold a secret.
            throw ValidationError("--set takes NAME=VALUE; one has no '='.")
        }
        if !parameters.isEmpty && drivenProvider == nil {
            throw ValidationError("--set needs a provider: name it with --provider.")
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

extension GlobalOptions {
    /// The provider that the options name; by ``uri`` too.
    var drivenProvider: String? { provider ?? uri.map { _ in "pkcs11" } }
    /// What the options say to it.
    var drivenParameters: [String] { parameters + (uri.map { ["uri=\($0)"] } ?? []) }

    /// Reads the options in their plainest form: each a word of its own, its value the next one. Returns `nil` for
    /// anything else, for the parser to read or to refuse.
    ///
    /// The parser looks at its types by reflection, which takes a tenth of the time of listing a file.
    ///
    /// - Parameter takeOwn: Takes an option of the subcommand, of which it is given the name and, to be asked for it
    ///   once, the value. Returns whether it was one, with all that it needs.
    init?(
        plain arguments: some Sequence<String>,
        takeOwn: (_ word: String, _ value: () -> String?) -> Bool = { _, _ in false }
    ) {
        (config, provider, parameters, uri, json, verbose) = (nil, nil, [], nil, false, 0)
        var words = arguments.makeIterator()
        while let word = words.next() {
            let nextValue = { words.next().flatMap { $0.hasPrefix("-") ? nil : $0 } }
            switch word {
            case "--json": json = true
            case "--config", "--provider", "--set", "--uri":
                guard let value = nextValue() else { return nil }
                switch word {
                case "--config": config = value
                case "--provider": provider = value
                case "--set": parameters.append(value)
                default: uri = value
                }
            default: guard takeOwn(word, nextValue) else { return nil }
            }
        }
        guard (try? validate()) != nil else { return nil }
    }
}
