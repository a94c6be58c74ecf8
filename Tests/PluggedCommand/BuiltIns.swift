import CertificateProviding
import Glibc
import IdentityStore
import PKCS12FileProvider
import PluginHost

/// What is left when tokens and enrolment are plugins. The other files are those of the command.
enum BuiltIns {
    static var providers: [ProviderDescriptor] { [PKCS12FileProvider.descriptor] }
    static var keyStores: [KeyStoreDescriptor] { [SealedKeyStore.descriptor] }
    static let reservedSchemes: Set = ["store"]
    /// The provider that `--uri` is short for.
    static let providerOfURI = "pkcs11"

    static var pluginDirectories: PluginDirectories {
        PluginDirectories(getenv("CERTPROV_TEST_PLUGINS").map { [String(cString: $0)] } ?? [])
    }
}
