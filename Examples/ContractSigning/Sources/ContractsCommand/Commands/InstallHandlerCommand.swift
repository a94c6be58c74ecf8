import ArgumentParser
import CertificateProviding
import Contracts
import FoundationEssentials
import Glibc
import Terminal

struct InstallHandlerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "install-handler",
        abstract: "Make this program your desktop's handler of sellsign: URLs and of .sellsign files.",
        discussion: """
            Writes a desktop entry and a MIME type below $XDG_DATA_HOME, else ~/.local/share, and makes the entry the default of both. \
            With --config or $CERTPROV_CONFIG, the desktop starts the program with that property file.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Remove what was written.")
    var remove = false

    @Flag(inversion: .prefixedNo, help: "Have the desktop start the program in a terminal, where it can ask.")
    var terminal = true

    func run() async throws {
        try await Context.guarded(options) { () async throws(ProviderError) in
            let warnings = Warnings(of: "contracts", collecting: options.json)
            let installation = try HandlerInstallation(warnings: warnings)
            if remove {
                try await installation.remove()
            } else {
                var command = [try HandlerInstallation.program(), "open"]
                // The desktop's programs do not have this one's environment.
                if let config = options.config ?? ProcessInfo.processInfo.environment["CERTPROV_CONFIG"],
                    !config.isEmpty
                {
                    guard access(config, R_OK) == 0 else {
                        throw ProviderError(
                            .configurationMissing,
                            "The property file \(DisplayText.visible(config)) cannot be read; name one that is there.")
                    }
                    command += ["--config", HandlerInstallation.absolute(config)]
                }
                try await installation.install(command + ["--"], isInTerminal: terminal)
            }
            let document = HandlerDocument(
                installed: !remove, desktopEntry: installation.desktopEntry, mimeTypes: HandlerFiles.mimeTypes)
            try Console.show(document, json: options.json, warnings) {
                let path = DisplayText.visible(installation.desktopEntry)
                return remove
                    ? "The handler is removed: \(path)\n"
                    : "The desktop opens sellsign: URLs and .sellsign files with: \(path)\n"
            }
            return .done
        }
    }
}

/// The result of `install-handler`.
private struct HandlerDocument: CommandDocument {
    static let kind = "ContractHandler"

    let installed: Bool
    let desktopEntry: String
    let mimeTypes: [String]
}
