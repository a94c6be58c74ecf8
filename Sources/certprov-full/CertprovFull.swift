import ArgumentParser
import CertprovCommand
import RemoteMDMProvider

/// `certprov` with the network stack: what the installed command hands over to.
@main
enum Main {
    static func main() {
        let abilities = ProgramAbilities(makeRemoteMDMProvider: { RemoteMDMProvider(environment: $0) })
        CommandContext.$abilities.withValue(abilities) { RootCommand.run(CertprovFull.self) }
    }
}

struct CertprovFull: AsyncParsableCommand {
    static let configuration = RootCommand.configuration(connect: Connect.self)
}
