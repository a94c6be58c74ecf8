import CertificateProviding
import Foundation
import IdentityStore
import Logging
import Logon
import ProviderTransport
import Synchronization
import TestSupport

/// One of many hosts. It has a state directory and a certificate of its own. Each of its operations is made as by a new
/// process, which knows only the files on disk.
struct SimulatedHost: Sendable {
    let number: Int
    private let site: Site
    private let provider: HostProvider

    /// The shared parts of all hosts.
    struct Site: Sendable {
        let directory: TemporaryDirectory
        let authority: TestAuthority
        let configuration: LogonConfiguration
        let executor = BlockingExecutor.threads()

        init(_ server: ReferenceServer, _ authority: TestAuthority, in directory: TemporaryDirectory) throws {
            (self.directory, self.authority) = (directory, authority)
            let text = """
                Host = 127.0.0.1
                Port = \(server.port)
                SecurityConfiguration = SSO
                ApplicationId = \(ReferenceServer.application)
                CertificateProvider = throw-away
                TrustAnchors = \(directory["ca.pem"])
                """
            let path = try directory.write(text.utf8, to: "clienthub.properties")
            configuration = try LogonConfiguration.load(
                path: path, registry: ProviderRegistry([HostProvider.descriptor(nil)]))
        }
    }

    private struct Greeting: Decodable { var principal, connection: String }

    init(_ number: Int, _ site: Site) {
        (self.number, self.site) = (number, site)
        provider = HostProvider("host-\(number)", site.authority)
    }

    func register() async throws(CertificateProviderError) {
        _ = try await manager().register(Person(Self.passcode))
    }

    /// Sends a request over the registered connection.
    ///
    /// - Returns: The id of the connection. The server has confirmed that it is this host's.
    func greet() async throws -> String {
        let manager = try manager()
        try await manager.unlock(passcode: SecretBytes(utf8: Self.passcode))
        let id = try await manager.registeredConnection().description
        let response = try await manager.request(HTTPRequest(target: "/odata/\(ReferenceServer.application)/Hello"))
        let greeting = try? JSONDecoder().decode(Greeting.self, from: Data(response.body))
        guard greeting?.connection == id, greeting?.principal == "CN=host-\(number),O=certprov tests" else {
            throw Failure("host \(number) is unknown to the server, which answers with the status \(response.status)")
        }
        return id
    }

    private static let passcode = "correct horse battery"

    private func manager() throws(CertificateProviderError) -> LogonManager {
        let vault = try DataVault(
            ReferenceServer.application, in: "\(site.directory.path)/hosts/\(number)",
            policy: site.configuration.registration.passcodePolicy,
            // The real ones would take an hour of two cores.
            parameters: ScryptParameters(logarithmOfCost: 4, blockSize: 1, parallelism: 1))
        return try LogonManager(
            configuration: site.configuration, registry: ProviderRegistry([HostProvider.descriptor(provider)]),
            vault: vault, executor: site.executor
        ) { [executor = site.executor] id in
            ProviderEnvironment(storage: vault.storage(for: id), logger: Logger(label: "host"), executor: executor)
        }
    }
}

/// A host's provider: makes a key and a certificate when it is asked the first time.
final class HostProvider: CertificateProvider {
    static let id = ProviderID("throw-away")
    private let name: String
    private let authority: TestAuthority
    private let identity = Mutex<Identity?>(nil)

    init(_ name: String, _ authority: TestAuthority) { (self.name, self.authority) = (name, authority) }

    /// - Parameter provider: Nil to look at a configuration only.
    static func descriptor(_ provider: HostProvider?) -> ProviderDescriptor {
        ProviderDescriptor(id: id, displayName: "Simulation", summary: "Issues a certificate.", parameters: []) {
            (_, _) throws(CertificateProviderError) in
            guard let provider else { throw CertificateProviderError(.internal, "There is no provider.") }
            return provider
        }
    }

    var id: ProviderID { Self.id }

    func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        if let identity = try getStoredCertificate() { return identity }
        do {
            let new = try authority.issue(name, provider: Self.id)
            identity.withLock { $0 = new }
            return new
        } catch {
            throw CertificateProviderError(.internal, "The certificate cannot be issued.", underlying: error)
        }
    }

    func getStoredCertificate() throws(CertificateProviderError) -> Identity? { identity.withLock(\.self) }

    func deleteStoredCertificate() throws(CertificateProviderError) { identity.withLock { $0 = nil } }
}
