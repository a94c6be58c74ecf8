public import CertificateProviding

/// How the application's user comes to be known to the server.
public enum UserCreationPolicy: String, Sendable, CaseIterable {
    /// By a client certificate, which a provider is asked for.
    case certificate
    /// The server creates the user at the first password logon. No provider is asked.
    case automatic
    /// The user exists already, or brings an activation code. No provider is asked.
    case manual
}

/// A provider as a configuration names it: which one, and what it is told.
public struct ConfiguredProvider: Sendable {
    public var id: ProviderID
    public var parameters: ProviderParameters

    public init(id: ProviderID, parameters: ProviderParameters = ProviderParameters()) {
        self.id = id
        self.parameters = parameters
    }
}

extension ConfiguredProvider: Equatable {
    /// Whether both say the same, wherever it was written.
    public static func == (left: Self, right: Self) -> Bool {
        left.id == right.id && left.parameters.names == right.parameters.names
            && left.parameters.names.allSatisfy { left.parameters[$0]?.text == right.parameters[$0]?.text }
    }
}

/// The settings of the Logon manager: what a property file says, with the defaults filled in.
public struct LogonConfiguration: Sendable {
    /// The file it was read from; `nil` for one made in memory.
    public var path: String?

    /// Needed for registration only, as ``port`` and ``securityConfiguration``.
    public var host: String?
    public var port: UInt16?
    public var securityConfiguration: String?
    public var userCreationPolicy: UserCreationPolicy
    public var farmID: String
    public var urlSuffix: String
    public var domain: String
    public var usesHTTPS: Bool
    public var sharesCredentials: Bool

    /// The providers to ask, most preferred first. Empty when the file lists none, and with a policy other than
    /// `certificate`; ``LogonManager`` then answers every request for an identity with `noCertificateProvider`.
    public var providers: [ConfiguredProvider]

    /// Sentences about what was read but has no effect, such as an unknown key, each beginning with `FILE:LINE:`.
    public var warnings: [String]

    /// Makes a configuration without a file, such as for a provider given on a command line.
    public init(providers: [ConfiguredProvider] = []) {
        self.userCreationPolicy = .certificate
        self.farmID = "0"
        self.urlSuffix = ""
        self.domain = ""
        self.usesHTTPS = true
        self.sharesCredentials = true
        self.providers = providers
        self.warnings = []
    }

    /// Reads a property file or property list. Blocks on the file system, for at most 1 MiB; no network.
    ///
    /// - Parameter registry: The installed providers. A file that names any other, or a parameter that a provider does
    ///   not document, is refused whatever the policy is.
    /// - Throws: `configurationMissing` when there is no such file; `configurationInvalid`, with the file, and the line
    ///   and key where there is one, for everything else. Messages never show a value.
    public static func load(
        path: String, registry: ProviderRegistry
    ) throws(CertificateProviderError) -> LogonConfiguration {
        var configuration = try SettingsReader(ConfigurationFile(path: path).settings(), registry: registry)
            .configuration()
        configuration.path = path
        return configuration
    }
}

extension LogonConfiguration: Equatable {
    /// Whether both say the same: where it was written, and what else was written there, does not count.
    public static func == (left: Self, right: Self) -> Bool {
        left.host == right.host && left.port == right.port
            && left.securityConfiguration == right.securityConfiguration
            && left.userCreationPolicy == right.userCreationPolicy
            && left.farmID == right.farmID && left.urlSuffix == right.urlSuffix && left.domain == right.domain
            && left.usesHTTPS == right.usesHTTPS && left.sharesCredentials == right.sharesCredentials
            && left.providers == right.providers
    }
}
