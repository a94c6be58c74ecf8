import CertificateProviding
import IdentityStore
import PKCS12FileProvider
import PluginHost
import RemoteMDMProvider

#if PKCS11
    import PKCS11TokenProvider
#endif

/// The providers and key stores of this build, and where plugins add others.
enum BuiltIns {
    static var providers: [ProviderDescriptor] {
        #if PKCS11
            return [PKCS12FileProvider.descriptor, PKCS11TokenProvider.descriptor, RemoteMDMProvider.descriptor]
        #else
            return [PKCS12FileProvider.descriptor, RemoteMDMProvider.descriptor]
        #endif
    }

    static var keyStores: [KeyStoreDescriptor] {
        #if PKCS11
            return [SealedKeyStore.descriptor, TokenKeyStore.descriptor]
        #else
            return [SealedKeyStore.descriptor]
        #endif
    }

    /// URI schemes that plugins must not have, also where this build does not have their key stores.
    static let reservedSchemes: Set = ["pkcs11", "store"]

    /// The provider that `--uri` is short for.
    static let providerOfURI = "pkcs11"

    static var pluginDirectories: PluginDirectories { .standard }
}
