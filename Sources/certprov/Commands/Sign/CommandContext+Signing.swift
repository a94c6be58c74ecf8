import CertificateProviding
import FoundationEssentials
import Glibc
import Logon
import Signing
import Terminal

extension CommandContext {
    /// Signs files one after the other, with one identity.
    ///
    /// - Parameters:
    ///   - extension: Of the results in `--out-dir`.
    ///   - prepare: Looks at one file, and gets a directory for temporary files.
    ///   - sign: Writes the signature of one file. The bytes that it has written become the output when it returns.
    func sign<Prepared>(
        _ files: SignedFiles, _ scheme: SchemeOption, timeStamps: TimeStampServer?, extension: String,
        prepare: (SigningContent, String) throws(ProviderError) -> Prepared,
        _ sign: (Signer, Prepared, SignedOutput) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> ExitStatus {
        // Whatever is wrong with these is found before a person is asked.
        let jobs = try SigningJob.all(files, extension: `extension`)
        func about<Result>(
            _ job: SigningJob, _ body: () async throws(ProviderError) -> Result
        ) async throws(ProviderError) -> Result {
            do throws(ProviderError) { return try await body() } catch {
                throw jobs.count > 1 ? error.about(job.name) : error
            }
        }
        var prepared: [Prepared] = []
        for job in jobs {
            prepared.append(
                try await about(job) { () throws(ProviderError) in
                    try prepare(job.content, job.directory)
                })
        }
        let signer = try await signer(scheme.value, timeStamps)
        for (job, prepared) in zip(jobs, prepared) {
            try await about(job) { () async throws(ProviderError) in
                let output = try job.output()
                try await sign(signer, prepared, output)
                try output.finish()
            }
        }
        guard files.out != nil || files.outDir != nil else { return .done }
        try show(SignaturesDocument(jobs, signer)) {
            jobs.compactMap { $0.file.map { $0.path.withVisibleControls + "\n" } }.joined()
        }
        return .done
    }

    /// Returns the signer of the configured identity, which may ask for a PIN: not for one whose certificate cannot sign.
    private func signer(
        _ scheme: SignatureScheme?, _ timeStamps: TimeStampServer?
    ) async throws(ProviderError) -> Signer {
        let interaction = self.interaction
        let manager = try await manager(try configuration(), unlocking: interaction)
        defer { log(manager.decisions) }
        let identity = try await manager.identity(interaction, checking: requireUsableCertificate)
        return try Signer(identity, scheme: scheme, timeStamps: timeStamps)
    }

    /// Throws if the certificate that a provider would choose cannot sign: before the PIN of its token is asked for. If the
    /// choice depends on the PIN, throws if none of the certificates can sign.
    private func requireUsableCertificate(of provider: any CertificateProvider) async throws(ProviderError) {
        guard let list = await provider.listing?.listIdentities() else { return }
        let candidates = (try? list.choice?.get()).map { [$0] } ?? list.identities
        // An identity of the store may be replaced by one that can sign.
        let leaves = candidates.filter { $0.keyLocation != .store }.compactMap(\.certificateChain.first)
        var refusal: ProviderError?
        for leaf in leaves {
            do throws(ProviderError) { return try Signer.requireUsable(leaf, at: Date()) } catch {
                refusal = refusal ?? error
            }
        }
        if let refusal { throw refusal }
    }
}

extension ProviderError {
    /// The error with a file in front of its message.
    fileprivate func about(_ file: String) -> Self {
        var copy = self
        copy.message = "\(file.withVisibleControls): \(message)"
        return copy
    }
}

/// A file to sign, open, and the place for its signature.
private final class SigningJob {
    let name: String
    let file: OutputFile?
    private let descriptor: Int32

    /// Opens the inputs and checks the outputs.
    static func all(_ files: SignedFiles, extension: String) throws(ProviderError) -> [SigningJob] {
        if files.out == nil, files.outDir == nil, Console.isOutputWatched {
            throw ProviderError(
                .usage, "The signature is binary, and stdout is a terminal; name a file with --out.")
        }
        guard let directory = files.outDir else {
            return [try SigningJob(files.inputs.first, files.out.map { OutputFile(path: $0, replacing: files.force) })]
        }
        var paths: Set<String> = []
        return try files.inputs.map { input throws(ProviderError) in
            let name = input.split(separator: "/").last.map(String.init) ?? input
            let path = "\(directory)/\(name)" + (`extension`.isEmpty ? "" : ".\(`extension`)")
            guard paths.insert(path).inserted else {
                throw ProviderError(
                    .usage,
                    "Two files would be written to \(path.withVisibleControls); sign them one after the other, with --out."
                )
            }
            return try SigningJob(input, OutputFile(path: path, replacing: files.force))
        }
    }

    private init(_ input: String?, _ file: OutputFile?) throws(ProviderError) {
        self.file = file
        if let input, input != "-" {
            name = input
            descriptor = open(input, O_RDONLY | O_CLOEXEC)
        } else {
            name = "stdin"
            descriptor = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
        }
        guard descriptor >= 0 else {
            let code = errno
            throw ProviderError(
                code == ENOENT ? .fileNotFound : .storeReadFailed,
                "\(name.withVisibleControls) cannot be read: \(errorText(code)).")
        }
        var (own, other) = (stat(), stat())
        guard fstat(descriptor, &own) == 0, own.st_mode & S_IFMT != S_IFDIR else {
            throw ProviderError(
                .storeReadFailed, "\(name.withVisibleControls) is a directory; name the files in it.")
        }
        guard let file else { return }
        if stat(file.path, &other) == 0, own.st_dev == other.st_dev, own.st_ino == other.st_ino {
            throw ProviderError(
                .usage,
                "\(file.path.withVisibleControls) is the file to sign, which is not replaced; name another one with --out."
            )
        }
        try file.check()
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    var content: SigningContent { SigningContent(descriptor: descriptor, name: name) }

    /// A directory on the output's file system.
    var directory: String { file?.directory ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp" }

    func output() throws(ProviderError) -> SignedOutput {
        SignedOutput(file: try file?.begin(), directory: directory)
    }
}

/// The result of one signature: a file that is not there before it is finished, or stdout.
struct SignedOutput: Sendable {
    fileprivate let file: OutputFile.Unfinished?
    /// A directory on the output's file system.
    let directory: String

    /// Adds bytes.
    ///
    /// - Throws: `storeWriteFailed`.
    func append(_ bytes: UnsafeRawBufferPointer) throws(ProviderError) {
        if let file { try file.append(bytes) } else { try Console.print(bytes) }
    }

    /// Adds bytes.
    ///
    /// - Throws: `storeWriteFailed`.
    func write(_ bytes: [UInt8]) throws(ProviderError) {
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(ProviderError) in try append(bytes) }
        }
        try result.get()
    }

    fileprivate func finish() throws(ProviderError) { try file?.finish() }
}

/// The result of `sign` with `--out` or `--out-dir`.
struct SignaturesDocument: CommandDocument {
    static let kind = "Signatures"

    let items: [Item]
    /// The subject of the certificate.
    let subject: String
    let scheme: String

    struct Item: Encodable {
        let input: String
        let file: String
    }

    fileprivate init(_ jobs: [SigningJob], _ signer: Signer) {
        items = jobs.compactMap { job in job.file.map { Item(input: job.name, file: $0.path) } }
        subject = signer.identity.certificate.subject
        scheme = signer.scheme.description
    }
}
