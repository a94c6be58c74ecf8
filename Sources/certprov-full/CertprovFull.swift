import ArgumentParser
import CertprovCommand
import Logon
import RemoteMDMProvider

/// `certprov` with the network stack and with property lists: what the installed command hands over to.
@main
enum Main {
    static func main() {
        CommandContext.$propertyLists.withValue(.swiftConfiguration) {
            CommandContext.$makeRemoteMDMProvider.withValue({ RemoteMDMProvider(environment: $0) }) {
                RootCommand.run(CertprovFull.self)
            }
        }
    }
}

struct CertprovFull: AsyncParsableCommand {
    static let configuration = RootCommand.configuration(connect: Connect.self)
}
