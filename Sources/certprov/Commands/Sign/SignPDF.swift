import ArgumentParser
import CertificateProviding
import Signing

struct SignPDF: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pdf",
        abstract: "Sign PDF files (PAdES B-B, with a time stamp B-T).",
        discussion: """
            The result is the document and an update with the signature, as 'pdfsig' shows it. Its field is invisible, on the first \
            page. A document that is damaged, encrypted, or closed by an earlier signature is refused. In --out-dir, the result \
            has the name of FILE.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var files: SignedFiles
    @OptionGroup var scheme: SchemeOption
    @OptionGroup(title: "Time stamps") var timeStamps: TimeStampOptions

    @Option(
        help: ArgumentHelp(
            "Sign in this empty signature field, named with its parents: form.signature. Default: a new field.",
            valueName: "name"))
    var field: String?

    @Option(help: ArgumentHelp("Why the document is signed, for readers to show.", valueName: "text"))
    var reason: String?

    @Option(help: ArgumentHelp("The place of the signature, for readers to show.", valueName: "text"))
    var location: String?

    func validate() throws { try files.check(options) }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let server = try timeStamps.server(context, configuration)
            let details = PDFSignatureDetails(field: field, reason: reason, location: location)
            return try await context.sign(
                files, scheme, configuration, timeStamps: server, extension: "",
                prepare: { input, directory throws(ProviderError) in
                    let pdf = try PDFToSign(
                        input.content, details, hasTimeStamp: server != nil, directory: directory)
                    for note in pdf.notes() { context.remark("The PDF \(input.name) \(note).") }
                    return pdf
                },
                remark: { signer in
                    guard signer.identity.certificate.publicKey.isRestrictedToPSS else { return nil }
                    return
                        "pdfsig (poppler) cannot judge signatures of an RSASSA-PSS key, and calls them invalid, which OpenSSL does not; for "
                        + "readers with poppler, sign with a key that is certified as RSA or EC."
                }
            ) { signer, pdf, output throws(ProviderError) in
                try await signer.signPDF(pdf, write: output.append)
            }
        }
    }
}
