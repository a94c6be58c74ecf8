import ArgumentParser
import CertificateProviding
import Signing

struct SignPDF: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pdf",
        abstract: "Sign PDF files (PAdES B-B, B-T or B-LT).",
        discussion: """
            The result is the document and an update with the signature, as 'pdfsig' shows it. Its field is invisible, on the first \
            page, unless --visible or --field gives it a place: there the name of the signer, the time and the reason are shown. \
            The picture proves nothing; the signature does. A document that is damaged, encrypted, or closed by an earlier signature is refused. In --out-dir, the result \
            has the name of FILE.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var files: SignedFiles
    @OptionGroup var scheme: SchemeOption
    @OptionGroup(title: "Level and time stamps") var timeStamps: TimeStampOptions

    @Option(
        help: ArgumentHelp(
            "Sign in this empty signature field, named with its parents: form.signature. Default: a new field.",
            valueName: "name"))
    var field: String?

    @Option(
        help: ArgumentHelp(
            "Show the signature in a new field: the number of the page, and in points the left and lower edge, width and height.",
            valueName: "page:x,y,w,h"),
        transform: Self.place)
    var visible: PDFSignatureDetails.Place?

    @Option(help: ArgumentHelp("Why the document is signed, for readers to show.", valueName: "text"))
    var reason: String?

    @Option(help: ArgumentHelp("The place of the signature, for readers to show.", valueName: "text"))
    var location: String?

    func validate() throws {
        try files.check(options)
        guard field == nil || visible == nil else {
            throw ValidationError(
                "--visible makes a new field, and --field names an existing one. Give one of the two.")
        }
    }

    private static func place(_ text: String) throws -> PDFSignatureDetails.Place {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let numbers = (parts.last ?? "").split(separator: ",", omittingEmptySubsequences: false).compactMap {
            Double($0)
        }
        guard parts.count == 2, let page = Int(parts[0]), page > 0, numbers.count == 4,
            parts[1].count(where: { $0 == "," }) == 3
        else {
            throw ValidationError(
                "'\(text.withVisibleControls)' is not PAGE:X,Y,W,H, such as 1:36,36,200,50: the number of a page, from 1, and four "
                    + "numbers of points.")
        }
        return .init(page: page, x: numbers[0], y: numbers[1], width: numbers[2], height: numbers[3])
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let server = try timeStamps.server(context, configuration)
            let details = PDFSignatureDetails(
                field: field, visible: visible, reason: reason, location: location)
            return try await context.sign(
                files, scheme, configuration, timeStamps: server, isLongTerm: timeStamps.level == .longTerm,
                extension: "",
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
