public import CertificateProviding

/// How the server learns about the application's user.
package enum UserCreationPolicy: String, Sendable, CaseIterable {
    /// By a client certificate, which a certificate provider supplies.
    case certificate
    /// The server creates the user at the first password logon. Certificate providers are not used.
    case automatic
    /// The user exists already, or has an activation code. Certificate providers are not used.
    case manual
}

/// A provider in a configuration, with its parameters.
public struct ConfiguredProvider: Sendable {
    /// The name of the provider.
    public var id: ProviderID
    /// The parameters of the provider.
    public var parameters: ProviderParameters

    /// Creates a configured provider.
    public init(id: ProviderID, parameters: ProviderParameters = ProviderParameters()) {
        self.id = id
        self.parameters = parameters
    }
}

extension ConfiguredProvider: Equatable {
    /// Whether id and parameters are equal. Their positions in the file are ignored.
    public static func == (left: Self, right: Self) -> Bool {
        left.id == right.id && left.parameters.texts == right.parameters.texts
    }
}

/// The settings of the Logon manager: the values of a property file, with defaults.
public struct LogonConfiguration: Sendable {
    /// The file that it was read from; `nil` for a configuration made in memory.
    package var path: String?

    /// The host of the server; used for registration only, like ``port``.
    public var host: String?
    /// The port of the server.
    public var port: UInt16?
    /// The name of the security configuration on the server.
    package var securityConfiguration: String?
    /// How the server learns about the user.
    package var userCreationPolicy: UserCreationPolicy
    /// The key `FarmID`.
    package var farmID: String
    /// The key `URLSuffix`.
    package var urlSuffix: String
    /// The key `Domain`.
    package var domain: String
    /// Whether the server is reached by HTTPS.
    package var usesHTTPS: Bool

    /// The providers to ask, most preferred first. Empty if the file lists none, and with a policy other than
    /// `certificate`; then every request to the ``LogonManager`` throws `noCertificateProvider`.
    public var providers: [ConfiguredProvider]

    /// The PEM file with the trust anchors of the server; `nil` for the system trust store.
    public var trustAnchors: String?

    /// A directory in which plugins are searched before the usual ones: `PluginDirectory`; `nil` for the usual ones only.
    package var pluginDirectory: String?

    /// The settings of a registration.
    public var registration: RegistrationSettings

    /// The parameters of key stores, by the scheme of their URIs: `KeyStore.<scheme>.<name>`.
    public var keyStores: [String: ProviderParameters]

    /// The settings of the sections that the registry declares: `configuration.settings[parameter]`.
    public internal(set) var settings: Parameters

    /// The positions of the keys in the file.
    var positions: [String: SourcePosition] = [:]

    /// A key and its value, in which what the host says stands for variables.
    package typealias HostValue = (key: String, text: String)
    /// The values that had variables, in the order of their keys in the file.
    package internal(set) var hostValues: [HostValue] = []

    /// Warnings about keys without effect, such as unknown ones. Each begins with `FILE:LINE:`.
    public var warnings: [String]

    /// Creates a configuration without a file, such as for a provider on the command line.
    public init(providers: [ConfiguredProvider] = [], keyStores: [String: ProviderParameters] = [:]) {
        self.userCreationPolicy = .certificate
        self.farmID = "0"
        self.urlSuffix = ""
        self.domain = ""
        self.usesHTTPS = true
        self.providers = providers
        self.registration = RegistrationSettings()
        self.keyStores = keyStores
        self.settings = Parameters()
        self.warnings = []
    }

    /// Reads a property file or property list. Blocks on the file system, for at most 1 MiB; does not use the network. A
    /// plugin that the file names may be started to learn of its parameters.
    ///
    /// - Parameter registry: The installed providers. A file that names another provider, or a parameter that a
    ///   provider does not document, is refused with any policy.
    /// - Throws: `configurationMissing` if the file does not exist; `configurationInvalid` for all other errors, with
    ///   the file, and the line and key if there is one. Messages never show a value. Errors of a plugin that cannot be
    ///   started.
    public static func load(
        path: String, registry: ProviderRegistry
    ) throws(ProviderError) -> LogonConfiguration {
        try load(path: path, registry: registry, host: HostFacts())
    }

    /// - Parameter host: Has the values of variables such as `%{host}`.
    package static func load(
        path: String, registry: ProviderRegistry, host: HostFacts
    ) throws(ProviderError) -> LogonConfiguration {
        let settings = try ConfigurationFile(path: path).settings()
        var configuration = try SettingsReader(settings, registry: registry, host: host).configuration()
        configuration.path = path
        return configuration
    }

    /// Returns the settings of a file that has those of one section, and no provider. Blocks as ``load(path:registry:)`` does.
    ///
    /// - Throws: As ``load(path:registry:)``, also for any other key.
    package static func settings(path: String, of section: SettingsSection) throws(ProviderError) -> Parameters {
        try SettingsReader(ConfigurationFile(path: path).settings(), registry: ProviderRegistry()).values(of: section)
    }

    /// Whether a file lists providers, whatever else it says. Blocks as ``load(path:registry:)`` does.
    ///
    /// - Throws: Errors of the file.
    package static func listsProviders(path: String) throws(ProviderError) -> Bool {
        try ConfigurationFile(path: path).settings()[LogonSetting.certificateProvider.name] != nil
    }

    /// Returns the setting `PluginDirectory` of a file, whatever else the file says. Blocks as ``load(path:registry:)`` does, and
    /// starts no plugin.
    ///
    /// - Throws: Errors of the file, and `configurationInvalid` for this setting.
    package static func pluginDirectory(path: String) throws(ProviderError) -> String? {
        try SettingsReader(ConfigurationFile(path: path).settings(), registry: ProviderRegistry()).pluginDirectory()
    }

    /// Returns a function that gives what a file says for a plugin, whatever else it says: as a provider, or as the key store
    /// with the scheme that is its id. Blocks as ``pluginDirectory(path:)`` does.
    ///
    /// - Throws: Errors of the file.
    package static func pluginParameters(
        path: String
    ) throws(ProviderError) -> @Sendable (ProviderID) -> ProviderParameters {
        let reader = try SettingsReader(ConfigurationFile(path: path).settings(), registry: ProviderRegistry())
        return { reader.pluginParameters($0) }
    }
}

extension LogonConfiguration: Equatable {
    /// Whether all settings are equal. File, positions and warnings are ignored.
    public static func == (left: Self, right: Self) -> Bool {
        LogonSetting.all.allSatisfy { $0.isSame(left, right) } && left.providers == right.providers
            && left.keyStores.mapValues(\.texts) == right.keyStores.mapValues(\.texts)
            && left.settings.texts.texts == right.settings.texts.texts
    }
}

extension LogonConfiguration {
    /// Whether providers with the same parameters are the same in both: they have the same key stores and plugins.
    func makesTheSame(as other: Self) -> Bool {
        pluginDirectory == other.pluginDirectory && keyStores.mapValues(\.texts) == other.keyStores.mapValues(\.texts)
    }

    /// Whether the platform server is the same in both, and authenticated in the same way.
    func hasSameServer(as other: Self) -> Bool {
        LogonSetting.server.allSatisfy { $0.isSame(self, other) } && trustAnchors == other.trustAnchors
            && registration == other.registration
    }

    /// Returns an error about a key: with its line, or only the file where the key is missing.
    func invalid(
        _ key: String, _ text: String, code: ProviderError.Code = .configurationInvalid
    ) -> ProviderError {
        let place = positions[key]?.description ?? path?.withVisibleControls
        return ProviderError(code, (place.map { "\($0): " } ?? "") + text)
    }
}
