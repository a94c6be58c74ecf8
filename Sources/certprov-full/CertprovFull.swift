import ArgumentParser
import CertprovCommand
import NIOCore
import RemoteMDMProvider

/// `certprov` with the network stack: what the installed command hands over to.
@main
enum Main {
    static func main() {
        // There is one connection at a time; otherwise there would be two threads to start for each processor of the
        // host.
        NIOSingletons.groupLoopCountSuggestion = 1
        NIOSingletons.blockingPoolThreadCountSuggestion = 1
        let abilities = ProgramAbilities(makeRemoteMDMProvider: { RemoteMDMProvider(environment: $0) })
        CommandContext.$abilities.withValue(abilities) { RootCommand.run(CertprovFull.self) }
    }
}

struct CertprovFull: AsyncParsableCommand {
    static let configuration = RootCommand.configuration(connect: Connect.self)
}
