import CertificateProviding
import CertificateTLS
import IdentityStore
import Logging
import Logon
import PKCS11TokenProvider
import PKCS12FileProvider
import RemoteMDMProvider

func makeManager(configuredBy file: String) throws -> LogonManager {
    let registry = try ProviderRegistry([.pkcs12, .pkcs11, .mdm], keyStores: [.store, .pkcs11])
    let secrets = SecretReader()
    let store = try IdentityStore.standard(secrets: secrets)
    let executor = BlockingExecutor.threads()
    let configuration = try LogonConfiguration.load(path: file, registry: registry)
    return try LogonManager(configuration: configuration, registry: registry) { id in
        ProviderEnvironment(
            storage: store.storage(for: id), secrets: secrets, logger: Logger(label: "certprov"), executor: executor)
    }
}

func makeTLS(of manager: LogonManager, trusting clients: String) async throws -> RotatingTLS {
    let trust = PeerTrust(anchors: .pemFile(clients), peers: try PeerPolicy(parsing: "dns:*.clients.example"))
    return try await RotatingTLS(presenting: await manager.identity(NoUserInteraction()), trusting: trust)
}
