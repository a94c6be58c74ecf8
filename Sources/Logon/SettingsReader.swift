import CertificateProviding

/// Converts the settings of a file into a ``LogonConfiguration``, and checks keys and values.
struct SettingsReader {
    enum Key: String, CaseIterable {
        case host = "Host"
        case port = "Port"
        case securityConfiguration = "SecurityConfiguration"
        case userCreationPolicy = "UserCreationPolicy"
        case farmID = "FarmID"
        case urlSuffix = "URLSuffix"
        case domain = "Domain"
        case https = "HTTPS"
        case shareCredentials = "ShareCredentials"
        case trustAnchors = "TrustAnchors"
        case pluginDirectory = "PluginDirectory"
        case certificateProvider = "CertificateProvider"
    }

    /// The namespace of this framework; unknown keys in it are errors.
    private static let namespace = Key.certificateProvider.rawValue

    private let settings: Settings
    private var registry: ProviderRegistry
    /// The descriptors that have been looked up.
    private var known: [ProviderID: ProviderDescriptor] = [:]

    init(_ settings: Settings, registry: ProviderRegistry) {
        self.settings = settings
        self.registry = registry
    }

    func configuration() throws(CertificateProviderError) -> LogonConfiguration {
        var reader = self
        return try reader.read()
    }

    func pluginDirectory() throws(CertificateProviderError) -> String? {
        try text(.pluginDirectory, "must be an absolute path") { $0.hasPrefix("/") }
    }

    private mutating func read() throws(CertificateProviderError) -> LogonConfiguration {
        var configuration = LogonConfiguration()
        for setting in settings.all where setting.isKeyCertain {
            configuration.positions[setting.key] = setting.position
        }
        configuration.pluginDirectory = try pluginDirectory()
        if let directory = configuration.pluginDirectory { registry = registry.looking(in: directory) }
        configuration.host = try text(.host, "must be a host name, without blanks and slashes") {
            !$0.isEmpty && !$0.contains { $0.isWhitespace || $0 == "/" }
        }
        configuration.port = try port()
        configuration.securityConfiguration = try text(.securityConfiguration, "must not be blank") { !$0.isEmpty }
        configuration.userCreationPolicy = try policy()
        configuration.farmID = try optionalText(.farmID) ?? configuration.farmID
        configuration.urlSuffix = try optionalText(.urlSuffix) ?? configuration.urlSuffix
        configuration.domain = try optionalText(.domain) ?? configuration.domain
        configuration.usesHTTPS = try flag(.https) ?? configuration.usesHTTPS
        // Accepted without effect.
        _ = try flag(.shareCredentials)

        configuration.trustAnchors = try text(
            .trustAnchors, "must not be blank; remove the line for the system trust store"
        ) { !$0.isEmpty }
        try readRegistration(into: &configuration)

        // Read whatever the policy is, so that a mistake shows now and not when the policy changes.
        var providers = try listedProviders()
        for setting in settings.all
        where Key(rawValue: setting.key) == nil && RegistrationSettings.Key(rawValue: setting.key) == nil {
            try refuseRegistrationKey(setting)
            if let (scheme, name) = try keyStoreParameter(setting) {
                configuration.keyStores[scheme, default: ProviderParameters()][name] = .init(
                    try single(setting), origin: setting.position.description)
                continue
            }
            guard setting.key.lowercased().hasPrefix(Self.namespace.lowercased()) else {
                configuration.warnings.append(unknownKey(setting))
                continue
            }
            let (id, name) = try parameter(setting, of: providers)
            if let index = providers.firstIndex(where: { $0.id == id }) {
                providers[index].parameters[name] = .init(
                    try single(setting), origin: setting.position.description)
            } else {
                configuration.warnings.append(
                    "\(setting.position): The key '\(setting.key.forDisplay)' has no effect, because "
                        + "CertificateProvider does not list '\(id)'.")
            }
        }
        configuration.providers = configuration.userCreationPolicy == .certificate ? providers : []
        return configuration
    }
}

// MARK: - Registration

extension SettingsReader {
    private func readRegistration(into configuration: inout LogonConfiguration) throws(CertificateProviderError) {
        for key in RegistrationSettings.Key.allCases {
            guard let setting = settings[key.rawValue] else { continue }
            guard configuration.registration.take(try single(setting), for: key) else {
                throw invalid(setting, key.expectation)
            }
        }
        // A setting of phones, where applications share them.
        if let setting = settings[Key.shareCredentials.rawValue] {
            configuration.warnings.append(
                "\(setting.position): The key '\(Key.shareCredentials.rawValue)' is accepted and has no effect.")
        }
    }

