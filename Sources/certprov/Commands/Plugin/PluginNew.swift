import ArgumentParser
import CertificateProviderTesting
import CertificateProviding
import CertprovComposition
import FoundationEssentials
import Glibc
import IdentityStore
import Terminal

/// Writes a plugin to begin with.
struct PluginNew: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "new",
        abstract: "Write a plugin to begin with, and a test identity, into a new directory.",
        discussion: "It is a provider that passes 'certprov plugin verify' as it is. Its README.md has the next steps.")

    enum Language: String, CaseIterable, ExpressibleByArgument { case python, go, sh, swift }

    @Argument(help: "The plugin's id: lower-case letters, digits, '-' and '_'. The directory gets its name.")
    var name: String

    @Option(help: "The language of the plugin.")
    var language: Language

    @Option(
        help: ArgumentHelp(
            "A checkout of certprov's package, which a plugin in Swift is built with.", valueName: "path"),
        completion: .directory)
    var package: String?

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    var json = false

    func validate() throws {
        if (language == .swift) != (package != nil) {
            throw ValidationError(
                language == .swift
                    ? "A plugin in Swift is built with a checkout of certprov: name it with --package PATH."
                    : "--package is for --language swift.")
        }
    }

    func run() async throws {
        try await CommandContext.guarded(json: json) { () async throws(ProviderError) in
            guard let id = ProviderID(rawValue: name), !name.hasSuffix("_") else {
                throw ProviderError(
                    .usage,
                    "'\(name.withVisibleControls)' cannot be the id of a plugin: use lower-case letters, digits, '-' and '_', "
                        + "a letter first, and no '_' at the end.")
            }
            let builtIns = CommandContext.builtIns
            let reserved =
                builtIns.providers.map(\.id.rawValue) + builtIns.keyStores.map(\.id.rawValue)
                + builtIns.reservedSchemes
            guard !reserved.contains(id.rawValue) else {
                throw ProviderError(.usage, "'\(id)' is built in; choose another name.")
            }
            let template = try Template(language, id, package: package.map(Self.checkout))
            let files = try template.write(to: name)
            if json {
                guard let text = try? NewPluginDocument(directory: name, files: files).json(warnings: []) else {
                    throw ProviderError(.internal, "The result cannot be written as JSON.")
                }
                try Console.print(text + "\n")
            } else {
                let commands = ["cd \(name)"] + template.buildCommands + [template.verifyCommand]
                try Console.print(
                    files.map { "\(name)/\($0)\n" }.joined() + "\nNext:\n"
                        + commands.map { "    \($0)\n" }.joined())
            }
            return .done
        }
    }

    /// Returns the absolute path of a checkout.
    private static func checkout(_ path: String) throws(ProviderError) -> String {
        let full = path.hasPrefix("/") ? path : "\(FileManager.default.currentDirectoryPath)/\(path)"
        guard access("\(full)/Sources/PluginKit", F_OK) == 0 else {
            throw ProviderError(
                .fileNotFound,
                "\(path.withVisibleControls) is not a checkout of certprov: it has no Sources/PluginKit. Name one with "
                    + "--package.")
        }
        return full
    }
}

/// The files of a new plugin.
private struct Template {
    private let id: ProviderID
    private let language: PluginNew.Language
    private let files: [(name: String, content: String, mode: mode_t)]

    init(
        _ language: PluginNew.Language, _ id: ProviderID, package: String?
    ) throws(ProviderError) {
        (self.id, self.language) = (id, language)
        let program = "certprov-plugin-\(id)"
        let sources: [(String, [UInt8], mode_t)] =
            switch language {
            case .python: [(program, PackageResources.plugin_py, 0o755)]
            case .sh: [(program, PackageResources.plugin_sh, 0o755)]
            case .go:
                [("main.go", PackageResources.plugin_go, 0o644), ("go.mod", PackageResources.go_mod_txt, 0o644)]
            case .swift:
                [
                    ("Package.swift", PackageResources.Package_swift_txt, 0o644),
                    ("Sources/\(program)/Plugin.swift", PackageResources.Plugin_swift_txt, 0o644),
                ]
            }
        let build = Self.buildCommands(language, program).map { $0 + "\n" }.joined()
        let package = (package ?? "").replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
        var files = (sources + [("README.md", PackageResources.Readme_md_txt, 0o644)]).map { name, bytes, mode in
            let text = String(decoding: bytes, as: UTF8.self).replacing("@BUILD@\n", with: build)
                .replacing("@NAME@", with: id.rawValue).replacing("@PACKAGE@", with: package)
            return (name, text, mode)
        }
        guard let identity = try? ThrowAway.selfSigned("\(id) example") else {
            throw ProviderError(.internal, "No test identity can be made.")
        }
        files.append(("example/cert.pem", identity.certificate, 0o600))
        files.append(("example/key.pem", identity.key, 0o600))
        self.files = files
    }

    private static func buildCommands(_ language: PluginNew.Language, _ program: String) -> [String] {
        switch language {
        case .python, .sh: []
        case .go: ["go build -o \(program) ."]
        case .swift: ["swift build -c release && cp .build/release/\(program) ."]
        }
    }

    /// The commands that build the plugin in its directory.
    var buildCommands: [String] { Self.buildCommands(language, "certprov-plugin-\(id)") }
    var verifyCommand: String { "certprov plugin verify ./certprov-plugin-\(id) --set directory=example" }

    /// Writes all files into a new directory.
    ///
    /// - Returns: Their names.
    /// - Throws: `storeWriteFailed`.
    func write(to directory: String) throws(ProviderError) -> [String] {
        guard mkdir(directory, 0o755) == 0 else {
            let reason =
                errno == EEXIST ? "it exists; choose another name or remove it" : errorText(errno)
            throw ProviderError(.storeWriteFailed, "The directory \(directory) cannot be made: \(reason).")
        }
        // Another user may own the directory above, and lead elsewhere.
        do throws(SafeDirectory.Refusal) {
            guard let place = try SafeDirectory.open(directory) else {
                throw SafeDirectory.Refusal(reason: "it was removed by another process")
            }
            for (name, content, mode) in files {
                let folders = name.split(separator: "/").dropLast()
                for depth in folders.indices {
                    let folder = folders[...depth].joined(separator: "/")
                    guard mkdirat(place.descriptor, folder, folder == "example" ? 0o700 : 0o755) == 0 || errno == EEXIST
                    else {
                        throw place.failure("\(directory)/\(folder) cannot be made")
                    }
                }
                let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW
                let file = openat(place.descriptor, name, flags, mode)
                guard file >= 0 else { throw place.failure("\(directory)/\(name) cannot be made") }
                defer { close(file) }
                try place.write(Array(content.utf8), to: file, .system)
            }
        } catch {
            throw ProviderError(
                .storeWriteFailed, "The plugin's files cannot be written: \(error.reason.withVisibleControls).")
        }
        return files.map(\.name)
    }
}

/// The result of `plugin new`.
private struct NewPluginDocument: CommandDocument {
    static let kind = "NewPlugin"

    let directory: String
    let files: [String]
}
