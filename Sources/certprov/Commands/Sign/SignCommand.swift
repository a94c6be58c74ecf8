import ArgumentParser

struct SignCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign",
        abstract: "Sign files with the identity: as data, CMS or PDF.",
        discussion: """
            The identity is chosen as 'certprov fetch' does, and its key stays where it is. Each signature is verified before it \
            is written, and an output file is written whole or not at all. Without FILE, stdin is signed. Signatures are verified \
            with 'certprov verify', or with other programs: see the page Signing.
            """,
        subcommands: [SignRaw.self, SignCMS.self, SignPDF.self])
}
