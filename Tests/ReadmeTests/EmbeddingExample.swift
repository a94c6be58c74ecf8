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

func makeTLSCredentials(of manager: LogonManager) async throws -> RotatingTLSCredentials {
    RotatingTLSCredentials(try TLSCredentials(await manager.identity(NoUserInteraction())))
}
