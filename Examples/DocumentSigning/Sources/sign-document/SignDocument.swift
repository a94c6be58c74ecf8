import ArgumentParser
import CertprovSigning
import Foundation

/// Signs a PDF with the identity of a property file.
@main
struct SignDocument: AsyncParsableCommand {
    @Option(help: "The property file.")
    var config: String

    @Option(help: "Why the document is signed, for readers to show.")
    var reason: String?

    @Argument(help: "The document.")
    var input: String

    @Argument(help: "The signed document.")
    var output: String

    func run() async throws {
        let document = try Data(contentsOf: URL(filePath: input))
        let logon = try CertprovLogon(configuredBy: config)
        let signer = try Signer(try await logon.manager.identity(NoUserInteraction()))
        let signed = try await signer.signedPDF(of: [UInt8](document), PDFSignatureDetails(reason: reason))
        try Data(signed).write(to: URL(filePath: output), options: .atomic)
        print("signed by \(signer.identity.certificate.subject)")
    }
}