    /// Refuses an unknown key in the namespaces of registration.
    private func refuseRegistrationKey(_ setting: Setting) throws(CertificateProviderError) {
        let known = RegistrationSettings.Key.allCases.map(\.rawValue)
        for namespace in ["Registration.", "Passcode.", "Vault."]
        where setting.key.lowercased().hasPrefix(namespace.lowercased()) {
            let keys = known.filter { $0.hasPrefix(namespace) }.joined(separator: ", ")
            throw invalid(setting, "is unknown; there are \(keys)")
        }
    }
}

// MARK: - Values

extension SettingsReader {
    private func invalid(_ setting: Setting, _ problem: String) -> CertificateProviderError {
        setting.position.invalid("The key '\(setting.key.forDisplay)' \(problem).")
    }

    private func single(_ setting: Setting) throws(CertificateProviderError) -> String {
        guard let value = setting.value else { throw invalid(setting, "must have a single value, such as a string") }
        return value.trimmed
    }

    /// Returns the trimmed value of a key; `nil` if it is not set.
    /// - Throws: `configurationInvalid` with `expectation`, for an invalid value.
    private func text(
        _ key: Key, _ expectation: String, isValid: (String) -> Bool
    ) throws(CertificateProviderError) -> String? {
        guard let setting = settings[key.rawValue] else { return nil }
        let value = try single(setting)
        guard isValid(value) else { throw invalid(setting, expectation) }
        return value
    }

    /// Returns the trimmed value of a key; `nil` if it is not set or blank, for the default.
    private func optionalText(_ key: Key) throws(CertificateProviderError) -> String? {
        let value = try text(key, "") { _ in true }
        return value?.isEmpty == false ? value : nil
    }

    private func port() throws(CertificateProviderError) -> UInt16? {
        // UInt16(_:) by itself would take a sign.
        let value = try text(.port, "must be a port number from 1 to 65535, in decimal digits") {
            $0.utf8.allSatisfy(\.isDigit) && UInt16($0) ?? 0 > 0
        }
        return value.flatMap { UInt16($0) }
    }

    private func flag(_ key: Key) throws(CertificateProviderError) -> Bool? {
        try text(key, "must be true or false") { Bool(propertyText: $0) != nil }.flatMap { Bool(propertyText: $0) }
    }

    private func policy() throws(CertificateProviderError) -> UserCreationPolicy {
        let value = try text(.userCreationPolicy, "must be certificate, automatic or manual") {
            $0.isEmpty || UserCreationPolicy(rawValue: $0.lowercased()) != nil
        }
        return value.flatMap { UserCreationPolicy(rawValue: $0.lowercased()) } ?? .certificate
    }
}

// MARK: - Providers

extension SettingsReader {
    private var installed: String {
        let ids = registry.providerIDs.map(\.rawValue)
        return (ids.isEmpty ? "no provider is installed" : "installed: \(ids.joined(separator: ", "))") + others
    }

    /// A clause that names further directories, or nothing.
    private var others: String { registry.whereabouts.map { "; \($0)" } ?? "" }

    /// Returns an installed provider. A plugin is looked up once.
    private mutating func installedProvider(_ id: ProviderID) throws(CertificateProviderError) -> ProviderDescriptor? {
        if let known = known[id] { return known }
        let found = try registry.provider(id, configured(id.rawValue))
        known[id] = found
        return found
    }

    private mutating func listedProviders() throws(CertificateProviderError) -> [ConfiguredProvider] {
        guard let setting = settings[Key.certificateProvider.rawValue] else { return [] }
        var providers: [ConfiguredProvider] = []
        for (offset, name) in try single(setting).commaSeparated.enumerated() {
            guard !name.isEmpty else {
                throw invalid(
                    setting, "has an empty name at position \(offset + 1); remove the comma, or name a provider")
            }
            guard let id = ProviderID(rawValue: name), try installedProvider(id) != nil else {
                // Not shown: whatever stands where a name should be may be a secret.
                throw invalid(
                    setting, "names a provider that is not installed, at position \(offset + 1); \(installed)")
            }
            guard !providers.contains(where: { $0.id == id }) else {
                throw invalid(setting, "lists '\(id)' twice")
            }
            providers.append(ConfiguredProvider(id: id))
        }
        return providers
    }

