import ArgumentParser
import CertificateProviding
import Foundation
import Glibc
import SplitKeySigning
import Terminal

struct SignCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign", abstract: "Sign a document, and have the relying party verify it.",
        discussion: """
            Sends the document to the relying party, after a login where that is needed, compares the digest in the answer with its own, \
            and asks. The signing PIN is asked for after that. With --offline nothing is sent, and nobody here can tell whether the PIN was right.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var user: UserOption
    @Argument(help: ArgumentHelp("The document, at most 50 MB.", valueName: "file"), completion: .file())
    var file: String
    @Option(help: ArgumentHelp("Write the signature to a file, as JSON.", valueName: "file"), completion: .file())
    var out: String?
    @Flag(help: "Make a signature without the relying party, at the time of this host.") var offline = false
    @Flag(help: "Do not ask for confirmation.") var yes = false

    private static let maximumSize = 50_000_000

    func validate() throws {
        if out?.isEmpty == true { throw ValidationError("--out needs the name of a file.") }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            if let out { try requireWritable(out) }
            let host = try context.host()
            let user = try context.user(user, of: host)
            let document = try read()
            let (signed, status): (TimedSignature, String?)
            if offline {
                signed = try await host.signOffline(document, as: user) { digest throws(ProviderError) in
                    try await approve(digest, document.count, user, context)
                }
                status = nil
                context.remark("Nobody here can tell whether the PIN was right: the authority can.")
            } else {
                let result = try await host.sign(document, as: user) { digest throws(ProviderError) in
                    try await approve(digest, document.count, user, context)
                }
                (signed, status) = (result.signed, result.status)
            }
            let result = SignatureDocument(signature: signed.signature, timestamp: signed.timestamp, status: status)
            try context.show(result) { (status ?? "made offline, not verified") + "\n" }
            if let out { try write(try result.json() + "\n", to: out) }
            return .done
        }
    }

    private func approve(
        _ digest: String, _ size: Int, _ user: String, _ context: Context
    ) async throws(ProviderError) -> Bool {
        if yes { return true }
        return try await context.interaction.confirm(
            "Sign this document?",
            after: ["Document: \(file), \(size) bytes", "SHA-256: \(digest)", "As: \(user)"])
    }

    private func read() throws(ProviderError) -> [UInt8] {
        try InputFile(file).read(atMost: Self.maximumSize)
    }

    /// Checks the file of `--out` before anything is asked or sent.
    private func requireWritable(_ path: String) throws(ProviderError) {
        var (target, document) = (stat(), stat())
        let name = "--out \(DisplayText.visible(path))"
        let isThere = stat(path, &target) == 0
        let isFile = target.st_mode & S_IFMT == S_IFREG
        let isKnown = (file == "-" ? fstat(STDIN_FILENO, &document) : stat(file, &document)) == 0
        guard !isThere || !isFile || !isKnown || target.st_dev != document.st_dev || target.st_ino != document.st_ino
        else {
            throw ProviderError(.usage, "\(name) is the document. Nothing was sent; name another file.")
        }
        // A file is replaced as a whole, which needs the directory; what a link leads to is written in place.
        var own = stat()
        let isPlain = lstat(path, &own) != 0 || own.st_mode & S_IFMT == S_IFREG
        let place = isThere && !isPlain ? path : path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        let isWritable = access(place, W_OK) == 0
        let reason = isWritable ? EISDIR : errno
        guard isWritable, !isThere || target.st_mode & S_IFMT != S_IFDIR else {
            throw ProviderError(
                .storeWriteFailed,
                "\(name) cannot be written: \(String(cString: strerror(reason))). Nothing was sent; name another file.",
                nativeCode: Int(reason))
        }
    }

    private func write(_ text: String, to path: String) throws(ProviderError) {
        do {
            let type = try? FileManager.default.attributesOfItem(atPath: path)[.type] as? FileAttributeType
            // A device or a pipe is written to, and a file replaced as a whole.
            if let type, type != .typeRegular {
                try FileHandle(forWritingTo: URL(filePath: path)).write(contentsOf: Data(text.utf8))
            } else {
                try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
            }
        } catch {
            throw ProviderError(
                .storeWriteFailed,
                "\(DisplayText.visible(path)) cannot be written. The signature is made; --json shows it.",
                underlying: error)
        }
    }
}

/// The result of `sign`.
struct SignatureDocument: CommandDocument {
    static let kind = "SplitKeySignature"

    let signature: SignatureObject
    let timestamp: UInt32
    /// The relying party's word; left out for a signature that was made offline.
    let status: String?
}
