import CertificateProviding
import Hummingbird
import NIOCore
import ServiceLifecycle
import SystemPackage

/// An application, and the option that says where it listens, for messages.
struct Listener: Service {
    let application: Application<RouterResponder<ServerContext>>
    let option: String

    func run() async throws {
        do {
            try await application.run()
        } catch let error as IOError {
            throw ConfigurationError(
                "\(option): the server cannot listen there: \(Errno(rawValue: error.errnoCode)). Set another one.")
        } catch let error as SocketAddressError.UnknownHost {
            throw ConfigurationError("\(option): the address is unknown: \(error). Set another one.")
        }
    }
}
