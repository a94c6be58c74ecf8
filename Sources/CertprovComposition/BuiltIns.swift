package import CertificateProviding
import CertificateTLS
import IdentityFiles
import IdentityStore
import PEMFileProvider
import PKCS12FileProvider
package import Logging
package import Logon
package import PluginHost

#if ACME
    import ACMEProvider
#endif
#if MDM
    import OAuth
    import RemoteMDMProvider
#endif
#if PKCS11
    import PKCS11TokenProvider
#endif

/// The providers and key stores that a program has built in, and where plugins add others.
package struct BuiltIns: Sendable {
    package var providers = [PEMFileProvider.descriptor, PKCS12FileProvider.descriptor]
    package var keyStores = [SealedKeyStore.descriptor]
    /// Sections of the property file that rooms declare. The keys of signing requests are for the command and programs that sign, those of
    /// the host service for the command.
    package var sections = [
        PeerTrust.settings, IdentityExport.section,
        SettingsSection(title: "Signing requests", namespaces: ["Signing."], []),
        SettingsSection(title: "Host service", namespaces: ["Serve."], []),
    ]
    /// URI schemes that plugins must not have, also where this build does not have their key stores.
    package var reservedSchemes: Set = ["store"]
    package var pluginDirectories = PluginDirectories.standard

    /// The provider that `--uri` is short for.
    package static let providerOfURI = "pkcs11"

    /// All that this build has.
    package static var all: BuiltIns {
        var all = BuiltIns()
        #if PKCS11
            all.providers.append(PKCS11TokenProvider.descriptor)
            all.keyStores.append(TokenKeyStore.descriptor)
        #endif
        #if MDM
            all.providers.append(RemoteMDMProvider.descriptor)
        #endif
        #if ACME
            all.providers.append(ACMEProvider.descriptor)
        #endif
        all.reservedSchemes.insert("pkcs11")
        return all
    }

    /// The provider whose OAuth settings ``accessToken(by:for:_:)`` uses.
    package static let providerOfTokens = "mdm"

    /// Requests an access token by the OAuth settings that a configuration has for `mdm`.
    ///
    /// - Parameter manager: That of ``forTokens(_:)``.
    /// - Throws: `configurationInvalid` for a configuration without them, and for a build without `mdm`; and as
    ///   ``/RemoteMDMProvider/RemoteMDMProvider/accessToken(environment:parameters:_:)``.
    package static func accessToken(
        by configuration: LogonConfiguration, for manager: LogonManager, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (value: SecretBytes, scopes: [String]?, expiresIn: Duration?) {
        #if MDM
            let parameters = try oauthParameters(configuration)
            let token = try await RemoteMDMProvider.accessToken(
                environment: try manager.environment(of: RemoteMDMProvider.id), parameters: parameters, interaction)
            return (token.value, token.scopes, token.expiresIn)
        #else
            throw noOAuth
        #endif
    }

    /// Deletes the refresh token that is stored for these settings, if there is one.
    ///
    /// - Throws: As ``accessToken(by:for:_:)``, and `storeWriteFailed`.
    package static func forgetRefreshToken(
        by configuration: LogonConfiguration, for manager: LogonManager
    ) async throws(ProviderError) {
        #if MDM
            let parameters = try oauthParameters(configuration)
            try await RemoteMDMProvider.forgetRefreshToken(
                environment: try manager.environment(of: RemoteMDMProvider.id), parameters: parameters)
        #else
            throw noOAuth
        #endif
    }

    /// Returns a configuration without the provider `mdm` where that has OAuth settings alone: no provider can be made of them.
    package static func forTokens(_ configuration: LogonConfiguration) -> LogonConfiguration {
        var configuration = configuration
        #if MDM
            configuration.providers.removeAll {
                $0.id == RemoteMDMProvider.id && !RemoteMDMProvider.configuresEnrolment($0.parameters)
            }
        #endif
        return configuration
    }

    #if MDM
        private static func oauthParameters(
            _ configuration: LogonConfiguration
        ) throws(ProviderError) -> ProviderParameters {
            let id = RemoteMDMProvider.id
            if let configured = configuration.providers.first(where: { $0.id == id }) { return configured.parameters }
            let place = configuration.path.map { "\(DisplayText.visible($0)): " } ?? ""
            throw ProviderError(
                .configurationInvalid,
                "\(place)No provider with OAuth settings is configured; list '\(id)' in CertificateProvider, and set its "
                    + "token-url and client-id, or use --token-url and --client-id.")
        }
    #else
        private static var noOAuth: ProviderError {
            ProviderError(
                .configurationInvalid,
                "This build of certprov has no provider with OAuth settings; build it with the trait MDM.")
        }
    #endif

    /// Returns what the challenges of a configured provider need of this host; `nil` for a provider without challenges.
    ///
    /// - Throws: As ``/ACMEProvider/ACMEProvider/hostNeeds(_:_:)``.
    package static func hostNeeds(
        of configured: ConfiguredProvider, for manager: LogonManager
    ) throws(ProviderError) -> (
        port: (number: Int, parameter: String, holder: String?)?, documentRoot: String?, hook: String?
    )? {
        #if ACME
            guard configured.id == ACMEProvider.id else { return nil }
            return try ACMEProvider.hostNeeds(configured.parameters, try manager.environment(of: configured.id))
        #else
            return nil
        #endif
    }

    /// Whether a parameter of a provider has the URL of a directory of ACME (RFC 8555, section 7.1.1).
    package static func isDirectory(_ parameter: String, of provider: ProviderID) -> Bool {
        #if ACME
            return provider == ACMEProvider.id && parameter == ACMEProvider.directory
        #else
            return false
        #endif
    }

    /// Ends the PKCS#11 modules of this process.
    package static func endModules() {
        #if PKCS11
            PKCS11TokenProvider.shutDownAllModules()
        #endif
    }

    #if DEBUG
        /// The built-in parts without tokens and enrolment, which plugins have.
        package static func withoutTokensAndEnrolment(pluginsIn directory: String) -> BuiltIns {
            BuiltIns(pluginDirectories: PluginDirectories([directory]))
        }
    #endif

    /// Returns the plugins of this host, which add to these parts.
    package func plugins(
        logger: Logger,
        cache: (@Sendable () throws(ProviderError) -> any IdentityStorage)? = nil,
        observer: (@Sendable (PluginEvent) -> Void)? = nil
    ) -> PluginHost {
        PluginHost(
            pluginDirectories, builtIn: providers, builtInKeyStores: keyStores,
            reservedSchemes: reservedSchemes, logger: logger, cache: cache, observer: observer)
    }
}
