import ArgumentParser
import CertificateProviding
import FoundationEssentials
import IdentityFiles
import Logon
import Terminal

struct Fetch: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch",
        abstract: "Get the identity: the stored one, else a new one from the provider.",
        discussion: """
            If the stored identity has expired, its provider is asked for another one; if that has none, the command fails \
            with 'expired'. With --out, and in the Files.directory of the property file, DIR/current is switched to the new files in one atomic step, so that it always \
            holds one complete set. A set that has a private key keeps having one: without --export-key it is only written \
            for the same key.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(
        help:
            "Get a new identity from the provider, even if one is stored. The stored one stays until the new one works."
    )
    var force = false

    @OptionGroup(title: "Files for other programs") var files: FileOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            defer { context.log(manager.decisions) }
            let interaction = context.interaction
            let exports = [try context.filesExport(configuration), try files.export(context.secrets)].compactMap(\.self)
            // Before a server is asked: each order of a certificate counts there.
            let newKey = force ? Self.newKey(configuration, context.registry) : nil
            for export in exports { try export.prepare(for: newKey) }
            if exports.count > 1, exports[0].hasDirectory(of: exports[1]) {
                throw ProviderError(
                    .usage,
                    "--out names the Files.directory of the property file, where fetch writes in any case; leave out --out, or name "
                        + "another directory.")
            }
            let identity = try await force ? manager.obtainIdentity(interaction) : manager.identity(interaction)
            try identity.requireUnexpired(at: Date())
            var files: [String]?
            for export in exports { files = try export.write(identity, logger: context.logger) { context.remark($0) } }
            if exports.isEmpty, let remark = identity.remarkOnIssuer(after: []) { context.remark(remark) }
            let notification = ReloadedPrograms(of: exports)
            // Not before others can have the new one: without it they go on with what it replaces.
            if force, notification.failure == nil {
                await context.discardReplaced(by: identity, of: manager, interaction)
            }
            let now = Date()
            let listed = ListedIdentity(identity, isStored: true)
            guard let document = IdentityDocument(listed, now: now) else {
                throw ProviderError(.internal, "The identity has no certificate.")
            }
            if identity.status(at: now) == .notYetValid {
                context.remark("the certificate is not valid yet; check this host's clock.")
            } else if let obstacle = identity.obstacle(at: now) {
                context.remark("peers refuse the certificate: \(obstacle).")
            }
            try context.show(FetchDocument(identity: document, files: files, reloaded: notification.reloaded)) {
                List.table([listed], now: now) + (files ?? []).map { $0.withVisibleControls + "\n" }.joined()
                    + notification.text
            }
            if let failure = notification.failure { throw failure }
            return .done
        }
    }

    /// The key that the providers will make for a new identity; `nil` if one of them makes none.
    private static func newKey(
        _ configuration: LogonConfiguration, _ registry: ProviderRegistry
    ) -> IdentityExport.NewKey? {
        let registry = configuration.pluginDirectory.map(registry.looking) ?? registry
        let stores = configuration.providers.map { configured in
            (try? registry.provider(configured.id, configured.parameters))?.parameters
                .first { $0.kind == .keyStore && $0.name == "key" }
                .flatMap {
                    KeyStoreLocation(uri: configured.parameters.string("key") ?? $0.defaultValue ?? "", pinSource: nil)
                }
                .flatMap { try? registry.keyStore($0.scheme) }
        }
        guard !stores.isEmpty, !stores.contains(where: { $0 == nil }) else { return nil }
        return stores.contains { $0?.isExternal == false } ? .exportable : .notExportable
    }
}

/// The programs of `Files.reload` that were told of new files. A failure is thrown once the result is shown: identity and files are there.
struct ReloadedPrograms {
    private var told: [String] = []
    private(set) var failure: ProviderError?

    init(of exports: [IdentityExport]) {
        for export in exports {
            do throws(ProviderError) { told += try export.notify().map { [$0] } ?? [] } catch { failure = error }
        }
    }

    /// `nil` if none was to be told.
    var reloaded: [String]? { told.isEmpty ? nil : told }

    var text: String { told.map { "reloaded: \($0.withVisibleControls)\n" }.joined() }
}

/// The files that `fetch` writes.
struct FileOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Write certificate.pem and chain.pem into DIR/current.", valueName: "dir"),
        completion: .directory)
    var out: String?

    @Flag(help: "Also write the private key (key.pem, identity.pem), if it is exportable. Needs --out.")
    var exportKey = false

    @Option(
        help: ArgumentHelp(
            "Formats of the files, separated by commas: pem, der, pkcs12. pkcs12 needs --export-key.",
            valueName: "formats"))
    var format: String?

    @Option(
        help: ArgumentHelp("Owner of the files: name or number. Takes CAP_CHOWN, as root has it.", valueName: "user"))
    var owner: String?

    @Option(help: ArgumentHelp("Group of the files: name or number.", valueName: "group"))
    var group: String?

    @Option(
        help: ArgumentHelp(
            "Mode of the files with the private key, such as 0640. Default: that of the file before, else 0600.",
            valueName: "mode"))
    var mode: String?

    @Option(help: ArgumentHelp("Source of the password of identity.p12.", valueName: "source"))
    var p12PasswordSource: String?

    @Flag(help: "Encrypt identity.p12 for programs before OpenSSL 1.1: Triple DES and SHA-1.")
    var p12Legacy = false

    private var formats: [FileSet.Format]? { format.map(FileSet.Format.list) ?? [.pem] }

    func validate() throws {
        if out?.isEmpty == true { throw ValidationError("--out needs the name of a directory.") }
        if exportKey && out == nil {
            throw ValidationError("--export-key needs --out: a private key is never written to stdout.")
        }
        let others = [("--format", format), ("--owner", owner), ("--group", group), ("--mode", mode)]
        if out == nil, let name = others.first(where: { $0.1 != nil })?.0 {
            throw ValidationError("\(name) needs --out.")
        }
        guard let formats else { throw ValidationError("--format \(FileSet.Format.expectation).") }
        if let mode, FilePermissions.keyMode(mode) == nil {
            throw ValidationError("--mode \(FilePermissions.expectation).")
        }
        guard formats.contains(.pkcs12) else {
            if p12PasswordSource != nil || p12Legacy {
                throw ValidationError("--p12-password-source and --p12-legacy need --format pkcs12.")
            }
            return
        }
        guard exportKey, let p12PasswordSource else {
            throw ValidationError("--format pkcs12 needs --export-key and --p12-password-source.")
        }
        guard let source = SecretSource(p12PasswordSource), source != .prompt else {
            throw ValidationError("--p12-password-source must be file:PATH, env:NAME, fd:N or systemd:NAME.")
        }
    }

    /// Returns what writes the files of `--out`; `nil` without it.
    func export(_ secrets: SecretReader) throws(ProviderError) -> IdentityExport? {
        guard let out else { return nil }
        var form = IdentityExport.Form()
        form.formats = formats ?? form.formats
        form.hasKey = exportKey
        form.permissions.keyMode = mode.flatMap(FilePermissions.keyMode)
        form.permissions.owner = try number(owner, "user", "--owner", FilePermissions.user)
        form.permissions.group = try number(group, "group", "--group", FilePermissions.group)
        if form.formats.contains(.pkcs12), let source = p12PasswordSource.flatMap({ SecretSource($0) }) {
            let password = try secrets.read(source)
            guard !password.isEmpty else {
                throw ProviderError(.usage, "--p12-password-source names an empty password.")
            }
            form.pkcs12 = FileSet.PKCS12(password: password, isLegacy: p12Legacy)
        }
        return IdentityExport(out, form)
    }

    private func number(
        _ name: String?, _ kind: String, _ option: String, _ find: (String) -> UInt32?
    ) throws(ProviderError) -> UInt32? {
        guard let name else { return nil }
        if let number = find(name) { return number }
        throw ProviderError(
            .usage, "\(option) names a \(kind) that this host does not have: '\(name.withVisibleControls)'.")
    }
}

/// The result of `fetch`.
struct FetchDocument: CommandDocument {
    static let kind = "Identity"

    let identity: IdentityDocument
    /// The paths of the written files, by file name; without the extension of PEM files.
    let files: [String: String]?
    /// The units, or the program, of `Files.reload` that were told of the files; `nil` if none was to be told.
    let reloaded: [String]?

    init(identity: IdentityDocument, files: [String]?, reloaded: [String]? = nil) {
        (self.identity, self.reloaded) = (identity, reloaded)
        self.files = files.map(Self.byName)
    }

    static func byName(_ paths: [String]) -> [String: String] {
        let pairs = paths.map { path -> (String, String) in
            let name = String(path.split(separator: "/").last ?? "")
            return (name.hasSuffix(".pem") ? String(name.dropLast(4)) : name, path)
        }
        return Dictionary(pairs) { first, _ in first }
    }
}
