import CertificateProviding

/// Converts the settings of a file into a ``LogonConfiguration``, and checks keys and values.
struct SettingsReader {
    /// The namespace of this framework; unknown keys in it are errors.
    private static let namespace = LogonSetting.certificateProvider.name

    private let settings: Settings
    private var registry: ProviderRegistry
    /// The descriptors that have been looked up.
    private var known: [ProviderID: ProviderDescriptor] = [:]
    private let variables: HostVariables
    /// The values that had variables.
    private var hostValues: [LogonConfiguration.HostValue] = []

    init(_ settings: Settings, registry: ProviderRegistry, host: HostFacts = HostFacts()) {
        self.settings = settings
        self.registry = registry
        variables = HostVariables(host: host)
    }

    func configuration() throws(ProviderError) -> LogonConfiguration {
        var reader = self
        return try reader.read()
    }

    func pluginDirectory() throws(ProviderError) -> String? {
        var reader = self
        return try reader.values([LogonSetting.pluginDirectory.descriptor])[LogonSetting.pluginDirectory]
    }

    /// - Throws: `configurationInvalid` for a key of another section, too.
    func values(of section: SettingsSection) throws(ProviderError) -> Parameters {
        let declared = members(of: [section])
        for setting in settings.all where !isDeclared(setting, declared) {
            let keys = section.settings.map(\.name).joined(separator: ", ")
            throw invalid(setting, "is unknown here; there are \(keys)")
        }
        var reader = self
        return try reader.values(declared)
    }

    private mutating func read() throws(ProviderError) -> LogonConfiguration {
        var configuration = LogonConfiguration()
        for setting in settings.all where setting.isKeyCertain {
            configuration.positions[setting.key] = setting.position
        }
        let own = try values(LogonSetting.all.map(\.descriptor))
        for setting in LogonSetting.all { setting.take(own, &configuration) }
        configuration.settings = try values(members(of: registry.sections))
        if let directory = configuration.pluginDirectory { registry = registry.looking(in: directory) }
        // A setting of phones, where applications share them.
        if let setting = settings[LogonSetting.shareCredentials] {
            configuration.warnings.append(
                "\(setting.position): The key '\(setting.key)' is accepted and has no effect.")
        }

        // Read whatever the policy is, so that a mistake shows now and not when the policy changes.
        var providers = try listedProviders()
        let similar = SimilarKeys(
            names: sections.flatMap(\.settings).map(\.name),
            namespaces: sections.flatMap(\.namespaces) + [Self.namespace, Self.keyStoreNamespace])
        for setting in settings.all where try !isOfSection(setting) {
            if let (scheme, parameter) = try keyStoreParameter(setting) {
                configuration.keyStores[scheme, default: ProviderParameters()][parameter.name] = try value(
                    setting, of: parameter)
                continue
            }
            guard setting.key.lowercased().hasPrefix(Self.namespace.lowercased()) else {
                if let known = similar.lookalike(of: setting.key) {
                    throw setting.position.invalid(
                        "\(setting.subject) is unknown, and looks like '\(known)'; correct it, or give a key of another program "
                            + "another name.")
                }
                configuration.warnings.append("\(setting.position): \(setting.subject) is unknown and has no effect.")
                continue
            }
            let (id, parameter) = try parameter(setting, of: providers)
            if let parameter, let index = providers.firstIndex(where: { $0.id == id }) {
                providers[index].parameters[parameter.name] = try value(setting, of: parameter)
            } else {
                configuration.warnings.append(
                    "\(setting.position): The key '\(setting.key.forDisplay)' has no effect, because "
                        + "CertificateProvider does not list '\(id)'.")
            }
        }
        configuration.providers = configuration.userCreationPolicy == .certificate ? providers : []
        configuration.hostValues = hostValues
        return configuration
    }
}

// MARK: - Sections

extension SettingsReader {
    private var sections: [SettingsSection] { LogonConfiguration.sections + registry.sections }

    /// The settings that there are, with those of each member of a group.
    private func members(of sections: [SettingsSection]) -> [ParameterDescriptor] {
        let declared = sections.flatMap(\.settings)
        return declared.flatMap { one in
            guard one.isOfGroup else { return [one] }
            let group = declared.filter { $0.isOfSameGroup(as: one) }
            let numbers = settings.all.flatMap { setting in group.compactMap { $0.number(in: setting.key) } }
            return Set(numbers).sorted().map(one.of)
        }
    }

