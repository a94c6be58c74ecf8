import CertificateProviding
import CertificateTLS
import IdentityStore
import Logging
import Logon
import PKCS12FileProvider

func makeTLSCredentials(configuredBy file: String) async throws -> RotatingTLSCredentials {
    let registry = try ProviderRegistry([PKCS12FileProvider.descriptor])
    let secrets = SecretReader()
    let store = try IdentityStore.standard(secrets: secrets)
    let executor = BlockingExecutor.threads()
    let configuration = try LogonConfiguration.load(path: file, registry: registry)
    let manager = try LogonManager(configuration: configuration, registry: registry) { id in
        ProviderEnvironment(
            storage: store.storage(for: id), secrets: secrets, logger: Logger(label: "certprov"), executor: executor)
    }
    return RotatingTLSCredentials(try TLSCredentials(await manager.identity(NoUserInteraction())))
}
