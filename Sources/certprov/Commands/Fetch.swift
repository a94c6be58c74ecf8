import ArgumentParser
import CertificateProviding
import FoundationEssentials
import IdentityStore
import Logon

struct Fetch: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch",
        abstract: "Get the identity: the stored one, else a new one from the provider.",
        discussion: """
            If the stored identity has expired, its provider is asked for another one; if that has none, the command fails \
            with 'expired'. With --out, DIR/current is switched to the new files in one atomic step, so that it always \
            holds one complete set. A set that has a private key keeps having one: without --export-key it is only written \
            for the same key.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(
        help:
            "Get a new identity from the provider, even if one is stored. The stored one stays until the new one works."
    )
    var force = false

    @Option(
        help: ArgumentHelp("Write certificate.pem and chain.pem into DIR/current.", valueName: "dir"),
        completion: .directory)
    var out: String?

    @Flag(help: "Also write the private key (key.pem, identity.pem), if it is exportable. Needs --out.")
    var exportKey = false

    func validate() throws {
        if out?.isEmpty == true { throw ValidationError("--out needs the name of a directory.") }
        if exportKey && out == nil {
            throw ValidationError("--export-key needs --out: a private key is never written to stdout.")
        }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let manager = try await context.manager(try context.configuration())
            defer { context.log(manager.decisions) }
            let interaction = TerminalInteraction()
            let directory = out.map { PEMDirectory(path: $0) }
            try directory?.prepare()
            let identity = try await force ? manager.obtainIdentity(interaction) : manager.identity(interaction)
            try identity.requireUnexpired(at: Date())
            let files = try directory?.write(try PEMFiles(identity, exportingKey: exportKey))
            // Not before others can have the new one: without it they go on with what it replaces.
            if force { await context.discardReplaced(by: identity, of: manager, interaction) }
            let now = Date()
            let listed = ListedIdentity(identity, isStored: true)
            guard let document = IdentityDocument(listed, now: now) else {
                throw CertificateProviderError(.internal, "The identity has no certificate.")
            }
            if identity.status(at: now) == .notYetValid {
                context.remark("the certificate is not valid yet; check this host's clock.")
            }
            try context.show(FetchDocument(identity: document, files: files)) {
                List.table([listed], now: now) + (files ?? []).map { $0.withVisibleControls + "\n" }.joined()
            }
            return .done
        }
    }
}

/// The result of `fetch`.
private struct FetchDocument: Document {
    static let kind = "Identity"

    let identity: IdentityDocument
    /// The paths of the written files, by file name without extension.
    let files: [String: String]?

    init(identity: IdentityDocument, files: [String]?) {
        self.identity = identity
        self.files = files.map { paths in
            Dictionary(
                uniqueKeysWithValues: paths.map { path in
                    let name = path[(path.lastIndex(of: "/").map(path.index(after:)) ?? path.startIndex)...]
                    return (String(name.prefix { $0 != "." }), path)
                })
        }
    }
}
