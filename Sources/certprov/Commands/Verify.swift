import ArgumentParser
import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Glibc
import Signing
import Terminal

struct Verify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Verify the signatures of a file: PDF, CMS, a time stamp, or a bare signature.",
        discussion: """
            Shows the parts of a verdict, each true, false or not known. Status 0 only if all parts hold that were asked about; 65 for a \
            signature that is not one of these bytes, or a document that was changed after it; 76 for one that is not trusted, and for \
            parts that are not known. A time stamp or a detached signature needs --content, a bare one --certificate or --public-key too. It does not \
            replace a qualified validation service.
            """)

    @Argument(
        help: ArgumentHelp("The signature, or the signed document. - is stdin.", valueName: "file"), completion: .file()
    )
    var file: String

    @Option(
        help: ArgumentHelp("The content that was signed, for a detached signature.", valueName: "file"),
        completion: .file())
    var content: String?

    @Option(
        help: ArgumentHelp(
            "PEM file with the signer's certificate, and the CA certificates between it and the trust anchors: FILE is a bare signature.",
            valueName: "file"), completion: .file())
    var certificate: String?

    @Option(
        help: ArgumentHelp("PEM file with the signer's public key: FILE is a bare signature.", valueName: "file"),
        completion: .file())
    var publicKey: String?

    @OptionGroup var scheme: SchemeOption

    @Option(
        help: ArgumentHelp(
            "PEM file with the CAs that the signer's certificate must lead to.",
            discussion: "Without it, whether the signer is trusted is not known. The system trust store is not used.",
            valueName: "file"), completion: .file())
    var trustAnchors: String?

    @Option(
        help: ArgumentHelp("PEM file with the CAs of time stamps. Default: --trust-anchors.", valueName: "file"),
        completion: .file())
    var timeStampAnchors: String?

    @Option(
        help: ArgumentHelp(
            "File or directory with the revocation lists of the CAs. Without it, revocation is not asked about.",
            valueName: "path"), completion: .file())
    var crl: String?

    @Option(
        help: ArgumentHelp(
            "The time at which certificates must be valid, such as 2026-11-30T12:00:00Z. Default: that of a trusted time stamp, else now.",
            valueName: "time"))
    var time: String?

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    var json = false

    /// The largest CMS message that is read; a PDF may have any size.
    private static let maximumMessage = 256 << 20

    func validate() throws {
        for (name, path) in [
            ("--content", content), ("--certificate", certificate), ("--public-key", publicKey),
            ("--trust-anchors", trustAnchors), ("--time-stamp-anchors", timeStampAnchors), ("--crl", crl),
        ] where path?.isEmpty == true { throw ValidationError("\(name) needs the name of a file.") }
        if certificate != nil, publicKey != nil { throw ValidationError("Use one of --certificate and --public-key.") }
        let isRaw = certificate != nil || publicKey != nil
        if isRaw, content == nil {
            throw ValidationError("A bare signature needs --content: the file that was signed.")
        }
        if !isRaw, scheme.scheme != nil { throw ValidationError("--scheme is for bare signatures.") }
        if file == "-", content == "-" { throw ValidationError("FILE and --content cannot both be stdin.") }
        if let time, (try? Date(time, strategy: .iso8601)) == nil {
            throw ValidationError("--time is not a time as in RFC 3339, such as 2026-11-30T12:00:00Z.")
        }
    }

    func run() async throws {
        try await CommandContext.guarded(json: json) { () async throws(ProviderError) in
            let verdicts = try await verdicts()
            try Console.show(
                VerificationDocument(file, verdicts), json: json, Warnings(of: "certprov", collecting: json)
            ) {
                verdicts.map { $0.text.map { $0 + "\n" }.joined() }.joined(separator: "\n")
            }
            return verdicts.map(\.status).max { $0.rank < $1.rank } ?? .done
        }
    }

    private func verdicts() async throws(ProviderError) -> [SignatureVerdict] {
        func certificates(_ path: String?) throws(ProviderError) -> [X509Certificate]? {
            guard let path else { return nil }
            return try CertificateFile.read(path)
        }
        let own = try certificates(certificate)
        let verifier = try SignatureVerifier(
            anchors: try certificates(trustAnchors), timeStampAnchors: try certificates(timeStampAnchors),
            intermediates: Array((own ?? []).dropFirst()), revocationLists: crl.map { RevocationLists(path: $0) },
            time: time.flatMap { try? Date($0, strategy: .iso8601) })
        let input = InputFile(file)
        let descriptor = try input.open()
        defer { close(descriptor) }
        if own == nil, publicKey == nil, Self.isPDF(descriptor) {
            guard content == nil else {
                throw ProviderError(.usage, "--content is for detached signatures; those of a PDF are in it.")
            }
            return try await verifier.pdf(SigningContent(descriptor: descriptor, name: input.name))
        }
        let signature = try Self.whole(SigningContent(descriptor: descriptor, name: input.name), input.name)
        let file = content.map { InputFile($0, named: "--content") }
        let other = try file.map { file throws(ProviderError) in try file.open() }
        defer { if let other { close(other) } }
        let signed = other.map { SigningContent(descriptor: $0, name: file?.name ?? "") }
        if let leaf = own?.first, let signed {
            return [try await verifier.raw(signature, of: signed, by: leaf, scheme: scheme.value)]
        }
        if let publicKey, let signed {
            return [try await verifier.raw(signature, of: signed, by: try Self.key(publicKey), scheme: scheme.value)]
        }
        do throws(ProviderError) {
            return [try await verifier.cms(try Self.der(signature, input.name), content: signed)]
        } catch {
            guard error.code == .malformedData else { throw error }
            throw ProviderError(
                .malformedData,
                "\(input.name) cannot be verified. \(error.message) A bare signature needs --certificate or --public-key.",
                underlying: error)
        }
    }

    private static func isPDF(_ descriptor: Int32) -> Bool {
        var start = [UInt8](repeating: 0, count: 1024)
        let count = pread(descriptor, &start, start.count, 0)
        let word = Array("%PDF-".utf8)
        return count > 0 && start[..<count].indices.contains { start[$0..<count].starts(with: word) }
    }

    private static func whole(_ content: SigningContent, _ name: String) throws(ProviderError) -> [UInt8] {
        var bytes: [UInt8] = []
        try content.read { piece throws(ProviderError) in
            guard bytes.count + piece.count <= maximumMessage else {
                throw ProviderError(.malformedData, "\(name) has more than \(maximumMessage) bytes, and is not a PDF.")
            }
            bytes.append(contentsOf: piece)
        }
        return bytes
    }

    /// The message of a PEM text, or the bytes as they are.
    private static func der(_ bytes: [UInt8], _ name: String) throws(ProviderError) -> [UInt8] {
        guard bytes.starts(with: "-----BEGIN ".utf8) else { return bytes }
        return try PEMFile(bytes, named: name).blocks.first { $0.label == "CMS" || $0.label == "PKCS7" }?.bytes ?? bytes
    }

    private static func key(_ path: String) throws(ProviderError) -> PublicKeyInfo {
        let bytes = try InputFile(path, named: "--public-key").read(atMost: 1 << 20)
        guard
            let block = try PEMFile(bytes, named: path.withVisibleControls).blocks.first(where: {
                $0.label == "PUBLIC KEY"
            })
        else {
            throw ProviderError(
                .malformedData, "\(path.withVisibleControls) has no public key in PEM (PUBLIC KEY); name another file.")
        }
        return try PublicKeyInfo(derRepresentation: block.bytes)
    }
}