    /// Returns the values of sections' settings.
    private mutating func values(_ declared: [ParameterDescriptor]) throws(ProviderError) -> Parameters {
        var texts = ProviderParameters()
        for descriptor in declared {
            if let setting = settings[descriptor.name] {
                texts[descriptor.name] = try value(setting, of: descriptor)
            }
            let members = descriptor.kind == .list ? numbered(descriptor.name) : []
            guard let first = members.first else { continue }
            guard texts[descriptor.name] == nil else {
                throw invalid(first, "and '\(descriptor.name)' exclude each other")
            }
            var list: [String] = []
            for member in members { list.append(try value(member, of: descriptor).text) }
            texts[descriptor.name] = .init(list.joined(separator: ", "), origin: first.position.description)
        }
        return try Parameters(texts, of: declared, .propertyFile, keyStores: .none)
    }

    /// The settings `KEY.1`, `KEY.2` and so on of a list, in the order of their numbers.
    private func numbered(_ name: String) -> [Setting] {
        let members = settings.all.compactMap { setting -> (number: Int, setting: Setting)? in
            Self.number(of: setting.key, in: name).map { ($0, setting) }
        }
        return members.sorted { $0.number < $1.number }.map(\.setting)
    }

    private static func number(of key: String, in list: String) -> Int? {
        guard key.hasPrefix(list + ".") else { return nil }
        let number = key.dropFirst(list.count + 1)
        guard number.utf8.allSatisfy(\.isDigit), number.first != "0" else { return nil }
        return Int(number)
    }

    private func isDeclared(_ setting: Setting, _ declared: [ParameterDescriptor]) -> Bool {
        declared.contains { one in
            one.name == setting.key || one.kind == .list && Self.number(of: setting.key, in: one.name) != nil
        }
    }

    /// Whether a setting is of a section, or in a namespace whose keys another program declares.
    ///
    /// - Throws: `configurationInvalid` for an unknown key with the beginning of a section's.
    private func isOfSection(_ setting: Setting) throws(ProviderError) -> Bool {
        let declared = sections.flatMap(\.settings)
        if isDeclared(setting, members(of: sections)) { return true }
        let spelled = setting.key.lowercased()
        for namespace in sections.flatMap(\.namespaces) where spelled.hasPrefix(namespace.lowercased()) {
            let keys = declared.map(\.name).filter { $0.hasPrefix(namespace) }
            guard keys.isEmpty else { throw invalid(setting, "is unknown; there are \(keys.joined(separator: ", "))") }
            guard setting.key.hasPrefix(namespace) else { throw invalid(setting, "must be spelled \(namespace)…") }
            return true
        }
        return false
    }
}

// MARK: - Values

extension SettingsReader {
    private func invalid(_ setting: Setting, _ problem: String) -> ProviderError {
        setting.position.invalid("The key '\(setting.key.forDisplay)' \(problem).")
    }

    private func single(_ setting: Setting) throws(ProviderError) -> String {
        guard let value = setting.value else { throw invalid(setting, "must have a single value, such as a string") }
        return value.trimmed
    }

    /// Returns the value of a parameter, with what the host says for its variables.
    private mutating func value(
        _ setting: Setting, of parameter: ParameterDescriptor
    ) throws(ProviderError) -> ProviderParameters.Value {
        let written = try single(setting)
        do throws(HostVariables.Problem) {
            let text = try variables.expand(written, as: parameter.kind)
            if text != written { hostValues.append((setting.key, text)) }
            return .init(text, origin: setting.position.description)
        } catch {
            throw invalid(setting, error.reason)
        }
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
    private mutating func installedProvider(_ id: ProviderID) throws(ProviderError) -> ProviderDescriptor? {
        if let known = known[id] { return known }
        let found = try registry.provider(id, configured(id.rawValue))
        known[id] = found
        return found
    }

    private mutating func listedProviders() throws(ProviderError) -> [ConfiguredProvider] {
        guard let setting = settings[Self.namespace] else { return [] }
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
    /// - Parameter listed: Those that the file lists. A plugin that is not listed is not asked for its parameters: then the parameter is
    ///   `nil`.
    private mutating func parameter(
        _ setting: Setting, of listed: [ConfiguredProvider]
    ) throws(ProviderError) -> (ProviderID, ParameterDescriptor?) {
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
            return (id, nil)
        }
        let known = descriptor.configurableParameters
        guard let parameter = known.first(where: { $0.name == parts[2] }) else {
            let names = known.map(\.name).joined(separator: ", ")
            throw invalid(setting, "is not a parameter of '\(id)'; it takes \(names)")
        }
        return (id, parameter)
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
    ) throws(ProviderError) -> (scheme: String, ParameterDescriptor)? {
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
        guard let parameter = store.parameters.first(where: { $0.name == parts[2] }) else {
            let known = store.parameters.map(\.name).joined(separator: ", ")
            let hint = known.isEmpty ? "it takes none" : "it takes \(known)"
            throw invalid(setting, "is not a parameter of the key store '\(store.scheme)'; \(hint)")
        }
        return (store.scheme, parameter)
    }
}
