import ArgumentParser
import CertificateProviding
import Signing

struct SignRaw: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "raw",
        abstract: "Sign the bytes of files: the bare signature.",
        discussion: """
            ECDSA signatures are DER, others the raw octets, as 'openssl dgst -verify' and 'openssl pkeyutl -verify' read them. \
            In --out-dir, FILE.sig is written for FILE.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var files: SignedFiles
    @OptionGroup var scheme: SchemeOption

    func validate() throws { try files.check(options) }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            try await context.sign(
                files, scheme, try context.configuration(), timeStamps: nil, hasLevel: false, extension: "sig",
                prepare: { input, _ in input }
            ) { signer, input, output throws(ProviderError) in
                try output.write(try await signer.rawSignature(of: input.content))
            }
        }
    }
}