extension ExitStatus {
    /// A broken signature counts more than an unknown one.
    fileprivate var rank: Int { self == .done ? 0 : self == .protocol ? 1 : 2 }
}

extension SignatureVerdict {
    fileprivate var status: ExitStatus {
        if holds { return .done }
        let isBroken = isUnaltered.holds == false || isSigned.holds == false
        return isBroken || (isUnaltered.holds == true && isSigned.holds == true && !isIntact) ? .data : .protocol
    }

    /// The parts, line by line.
    fileprivate var text: [String] {
        let name = field.map { "\($0.withVisibleControls): " } ?? ""
        let kind = form == .timeStamp ? "time stamp" : "signature"
        let signer = certificate.map { " by '\($0.subject)'" } ?? ""
        var lines = ["\(name)\(kind)\(signer)"]
        func add(_ label: String, _ part: Part, _ more: String = "") {
            let word = part.holds.map { $0 ? "yes" : "no" } ?? "not known"
            lines.append("  \(label): \(word)\(more)" + (part.reason.map { ": \($0.withVisibleControls)" } ?? ""))
        }
        add("bytes as signed", isUnaltered)
        add("signed by its key", isSigned)
        let source = timeSource == .timeStamp ? "the time stamp" : timeSource == .given ? "as given" : "now"
        add("trusted", isTrusted, isTrusted.holds == true ? ", at \(time.rfc3339) (\(source))" : "")
        if let isNotRevoked { add("not revoked", isNotRevoked) }
        add("may sign", maySign)
        if let claimedTime {
            lines.append("  \(form == .timeStamp ? "time" : "claimed time"): \(claimedTime.rfc3339)")
        }
        if let timeStamp { add("time stamp of \(timeStamp.time.rfc3339)", timeStamp.isTrusted) }
        if let coverage { lines.append("  covers: \(coverage.text)") }
        return lines
    }
}

