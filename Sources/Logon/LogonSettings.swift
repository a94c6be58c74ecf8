package import CertificateProviding
import IdentityStore
import ProviderTransport

/// A key of the property file, and its place in the configuration.
struct LogonSetting: Sendable {
    let descriptor: ParameterDescriptor
    /// Whether the vault is made with it, or its object, which keeps it unlocked.
    var makesVault = false
    /// Sets the place to the value, or the default.
    let take: @Sendable (Parameters, inout LogonConfiguration) -> Void
    let isSame: @Sendable (LogonConfiguration, LogonConfiguration) -> Bool

    init<Value: Sendable & Equatable>(
        _ place: any WritableKeyPath<LogonConfiguration, Value> & Sendable, _ parameter: Parameter<Value>
    ) {
        descriptor = parameter.descriptor
        take = { values, configuration in configuration[keyPath: place] = values[parameter] }
        isSame = { $0[keyPath: place] == $1[keyPath: place] }
    }

    /// A key that is read elsewhere, or has no effect.
    private init(_ descriptor: ParameterDescriptor) {
        self.descriptor = descriptor
        take = { _, _ in }
        isSame = { _, _ in true }
    }

    private static func makingVault<Value: Sendable & Equatable>(
        _ place: any WritableKeyPath<LogonConfiguration, Value> & Sendable, _ parameter: Parameter<Value>
    ) -> Self {
        var setting = Self(place, parameter)
        setting.makesVault = true
        return setting
    }
}

extension LogonSetting {
    private static let defaults = LogonConfiguration()

    static let vaultKey = "Vault.key"
    static let shareCredentials = "ShareCredentials"

    static let certificateProvider = Parameter<String?>.string(
        "CertificateProvider",
        summary:
            "Providers, separated by commas, in order of preference. Required with UserCreationPolicy = certificate.")

    static let pluginDirectory = Parameter<String?>(
        "PluginDirectory", .path,
        summary: "Absolute path of a directory that is searched for plugins before all others.",
        mustBe: "must be an absolute path"
    ) { $0.hasPrefix("/") }

    static let general: [Self] = [
        Self(
            \.userCreationPolicy,
            Parameter(
                "UserCreationPolicy", .string, absent: defaults.userCreationPolicy,
                defaultValue: defaults.userCreationPolicy.rawValue,
                summary:
                    "certificate: a certificate of a provider identifies the user. automatic: the server creates the user at the "
                    + "first logon with a password. manual: the user exists already, or has an activation code. With the last "
                    + "two, no provider is asked."
            ) { text, _ throws(ParameterProblem) in
                if text.isEmpty { return defaults.userCreationPolicy }
                guard let policy = UserCreationPolicy(rawValue: text.lowercased()) else {
                    throw .expected("must be certificate, automatic or manual")
                }
                return policy
            }),
        Self(
            \.trustAnchors,
            Parameter(
                "TrustAnchors", .certificateFile, defaultValue: "the system trust store",
                summary:
                    "PEM file with the CAs of the platform server, and of the peers of a service with CertprovKit; a directory of such "
                    + "files; or provider for the CAs that come with the identity.",
                mustBe: "must not be blank; remove the line for the system trust store"
            ) { !$0.isEmpty }),
        Self(\.pluginDirectory, pluginDirectory),
        Self(certificateProvider.descriptor),
    ]

    static let server: [Self] = [
        Self(
            \.host,
            Parameter(
                "Host", .string, summary: "Host name of the platform server. Required for a registration.",
                mustBe: "must be a host name, without blanks and slashes"
            ) { !$0.isEmpty && !$0.contains { $0.isWhitespace || $0 == "/" } }),
        Self(
            \.port,
            Parameter("Port", .number, summary: "Port of the platform server. Required for a registration.") {
                text, _ throws(ParameterProblem) in
                guard let port = text.decimal(in: 1...65535) else {
                    throw .expected("must be a port number from 1 to 65535, in decimal digits")
                }
                return UInt16(port)
            }),
        Self(
            \.securityConfiguration,
            Parameter(
                "SecurityConfiguration", .string,
                summary:
                    "Name of the security configuration on the server: the header field X-SUP-SC of each request. Required for a "
                    + "registration.", mustBe: "must not be blank"
            ) { !$0.isEmpty }),
        Self(
            \.farmID,
            .blankable("FarmID", defaults.farmID, defaults.farmID, "Farm behind a relay server; 0 for none.")),
        Self(
            \.urlSuffix,
            .blankable("URLSuffix", defaults.urlSuffix, "none", "Path of a reverse proxy before the server.")),
        Self(
            \.domain,
            .blankable(
                "Domain", defaults.domain, "none",
                "Domain of the user on the server: the header field X-SUP-DOMAIN of each request.")),
        Self(
            \.usesHTTPS,
            .boolean(
                "HTTPS", defaults.usesHTTPS,
                "false only for a server on this host, and not with UserCreationPolicy = certificate.")),
        Self(Parameter.boolean(shareCredentials, nil, "Accepted, without effect.").descriptor),
    ]

