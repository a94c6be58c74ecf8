import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import SigningRequests
import Terminal

struct RequestsSend: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send",
        abstract: "Have this user's signer sign a PDF or a challenge, and verify its reply.",
        discussion: """
            FILE is a PDF if it begins with %PDF-, and else a challenge, which is signed as it is (ECDSA, P-256 and SHA-256). Shows the \
            subject of the signer's certificate. With --url, the request goes another way, and --reply verifies the reply that came \
            back: certprov requests send FILE --reply REPLY.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(help: ArgumentHelp("The PDF or the challenge. Default: stdin.", valueName: "file"), completion: .file())
    var file: String?

    @Flag(help: "FILE is a challenge, whatever it begins with.")
    var challenge = false

    @Flag(help: "FILE is a PDF, whatever it begins with.")
    var pdf = false

    @OptionGroup(title: "The request") var request: RequestOptions

    @Option(
        help: ArgumentHelp(
            "The signer's socket. Default: certprov/requests.sock in $XDG_RUNTIME_DIR.", valueName: "path"),
        completion: .file())
    var socket: String?

    @Option(help: ArgumentHelp("How long to wait for the reply. Default: 150s.", valueName: "time"))
    var timeout: SpanOfTime?

    @Flag(help: "Show the URL of the request, and send nothing.")
    var url = false

    @OptionGroup(title: "The reply") var reply: ReplyOptions

    private var isRead: Bool { reply.reply != nil }

    func validate() throws {
        if options.drivenProvider != nil {
            throw ValidationError("A request is sent without an identity; remove --provider, --set and --uri.")
        }
        if file?.isEmpty == true { throw ValidationError("A file has an empty name.") }
        if challenge, pdf { throw ValidationError("Use one of --challenge and --pdf.") }
        if url, isRead { throw ValidationError("Use one of --url and --reply.") }
        if isRead {
            if let name = request.given { throw ValidationError("\(name) is for a request; remove it, or --reply.") }
            if reply.reply == "-", file == nil || file == "-" {
                throw ValidationError("Only one of FILE and --reply can be stdin.")
            }
        } else if let name = request.missing {
            throw ValidationError("A request needs \(name).")
        }
        if url, let name = reply.given { throw ValidationError("\(name) is for a reply; remove it, or --url.") }
        if url || isRead, socket != nil || timeout != nil {
            throw ValidationError("--socket and --timeout are for a request that is sent; remove them.")
        }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let data = try InputFile(file, named: "FILE").read(atMost: Self.maximumDocument)
            let operation: SigningOperation =
                if challenge { .signChallenge } else if pdf || data.starts(with: "%PDF-".utf8) { .signPDF } else {
                    .signChallenge
                }
            guard isRead else {
                let (url, requestID) = try request.url(operation, data, file, context)
                if self.url {
                    try context.show(
                        SigningRequestDocument(operation: operation.rawValue, requestID: requestID, url: url)
                    ) {
                        url + "\n"
                    }
                    return .done
                }
                return try await finish(operation, data, context) { () async throws(ProviderError) in
                    try await send(url)
                }
            }
            return try await finish(operation, data, context) { () throws(ProviderError) in
                try InputFile(reply.reply, named: "--reply").read(atMost: Self.maximumReply)
            }
        }
    }

    /// The most that a signer can be configured to take, in bytes.
    private static let maximumDocument = 256 << 20
    private static let maximumReply = 512 << 20

    private func send(_ url: String) async throws(ProviderError) -> [UInt8] {
        if Console.isStandardErrorTerminal { Console.note("Waiting for the signer …") }
        do throws(ProviderError) {
            return try await RequestSocket.send(url, to: socket, within: timeout?.duration ?? .seconds(150))
        } catch {
            throw error.code == .timedOut ? ResponseCode.emptyResponse.failure(error.message) : error
        }
    }

    /// Gets a reply, verifies it, and writes the results.
    private func finish(
        _ operation: SigningOperation, _ data: [UInt8], _ context: CommandContext,
        _ receive: () async throws(ProviderError) -> [UInt8]
    ) async throws(ProviderError) -> ExitStatus {
        // Whatever is wrong with these is found before a person is asked.
        let outputs = try reply.outputs(operation, inputs: [file, reply.reply])
        let anchors = try reply.trustAnchors.map { path throws(ProviderError) in
            try CertificateFile.read(path)
        }
        let verified = try await SigningReply(try await receive(), to: operation, of: data, anchors: anchors)
        if anchors == nil {
            context.remark(
                "the signer's certificate is not validated; name the PEM file of its CAs with --trust-anchors")
        }
        try outputs.data?.write(verified.data)
        try outputs.certificate?.write(Array(verified.certificate.pemRepresentation.utf8))
        try context.show(SigningReplyDocument(verified, operation, file: outputs.data?.path)) {
            verified.certificate.subject + "\n"
        }
        return .done
    }
}

/// The items of a request.
struct RequestOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The number that the signer has for this client.", valueName: "number"))
    var clientID: UInt32?

    @Option(
        help: ArgumentHelp(
            "The source of the client's key: file:PATH, env:NAME, fd:N or systemd:NAME.", valueName: "source"))
    var keySource: String?

    @Option(help: ArgumentHelp("The service that asks, for the person.", valueName: "name"))
    var serviceName: String?

    @Option(
        help: ArgumentHelp(
            "The service's logo: PNG, JPEG, GIF or WebP, of at most 512,000 bytes. Default: a grey point.",
            valueName: "file"),
        completion: .file())
    var logo: String?

    @Option(help: ArgumentHelp("The person's code; needed for a PDF.", valueName: "code"))
    var userCode: String?

    @Option(help: ArgumentHelp("The number of the request, for the person. Default: a random UUID.", valueName: "id"))
    var requestID: String?

    @Option(help: ArgumentHelp("The name of the PDF, for the person. Default: that of FILE.", valueName: "name"))
    var documentName: String?

    @Option(help: ArgumentHelp("The scheme of the reply's URL. Default: sima.", valueName: "scheme"))
    var scheme: String?

    func validate() throws {
        if let keySource {
            guard let source = SecretSource(keySource), source != .prompt else {
                throw ValidationError("--key-source must be file:PATH, env:NAME, fd:N or systemd:NAME.")
            }
        }
    }

    /// An option that is missing in a request.
    var missing: String? {
        if clientID == nil { return "--client-id" }
        if keySource == nil { return "--key-source" }
        return serviceName == nil ? "--service-name" : nil
    }

    /// An option that is given.
    var given: String? {
        [
            ("--client-id", clientID != nil), ("--key-source", keySource != nil),
            ("--service-name", serviceName != nil),
            ("--logo", logo != nil), ("--user-code", userCode != nil), ("--request-id", requestID != nil),
            ("--document-name", documentName != nil), ("--scheme", scheme != nil),
        ].first { $0.1 }?.0
    }

    func url(
        _ operation: SigningOperation, _ data: [UInt8], _ file: String?, _ context: CommandContext
    ) throws(ProviderError) -> (url: String, requestID: String) {
        guard let clientID, let keySource = keySource.flatMap({ SecretSource($0) }), let serviceName else {
            throw ProviderError(.usage, "A request needs --client-id, --key-source and --service-name.")
        }
        let image = try logo.map { path throws(ProviderError) in
            // One byte more than is allowed is refused as that.
            try RequestLogo(try InputFile(path, named: "--logo").read(atMost: 1 << 20))
        }
        let requestID = self.requestID ?? UUID().uuidString
        let name = file.flatMap { $0.split(separator: "/").last }.map(String.init)
        let request = SigningRequest(
            operation, data, serviceName: serviceName, clientID: clientID, logo: image ?? .blank,
            documentName: documentName ?? (name == "-" ? nil : name), userCode: userCode, requestID: requestID,
            returnScheme: scheme)
        let key = try context.secrets.read(keySource)
        guard !key.isEmpty else {
            throw ProviderError(.configurationInvalid, "The client's key, \(keySource), is empty.")
        }
        return (try request.url(key: key).text, requestID)
    }
}

/// The reply, and the files for its parts.
struct ReplyOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Read the reply from this file, and send nothing; - is stdin.", valueName: "file"),
        completion: .file())
    var reply: String?

    @Option(
        help: ArgumentHelp(
            "PEM file with the CAs that the signer's certificate must lead to; for a challenge, with the intermediates. Default: it is not validated.",
            valueName: "file"),
        completion: .file())
    var trustAnchors: String?

    @Option(
        help: ArgumentHelp(
            "Write the signed PDF, or the signature of the challenge (DER), to this file. Needed for a PDF.",
            valueName: "file"),
        completion: .file())
    var out: String?

    @Option(
        help: ArgumentHelp("Write the signer's certificate (PEM) to this file.", valueName: "file"),
        completion: .file())
    var certificateOut: String?

    @Flag(help: "Replace files of --out and --certificate-out that exist. FILE is never replaced.")
    var force = false

    func validate() throws {
        for (name, path) in [
            ("--reply", reply), ("--trust-anchors", trustAnchors), ("--out", out),
            ("--certificate-out", certificateOut),
        ] where path?.isEmpty == true { throw ValidationError("\(name) needs the name of a file.") }
        if out != nil, out == certificateOut {
            throw ValidationError("--out and --certificate-out name the same file.")
        }
        if force, out == nil, certificateOut == nil {
            throw ValidationError("--force needs --out or --certificate-out.")
        }
    }

    /// An option that is given.
    var given: String? {
        [
            ("--trust-anchors", trustAnchors != nil), ("--out", out != nil),
            ("--certificate-out", certificateOut != nil),
        ].first { $0.1 }?.0
    }

    func outputs(
        _ operation: SigningOperation, inputs: [String?]
    ) throws(ProviderError) -> (data: OutputFile?, certificate: OutputFile?) {
        guard out != nil || operation == .signChallenge else {
            throw ProviderError(.usage, "The signed PDF needs a file; name it with --out.")
        }
        func output(_ path: String?) throws(ProviderError) -> OutputFile? {
            guard let path else { return nil }
            var (own, other) = (stat(), stat())
            for case let input? in inputs where stat(input, &other) == 0 && stat(path, &own) == 0 {
                guard own.st_dev != other.st_dev || own.st_ino != other.st_ino else {
                    throw ProviderError(
                        .usage, "\(path.withVisibleControls) is an input, which is not replaced; name another file.")
                }
            }
            let file = OutputFile(path: path, replacing: force)
            try file.check()
            return file
        }
        return (try output(out), try output(certificateOut))
    }
}

/// The result of `requests send --url`.
private struct SigningRequestDocument: CommandDocument {
    static let kind = "SigningRequest"

    let operation: String
    let requestID: String
    let url: String
}

/// The result of `requests send`.
private struct SigningReplyDocument: CommandDocument {
    static let kind = "SigningReply"

    let operation: String
    /// Of the signer's certificate.
    let subject: String
    let sha256Fingerprint: String
    /// DER, in base64.
    let certificate: String
    /// Whether the certificate leads to one of the anchors.
    let validated: Bool
    /// Of a challenge: DER, in base64.
    let signature: Nullable<String>
    /// The file with the signature, or with the signed PDF.
    let file: Nullable<String>

    init(_ reply: SigningReply, _ operation: SigningOperation, file: String?) {
        self.operation = operation.rawValue
        subject = reply.certificate.subject
        sha256Fingerprint = reply.certificate.sha256Fingerprint.hexEncoded
        certificate = Data(reply.certificate.derRepresentation).base64EncodedString()
        validated = reply.chain != nil
        signature = Nullable(operation == .signChallenge ? Data(reply.data).base64EncodedString() : nil)
        self.file = Nullable(file)
    }
}