    /// Splits `CertificateProvider.<id>.<parameter>`.
    ///
    /// - Parameter listed: Those that the file lists. A plugin that is not listed is not asked for its parameters.
    private mutating func parameter(
        _ setting: Setting, of listed: [ConfiguredProvider]
    ) throws(CertificateProviderError) -> (ProviderID, name: String) {
        let parts = setting.key.split(separator: ".", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts[0] == Self.namespace else {
            let isSpelling = parts[0].lowercased() == Self.namespace.lowercased()
            throw invalid(
                setting,
                isSpelling ? "must be spelled \(Self.namespace)…" : "is unknown; did you mean \(Self.namespace)?")
        }
        guard parts.count == 3, !parts[2].isEmpty else {
            throw invalid(setting, "must have the form \(Self.namespace).<id>.<parameter>")
        }
        guard let id = ProviderID(rawValue: String(parts[1])), registry.providerIDs.contains(id) else {
            throw invalid(setting, "names a provider that is not installed; \(installed)")
        }
        let isOwn = registry.descriptors.contains { $0.id == id }
        guard isOwn || listed.contains(where: { $0.id == id }), let descriptor = try installedProvider(id) else {
            return (id, String(parts[2]))
        }
        let known = descriptor.configurableParameters.map(\.name)
        guard known.contains(String(parts[2])) else {
            throw invalid(setting, "is not a parameter of '\(id)'; it takes \(known.joined(separator: ", "))")
        }
        return (id, String(parts[2]))
    }

    /// Returns the file's parameters for a provider or a key store, before it is known which of them it has.
    private func configured(_ name: String, in namespace: String = Self.namespace) -> ProviderParameters {
        var parameters = ProviderParameters()
        let prefix = "\(namespace).\(name)."
        for setting in settings.all where setting.key.hasPrefix(prefix) {
            guard let value = setting.value else { continue }
            parameters[String(setting.key.dropFirst(prefix.count))] = .init(
                value.trimmed, origin: setting.position.description)
        }
        return parameters
    }

    func pluginParameters(_ id: ProviderID) -> ProviderParameters {
        let ofProvider = configured(id.rawValue)
        return ofProvider.names.isEmpty ? configured(id.rawValue, in: Self.keyStoreNamespace) : ofProvider
    }

    private static let keyStoreNamespace = "KeyStore"

    /// Splits `KeyStore.<scheme>.<parameter>`; returns `nil` for a key outside of that namespace.
    private func keyStoreParameter(
        _ setting: Setting
    ) throws(CertificateProviderError) -> (scheme: String, name: String)? {
        let parts = setting.key.split(separator: ".", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts[0].lowercased() == Self.keyStoreNamespace.lowercased() else { return nil }
        guard parts[0] == Self.keyStoreNamespace else {
            throw invalid(setting, "must be spelled \(Self.keyStoreNamespace)…")
        }
        guard parts.count == 3, !parts[2].isEmpty else {
            throw invalid(setting, "must have the form \(Self.keyStoreNamespace).<scheme>.<parameter>")
        }
        guard
            let store = try registry.keyStore(
                String(parts[1]), configured(String(parts[1]), in: Self.keyStoreNamespace))
        else {
            let schemes = registry.keyStores.map(\.scheme).joined(separator: ", ")
            throw invalid(setting, "names a key store that is not installed; installed: \(schemes)\(others)")
        }
        let known = store.parameters.map(\.name)
        guard known.contains(String(parts[2])) else {
            let hint = known.isEmpty ? "it takes none" : "it takes \(known.joined(separator: ", "))"
            throw invalid(setting, "is not a parameter of the key store '\(store.scheme)'; \(hint)")
        }
        return (store.scheme, String(parts[2]))
    }

    private func unknownKey(_ setting: Setting) -> String {
        let spelled = Key.allCases.first { $0.rawValue.lowercased() == setting.key.lowercased() }
        let hint = spelled.map { "; keys are case-sensitive, write \($0.rawValue)" } ?? ""
        return "\(setting.position): \(setting.subject) is unknown and has no effect\(hint)."
    }
}