    static let registration: [Self] = [
        .makingVault(
            \.registration.applicationID,
            Parameter(
                "ApplicationId", .string,
                summary:
                    "Letters, digits, '.', '-' and '_'. With it, all commands use the application's part of the identity store. "
                    + "Required for a registration.",
                mustBe: "must have 1 to 128 letters, digits, '.', '-' and '_', and not begin with '.'",
                isValid: { DataVault.isValid($0) })),
        Self(
            \.registration.username,
            Parameter(
                "Registration.username", .string, defaultValue: asked,
                summary: "User name, with UserCreationPolicy = automatic or manual.",
                mustBe: "must not be blank, and have no colon or control character (RFC 7617)"
            ) { !$0.isEmpty && $0.isUserName }),
        Self(
            \.registration.passwordSource,
            .secretSource(
                "Registration.password-source", defaultValue: asked,
                summary: "Password, with UserCreationPolicy = automatic or manual.")),
        Self(
            \.registration.activationCodeSource,
            .secretSource(
                "Registration.activation-code-source", defaultValue: "none",
                summary: "Activation code of a user who does not exist yet.")),
        Self(
            \.registration.pins,
            .pins(
                "Registration.pin", defaultValue: "none",
                summary: "Pins; the server's chain must contain one of them.")),
        Self(\.registration.isPinOnly, .pinOnly("Registration.pin-mode")),
    ]

    private static let asked = "the user is asked"

    static let vault: [Self] = {
        let policy = defaults.registration.passcodePolicy
        return [
            .makingVault(
                \.registration.vaultKey,
                Parameter(
                    vaultKey, .keyStore, defaultValue: "none",
                    summary:
                        "Key store that makes a key which the vault needs besides the passcode, such as pkcs11:token=hsm.",
                    mustBe: "must be the URI of a key store, such as pkcs11:token=NAME"
                ) { KeyStoreLocation(uri: $0, pinSource: nil) != nil }),
            Self(
                \.registration.vaultKeyPINSource,
                .secretSource("Vault.key-pin-source", defaultValue: asked, summary: "PIN of that key store.")),
            Self(
                \.registration.passcodeSource,
                .secretSource("Passcode.source", defaultValue: asked, summary: "Passcode, for a service.")),
            .makingVault(
                \.registration.passcodePolicy.minimumLength,
                .number("Passcode.min-length", policy.minimumLength, in: 0...1024, "Minimum number of characters.")),
            .makingVault(
                \.registration.passcodePolicy.needsDigit,
                .boolean("Passcode.digits", policy.needsDigit, "Whether a digit is needed.")),
            .makingVault(
                \.registration.passcodePolicy.needsUpperCase,
                .boolean("Passcode.upper", policy.needsUpperCase, "Whether an upper-case letter is needed.")),
            .makingVault(
                \.registration.passcodePolicy.needsLowerCase,
                .boolean("Passcode.lower", policy.needsLowerCase, "Whether a lower-case letter is needed.")),
            .makingVault(
                \.registration.passcodePolicy.needsSpecial,
                .boolean(
                    "Passcode.special", policy.needsSpecial,
                    "Whether a character that is neither letter nor digit is needed.")),
            .makingVault(
                \.registration.passcodePolicy.minimumUniqueCharacters,
                .number(
                    "Passcode.unique", policy.minimumUniqueCharacters, in: 0...1024,
                    "Minimum number of different characters.")),
            .makingVault(
                \.registration.passcodePolicy.validDays,
                .number(
                    "Passcode.expires-days", kind: .days, policy.validDays, in: 0...36500, unit: " of days",
                    "Age after which certprov status warns; 0 for never.")),
            .makingVault(
                \.registration.passcodePolicy.maximumAttempts,
                .number(
                    "Passcode.max-attempts", policy.maximumAttempts, in: 0...1_000_000,
                    "Wrong passcodes in a row, the last of which destroys the vault; 0 for any number.")),
            Self(
                \.registration.lockTimeout,
                Parameter(
                    "Passcode.lock-timeout", .seconds, absent: defaults.registration.lockTimeout,
                    defaultValue: "\(defaults.registration.lockTimeout?.components.seconds ?? 0)",
                    summary: "Time without a use after which a process locks the vault for itself; 0 for never."
                ) { text, _ throws(ParameterProblem) in
                    guard let seconds = text.decimal(in: 0...86400) else {
                        throw .expected("must be a number of seconds from 0 to 86400")
                    }
                    return seconds == 0 ? nil : .seconds(seconds)
                }),
            .makingVault(
                \.registration.passcodePolicy.allowsDefault,
                .boolean(
                    "Passcode.default-allowed", policy.allowsDefault, "Whether a vault without a passcode is allowed.")
            ),
        ]
    }()

