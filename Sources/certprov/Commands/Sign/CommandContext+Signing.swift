import CertificateProviding
import FoundationEssentials
import Glibc
import Logon
import Signing
import Terminal

extension CommandContext {
    /// Signs files one after the other, with one identity. Of several, one that cannot be signed is named, and the others are signed; the
    /// exit status is that of the first.
    ///
    /// - Parameters:
    ///   - hasLevel: Whether the signatures have a level of the ETSI's standards.
    ///   - extension: Of the results in `--out-dir`.
    ///   - prepare: Reads one file as far as that is possible without the key. Gets a directory for temporary files.
    ///   - remark: What to warn of before the first signature; `nil` for nothing.
    ///   - sign: Writes the signature of one file. The bytes that it has written become the output when it returns.
    func sign<Prepared>(
        _ files: SignedFiles, _ scheme: SchemeOption, _ configuration: LogonConfiguration,
        timeStamps: TimeStampServer?, isLongTerm: Bool = false, hasLevel: Bool = true, extension: String,
        prepare: (SignedInput, String) throws(ProviderError) -> Prepared,
        remark: (Signer) -> String? = { _ in nil },
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
        var waiting: [(job: SigningJob, prepared: Prepared)] = []
        var failures: [ProviderError] = []
        for job in jobs {
            do throws(ProviderError) {
                let input = try SignedInput(job.path)
                try input.check(job.file)
                let prepared = try await about(job) { () throws(ProviderError) in try prepare(input, job.directory) }
                waiting.append((job, prepared))
            } catch {
                guard jobs.count > 1, error.code != .usage else { throw error }
                failures.append(error)
                report(error)
            }
        }
        if waiting.isEmpty, let failure = failures.first { return ExitStatus(failure.code) }
        var signed: [SigningJob] = []
        let signer = try await signer(configuration, scheme.value, timeStamps, isLongTerm)
        remark(signer).map(self.remark)
        // A temporary copy goes with its signature.
        waiting.reverse()
        while let (job, prepared) = waiting.popLast() {
            try await about(job) { () async throws(ProviderError) in
                let output = try job.output()
                try await sign(signer, prepared, output)
                try output.finish()
            }
            signed.append(job)
        }
        guard files.out != nil || files.outDir != nil else { return .done }
        try show(SignaturesDocument(signed, failures, signer, hasLevel: hasLevel)) {
            signed.compactMap { $0.file.map { $0.path.withVisibleControls + "\n" } }.joined()
        }
        return failures.first.map { ExitStatus($0.code) } ?? .done
    }

    /// Returns the signer of the configured identity, which may ask for a PIN: not for one whose certificate cannot sign.
    private func signer(
        _ configuration: LogonConfiguration, _ scheme: SignatureScheme?, _ timeStamps: TimeStampServer?,
        _ isLongTerm: Bool
    ) async throws(ProviderError) -> Signer {
        let interaction = self.interaction
        let manager = try await manager(configuration, unlocking: interaction)
        defer { log(manager.decisions) }
        // A look at a token would cost a login.
        let stored = configuration.asksForPassword ? try? await manager.storedIdentity() : nil
        let identity = try await manager.identity(interaction, checking: requireUsableCertificate)
        if stored == nil { remarkOnCopy(of: identity, configuration) }
        return try Signer(identity, scheme: scheme, timeStamps: timeStamps, isLongTerm: isLongTerm)
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

/// A file to sign, or stdin, open. Closed with the last reference.
final class SignedInput: Sendable {
    private let descriptor: Int32
    let name: String

    init(_ path: String?) throws(ProviderError) {
        let file = InputFile(path)
        (descriptor, name) = (try file.open(), file.name)
    }

    deinit { close(descriptor) }

    /// Valid as long as this.
    var content: SigningContent { SigningContent(descriptor: descriptor, name: name) }

    fileprivate func check(_ output: OutputFile?) throws(ProviderError) {
        var (own, other) = (stat(), stat())
        guard fstat(descriptor, &own) == 0, own.st_mode & S_IFMT != S_IFDIR else {
            throw ProviderError(.storeReadFailed, "\(name) is a directory; name the files in it.")
        }
        guard let output else { return }
        if stat(output.path, &other) == 0, own.st_dev == other.st_dev, own.st_ino == other.st_ino {
            throw ProviderError(
                .usage,
                "\(output.path.withVisibleControls) is the file to sign, which is not replaced; name another one with --out."
            )
        }
        try output.check()
    }
}

/// A file to sign, and the place for its signature.
private struct SigningJob {
    /// `nil` for stdin.
    let path: String?
    let file: OutputFile?

    private init(_ input: String?, _ file: OutputFile?) { (path, self.file) = (input == "-" ? nil : input, file) }

    static func all(_ files: SignedFiles, extension: String) throws(ProviderError) -> [SigningJob] {
        if files.out == nil, files.outDir == nil, Console.isOutputWatched {
            throw ProviderError(
                .usage, "The signature is binary, and stdout is a terminal; name a file with --out.")
        }
        guard let directory = files.outDir else {
            return [SigningJob(files.inputs.first, files.out.map { OutputFile(path: $0, replacing: files.force) })]
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
            return SigningJob(input, OutputFile(path: path, replacing: files.force))
        }
    }

    var name: String { path ?? "stdin" }

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
    func write(_ bytes: [UInt8]) throws(ProviderError) { try SigningContent(bytes).read(append) }

    fileprivate func finish() throws(ProviderError) { try file?.finish() }
}

/// The result of `sign` with `--out` or `--out-dir`.
struct SignaturesDocument: CommandDocument {
    static let kind = "Signatures"

    let items: [Item]
    /// The subject of the certificate.
    let subject: String
    let scheme: String
    /// `B-B`, `B-T` or `B-LT`; `null` for raw signatures.
    let level: Nullable<String>
    /// Of the files that cannot be signed.
    let errors: [Enveloped<ErrorDocument>]

    struct Item: Encodable {
        let input: String
        let file: String
    }

    fileprivate init(_ jobs: [SigningJob], _ failures: [ProviderError], _ signer: Signer, hasLevel: Bool) {
        errors = failures.map { Enveloped(ErrorDocument($0)) }
        items = jobs.compactMap { job in job.file.map { Item(input: job.name, file: $0.path) } }
        subject = signer.identity.certificate.subject
        scheme = signer.scheme.description
        level = Nullable(hasLevel ? signer.level : nil)
    }
}
