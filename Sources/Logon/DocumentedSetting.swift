package import CertificateProviding
import IdentityStore

/// A key of the property file that is not a parameter of a provider or key store, for the documentation.
package struct DocumentedSetting: Sendable {
    /// The key, such as `Passcode.min-length`.
    package let key: String
    /// The form of the value.
    package let kind: ParameterDescriptor.Kind
    /// The value if the key is not set, in words; `nil` if there is none.
    package let defaultValue: String?
    /// One or two sentences.
    package let summary: String

    /// The keys of a title, which is that of a section of the documentation.
    package struct Group: Sendable {
        package let title: String
        package let settings: [DocumentedSetting]
    }

    /// All keys.
    package static var groups: [Group] {
        let settings = RegistrationSettings.Key.allCases.map(\.documentation)
        return [
            Group(
                title: "General", settings: SettingsReader.Key.allCases.filter { !$0.isOfServer }.map(\.documentation)),
            Group(title: "Server", settings: SettingsReader.Key.allCases.filter(\.isOfServer).map(\.documentation)),
            Group(title: "Registration", settings: settings.filter { !$0.isOfVault }),
            Group(title: "Vault and passcode", settings: settings.filter(\.isOfVault)),
        ]
    }

    fileprivate init(
        key: String, _ kind: ParameterDescriptor.Kind, default defaultValue: String? = nil, _ summary: String
    ) {
        self.key = key
        self.kind = kind
        self.defaultValue = defaultValue
        self.summary = summary
    }

    private var isOfVault: Bool { key.hasPrefix("Vault.") || key.hasPrefix("Passcode.") }
}

extension ParameterDescriptor.Kind {
    fileprivate static let number = Self(rawValue: "number")
    fileprivate static let seconds = Self(rawValue: "seconds")
    fileprivate static let days = Self(rawValue: "days")
}

extension SettingsReader.Key {
    fileprivate var isOfServer: Bool {
        switch self {
        case .host, .port, .securityConfiguration, .farmID, .urlSuffix, .domain, .https, .shareCredentials: true
        case .userCreationPolicy, .trustAnchors, .pluginDirectory, .certificateProvider: false
        }
    }

    fileprivate var documentation: DocumentedSetting {
        let defaults = LogonConfiguration()
        func setting(
            _ kind: ParameterDescriptor.Kind, default value: String? = nil, _ summary: String
        ) -> DocumentedSetting { DocumentedSetting(key: rawValue, kind, default: value, summary) }
        return switch self {
        case .host: setting(.string, "Host name of the platform server. Required for a registration.")
        case .port: setting(.number, "Port of the platform server. Required for a registration.")
        case .securityConfiguration:
            setting(
                .string,
                "Name of the security configuration on the server: the header field X-SUP-SC of each request. Required for a "
                    + "registration.")
        case .farmID: setting(.string, default: defaults.farmID, "Farm behind a relay server; 0 for none.")
        case .urlSuffix: setting(.string, default: "none", "Path of a reverse proxy before the server.")
        case .https:
            setting(
                .boolean, default: String(defaults.usesHTTPS),
                "false only for a server on this host, and not with UserCreationPolicy = certificate.")
        case .domain:
            setting(
                .string, default: "none",
                "Domain of the user on the server: the header field X-SUP-DOMAIN of each request.")
        case .shareCredentials: setting(.boolean, "Accepted, without effect.")
        case .userCreationPolicy:
            setting(
                .string, default: defaults.userCreationPolicy.rawValue,
                "certificate: a certificate of a provider identifies the user. automatic: the server creates the user at the "
                    + "first logon with a password. manual: the user exists already, or has an activation code. With the last "
                    + "two, no provider is asked.")
        case .trustAnchors:
            setting(
                .certificateFile, default: "the system trust store",
                "PEM file with the CAs of the platform server, and of the peers of a service with CertprovKit.")
        case .pluginDirectory:
            setting(.path, "Absolute path of a directory that is searched for plugins before all others.")
        case .certificateProvider:
            setting(
                .string,
                "Providers, separated by commas, in order of preference. Required with UserCreationPolicy = certificate."
            )
        }
    }
}

extension RegistrationSettings.Key {
    fileprivate var documentation: DocumentedSetting {
        let defaults = RegistrationSettings()
        let policy = defaults.passcodePolicy
        func setting(
            _ kind: ParameterDescriptor.Kind, default value: String? = nil, _ summary: String
        ) -> DocumentedSetting { DocumentedSetting(key: rawValue, kind, default: value, summary) }
        let asked = "the user is asked"
        return switch self {
        case .applicationID:
            setting(
                .string,
                "Letters, digits, '.', '-' and '_'. With it, all commands use the application's part of the identity store. "
                    + "Required for a registration.")
        case .username: setting(.string, default: asked, "User name, with UserCreationPolicy = automatic or manual.")
        case .passwordSource:
            setting(.secretSource, default: asked, "Password, with UserCreationPolicy = automatic or manual.")
        case .activationCodeSource:
            setting(.secretSource, default: "none", "Activation code of a user who does not exist yet.")
        case .pin: setting(.pins, default: "none", "Pins; the server's chain must contain one of them.")
        case .pinMode:
            setting(
                .string, default: defaults.isPinOnly ? "pin-only" : "pin-and-pki",
                "pin-and-pki, or pin-only for a server with a self-signed certificate.")
        case .vaultKey:
            setting(
                .keyStore, default: "none",
                "Key store that makes a key which the vault needs besides the passcode, such as pkcs11:token=hsm.")
        case .vaultKeyPINSource: setting(.secretSource, default: asked, "PIN of that key store.")
        case .passcodeSource: setting(.secretSource, default: asked, "Passcode, for a service.")
        case .minimumLength: setting(.number, default: "\(policy.minimumLength)", "Minimum number of characters.")
        case .digits: setting(.boolean, default: "\(policy.needsDigit)", "Whether a digit is needed.")
        case .upper: setting(.boolean, default: "\(policy.needsUpperCase)", "Whether an upper-case letter is needed.")
        case .lower: setting(.boolean, default: "\(policy.needsLowerCase)", "Whether a lower-case letter is needed.")
        case .special:
            setting(
                .boolean, default: "\(policy.needsSpecial)",
                "Whether a character that is neither letter nor digit is needed.")
        case .unique:
            setting(.number, default: "\(policy.minimumUniqueCharacters)", "Minimum number of different characters.")
        case .validDays:
            setting(.days, default: "\(policy.validDays)", "Age after which certprov status warns; 0 for never.")
        case .maximumAttempts:
            setting(
                .number, default: "\(policy.maximumAttempts)",
                "Wrong passcodes in a row, the last of which destroys the vault; 0 for any number.")
        case .lockTimeout:
            setting(
                .seconds, default: "\(defaults.lockTimeout?.components.seconds ?? 0)",
                "Time without a use after which a process locks the vault for itself; 0 for never.")
        case .defaultAllowed:
            setting(.boolean, default: "\(policy.allowsDefault)", "Whether a vault without a passcode is allowed.")
        }
    }
}