    static let all = general + server + registration + vault
}

extension LogonConfiguration {
    /// The sections that the Logon manager reads, in the order of the documentation.
    package static let sections = [
        SettingsSection(title: "General", LogonSetting.general.map(\.descriptor)),
        SettingsSection(title: "Server", LogonSetting.server.map(\.descriptor)),
        SettingsSection(
            title: "Registration", namespaces: ["Registration."], LogonSetting.registration.map(\.descriptor)),
        SettingsSection(
            title: "Vault and passcode", namespaces: ["Passcode.", "Vault."], LogonSetting.vault.map(\.descriptor)),
    ]
}

// MARK: - Kinds of values

extension ParameterDescriptor.Kind {
    fileprivate static let number = Self(rawValue: "number")
    fileprivate static let seconds = Self(rawValue: "seconds")
    fileprivate static let days = Self(rawValue: "days")
}

extension Parameter where Value == String? {
    /// A text with a condition: the end of a sentence about the key.
    fileprivate init(
        _ name: String, _ kind: ParameterDescriptor.Kind, defaultValue: String? = nil, summary: String,
        mustBe condition: String, isValid: @escaping @Sendable (String) -> Bool
    ) {
        self.init(name, kind, defaultValue: defaultValue, summary: summary) { text, _ throws(ParameterProblem) in
            guard isValid(text) else { throw .expected(condition) }
            return text
        }
    }
}

extension Parameter where Value == String {
    /// A text that may be blank, for the default.
    fileprivate static func blankable(
        _ name: String, _ absent: String, _ defaultValue: String, _ summary: String
    ) -> Self {
        Self(name, .string, absent: absent, defaultValue: defaultValue, summary: summary) { text, _ in
            text.isEmpty ? absent : text
        }
    }
}

extension Parameter where Value == Bool {
    fileprivate static func boolean(_ name: String, _ absent: Bool?, _ summary: String) -> Self {
        Self(name, .boolean, absent: absent ?? false, defaultValue: absent.map(String.init), summary: summary) {
            text, _ throws(ParameterProblem) in
            guard let value = Bool(propertyText: text) else { throw .expected("must be true or false") }
            return value
        }
    }
}

extension Parameter where Value == Int {
    fileprivate static func number(
        _ name: String, kind: ParameterDescriptor.Kind = .number, _ absent: Int, in range: ClosedRange<Int>,
        unit: String = "", _ summary: String
    ) -> Self {
        Self(name, kind, absent: absent, defaultValue: String(absent), summary: summary) {
            text, _ throws(ParameterProblem) in
            guard let number = text.decimal(in: range) else {
                throw .expected("must be a number\(unit) from \(range.lowerBound) to \(range.upperBound)")
            }
            return number
        }
    }
}

extension String {
    /// The number; `nil` outside of the range, and for anything but digits: `Int(_:)` by itself would take a sign.
    fileprivate func decimal(in range: ClosedRange<Int>) -> Int? {
        guard utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(self).flatMap { range.contains($0) ? $0 : nil }
    }
}
