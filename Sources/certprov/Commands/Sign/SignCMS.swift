import ArgumentParser
import CertificateProviding
import Signing

struct SignCMS: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cms",
        abstract: "Sign files as CMS (CAdES B-B, B-T or B-LT), detached.",
        discussion: """
            The signature is DER, as 'openssl cms -verify -inform DER' reads it. In --out-dir, FILE.p7s is written for FILE, and with \
            --attached FILE.p7m, which has the content too.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var files: SignedFiles
    @OptionGroup var scheme: SchemeOption
    @OptionGroup(title: "Level and time stamps") var timeStamps: TimeStampOptions

    @Flag(help: "Put the content into the signature.")
    var attached = false

    func validate() throws { try files.check(options) }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let server = try timeStamps.server(context, configuration)
            return try await context.sign(
                files, scheme, configuration, timeStamps: server, isLongTerm: timeStamps.level == .longTerm,
                extension: attached ? "p7m" : "p7s",
                prepare: { input, _ in input }
            ) {
                signer, input, output throws(ProviderError) in
                guard attached else { return try output.write(try await signer.detachedCMS(of: input.content)) }
                let spool = try ContentSpool(in: output.directory)
                try await signer.attachedCMS(of: input.content, spool: spool, write: output.append)
            }
        }
    }
}