extension SignatureVerdict.Coverage {
    fileprivate var text: String {
        guard change != .nothing else { return "the whole file" }
        let later = "\(laterRevisions) \(laterRevisions == 1 ? "revision" : "revisions") came later"
        let what =
            switch change {
            case .signatures: "signatures and validation data only" + (reason.map { "; \($0)" } ?? "")
            case .formValues: "values of form fields were changed: \((reason ?? "").withVisibleControls)"
            default: "something else was changed: \((reason ?? "").withVisibleControls)"
            }
        return "the first \(signedBytes) of \(size) bytes; \(later): \(what)"
    }
}

/// The result of `verify`.
private struct VerificationDocument: CommandDocument {
    static let kind = "Verification"

    let file: String
    let signatures: [Signature]

    struct Signature: Encodable {
        let form: String
        let field: Nullable<String>
        let signer: Nullable<Signer>
        let unaltered: Part
        let signed: Part
        let trusted: Part
        /// `null` if no lists were given.
        let notRevoked: Nullable<Part>
        let maySign: Part
        let time: String
        let timeSource: String
        let claimedTime: Nullable<String>
        let timeStamp: Nullable<Stamp>
        let coverage: Nullable<Coverage>
    }
    struct Part: Encodable {
        /// `null` if it is not known.
        let holds: Nullable<Bool>
        let reason: Nullable<String>

        init(_ part: SignatureVerdict.Part) { (holds, reason) = (Nullable(part.holds), Nullable(part.reason)) }
    }
    struct Signer: Encodable {
        let subject, issuer, serialNumber, sha256Fingerprint, notBefore, notAfter: String
    }
    struct Stamp: Encodable {
        let time: String
        let trusted: Part
    }
    struct Coverage: Encodable {
        let signedBytes, size, laterRevisions: Int
        let change: String
        let reason: Nullable<String>
    }

    init(_ file: String, _ verdicts: [SignatureVerdict]) {
        self.file = file
        signatures = verdicts.map { verdict in
            Signature(
                form: verdict.form.rawValue, field: Nullable(verdict.field),
                signer: Nullable(
                    verdict.certificate.map {
                        Signer(
                            subject: $0.subject, issuer: $0.issuer, serialNumber: $0.serialNumberText,
                            sha256Fingerprint: $0.sha256Fingerprint.hexEncoded, notBefore: $0.notValidBefore.rfc3339,
                            notAfter: $0.notValidAfter.rfc3339)
                    }),
                unaltered: Part(verdict.isUnaltered), signed: Part(verdict.isSigned),
                trusted: Part(verdict.isTrusted), notRevoked: Nullable(verdict.isNotRevoked.map { Part($0) }),
                maySign: Part(verdict.maySign), time: verdict.time.rfc3339, timeSource: verdict.timeSource.rawValue,
                claimedTime: Nullable(verdict.claimedTime?.rfc3339),
                timeStamp: Nullable(
                    verdict.timeStamp.map { Stamp(time: $0.time.rfc3339, trusted: Part($0.isTrusted)) }),
                coverage: Nullable(
                    verdict.coverage.map {
                        Coverage(
                            signedBytes: $0.signedBytes, size: $0.size, laterRevisions: $0.laterRevisions,
                            change: $0.change.rawValue, reason: Nullable($0.reason))
                    }))
        }
    }
}
