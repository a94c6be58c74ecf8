import CertificateProviding
import FoundationEssentials
import PluginProtocol
import Synchronization

/// A plugin's description of itself.
package struct PluginDescription: Sendable {
    /// The version of the protocol that it speaks with this host.
    package let protocolVersion: Int
    /// Its own version; `nil` if it does not say.
    package let version: String?
    /// Whether it is a provider.
    package var isProvider: Bool { provider != nil }
    /// The schemes of its key stores.
    package var schemes: [String] { keyStores.map(\.scheme) }

    struct Provider: Sendable {
        let displayName: String
        let summary: String
        let parameters: [WireParameter]
        let can: [String]
        /// The one of its identities.
        let keyStore: KeyStore?
    }
    struct KeyStore: Sendable {
        let scheme: String
        let displayName: String
        let summary: String
        let parameters: [WireParameter]
        let details: RemoteKeyStore.Details
    }
    let provider: Provider?
    let keyStores: [KeyStore]

    /// - Throws: `protocolError` for a description that cannot be used.
    init(
        _ hello: Hello, _ plugin: InstalledPlugin, builtInSchemes: Set<String>
    ) throws(ProviderError) {
        (protocolVersion, version) = (hello.version, hello.pluginVersion.map(\.line))
        let keyStores = (hello.keyStores ?? []).map {
            KeyStore(
                scheme: $0.scheme, displayName: $0.displayName.line, summary: $0.summary.line,
                parameters: $0.parameters ?? [], details: RemoteKeyStore.Details($0))
        }
        self.keyStores = keyStores
        provider = hello.provider.map { provider in
            Provider(
                displayName: provider.displayName.line, summary: provider.summary.line,
                parameters: provider.parameters ?? [], can: provider.can ?? [],
                keyStore: keyStores.first { $0.scheme == provider.keyStore })
        }
        func refuse(_ reason: String) -> ProviderError {
            ProviderError(
                .protocolError, "The plugin '\(plugin.id)' violates the plugin protocol. \(reason)", provider: plugin.id
            )
        }
        if let scheme = hello.provider?.keyStore, provider?.keyStore == nil {
            throw refuse("The key store '\(scheme.line):' of its provider is not among its key stores.")
        }
        guard provider != nil || !keyStores.isEmpty else { throw refuse("It is neither a provider nor a key store.") }
        // Every later use of a declaration relies on one of a name. The host adds one to each key store.
        for parameters in [provider?.parameters ?? []] + keyStores.map(\.parameters) {
            let stores = parameters.filter { ParameterDescriptor.Kind(rawValue: $0.type) == .keyStore }
            let names = parameters.map(\.name) + stores.map { $0.name + ParameterDescriptor.pinSourceSuffix }
            guard Set(names).count == names.count else {
                throw refuse(
                    "It declares two parameters of one name. The host adds NAME\(ParameterDescriptor.pinSourceSuffix) to each "
                        + "parameter of the type key-store.")
            }
        }
        for store in keyStores {
            guard plugin.id.mayHave(scheme: store.scheme) else {
                throw refuse(
                    "The scheme '\(store.scheme.line)' of a key store must be '\(plugin.id)', or begin with '\(plugin.id)-'."
                )
            }
            guard KeyStoreLocation(uri: store.scheme + ":", pinSource: nil)?.scheme == store.scheme else {
                throw refuse("'\(store.scheme.line)' is not a URI scheme in lower case.")
            }
            guard !builtInSchemes.contains(store.scheme) else {
                throw refuse("The URI scheme '\(store.scheme)' belongs to a built-in key store.")
            }
        }
        guard Set(keyStores.map(\.scheme)).count == keyStores.count else {
            throw refuse("It has two key stores of one scheme.")
        }
    }
}

extension ProviderID {
    /// Whether a key store of the plugin with this id may have a URI scheme.
    func mayHave(scheme: String) -> Bool { scheme == rawValue || scheme.hasPrefix(rawValue + "-") }
}

extension String {
    /// The path, from the current directory of this process.
    fileprivate var absolutePath: String {
        hasPrefix("/") ? self : "\(FileManager.default.currentDirectoryPath)/\(self)"
    }

    /// A short text of a plugin on one line.
    fileprivate var line: String { String(withVisibleControls.prefix(256)) }
}

/// A parameter that a plugin declares, and its value among parsed ones.
struct DeclaredParameter: Sendable {
    let descriptor: ParameterDescriptor
    private let text: @Sendable (Parameters) -> String?
    private let store: (@Sendable (Parameters) -> any KeyStore)?

    /// - Throws: `protocolError` for a declaration that cannot be used.
    init(_ wire: WireParameter, of plugin: InstalledPlugin) throws(ProviderError) {
        let isName =
            (1...64).contains(wire.name.utf8.count)
            && wire.name.utf8.allSatisfy { (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2d }
        let reserved = [PluginOptions.environmentParameter.name, PluginOptions.digestParameter.name]
        guard isName, !reserved.contains(wire.name) else {
            throw ProviderError(
                .protocolError,
                "The plugin '\(plugin.id)' declares a parameter '\(wire.name.line)': a name has lower-case letters, digits and "
                    + "'-', and \(reserved.joined(separator: " and ")) are the host's.",
                provider: plugin.id)
        }
        guard wire.distinguishes != true || wire.type != ParameterDescriptor.Kind.secretSource.rawValue else {
            throw ProviderError(
                .protocolError,
                "The plugin '\(plugin.id)' declares that '\(wire.name)' distinguishes identities. The source of a secret never does; "
                    + "leave out 'distinguishes'.",
                provider: plugin.id)
        }
        let needs = (wire.needs ?? []).map { condition in
            condition.value.map { ParameterCondition.value(condition.name, $0) } ?? .given(condition.name)
        }
        let (kind, summary, excludes) = (
            ParameterDescriptor.Kind(rawValue: wire.type), wire.summary.line, wire.excludes ?? []
        )
        if kind == .keyStore {
            // The query chooses the library that this process loads, and the file with the PIN.
            guard wire.default?.contains("?") != true else {
                throw ProviderError(
                    .protocolError,
                    "The plugin '\(plugin.id)' declares a default of '\(wire.name)' with a part after '?', which only the "
                        + "configuration may choose.",
                    provider: plugin.id)
            }
            let parameter = Parameter<any KeyStore>.keyStore(
                wire.name, default: wire.default ?? "store:", needs: needs, excludes: excludes, summary: summary)
            descriptor = parameter.descriptor.distinguishing(as: wire)
            let uri = wire.default ?? "store:"
            text = { $0.text(parameter) ?? uri }
            store = { $0[parameter] }
            return
        }
        let parameter = Parameter<String?>(
            wire.name, kind, absent: wire.required == true ? nil : .some(nil), defaultValue: wire.default?.line,
            // Which servers are trusted: without the value, more may be.
            needs: needs, excludes: excludes, summary: summary
        ) { text, _ throws(ParameterProblem) in try wire.check(text) }
        descriptor = parameter.descriptor.distinguishing(as: wire)
        // A plugin runs in a directory of its own.
        let isPath = [.path, .secretPath, .certificateFile].contains(kind)
        text = { parameters in
            parameters.text(parameter).map { text in
                isPath || kind == .trustAnchors && text != "system" ? text.absolutePath : text
            }
        }
        store = nil
    }

    /// The value as it is configured; nil where it is not.
    func value(_ parameters: Parameters) -> String? { text(parameters) }

    /// The URI and the store of a parameter of that kind.
    func keyStore(_ parameters: Parameters) -> (String, any KeyStore)? {
        guard let store, let uri = text(parameters) else { return nil }
        return (uri, store(parameters))
    }
}

extension ParameterDescriptor {
    fileprivate func distinguishing(as declared: WireParameter) -> Self {
        declared.distinguishes.map { distinguishing($0) } ?? self
    }
}

extension WireParameter {
    /// Checks a value by the parameter's type.
    fileprivate func check(_ text: String) throws(ParameterProblem) -> String {
        switch ParameterDescriptor.Kind(rawValue: type) {
        case .boolean where !["true", "false"].contains(text.lowercased()): throw .expected("must be true or false")
        case .secretSource where SecretSource(text) == nil:
            throw .expected("must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt")
        case .serverURL:
            guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()),
                url.host()?.isEmpty == false
            else { throw .expected("must be a URL such as https://host.example") }
        default: break
        }
        if let values, !values.isEmpty, !values.contains(text) {
            throw .expected("must be one of \(values.map(\.line).joined(separator: ", "))")
        }
        if let range, range.count == 2, !(Int(text).map { range[0] <= $0 && $0 <= range[1] } ?? false) {
            throw .expected("must be a number from \(range[0]) to \(range[1])")
        }
        return text
    }
}

extension [DeclaredParameter] {
    /// Returns the configured parameters.
    func texts(_ parameters: Parameters) -> [String: String] {
        [String: String](
            uniqueKeysWithValues: compactMap { one in one.value(parameters).map { (one.descriptor.name, $0) } })
    }

    /// The sources of secrets that the plugin may ask for.
    func sources(_ parameters: Parameters) -> Set<String> {
        Set(
            filter { $0.descriptor.kind == .secretSource }.compactMap { $0.value(parameters) }.compactMap {
                SecretSource($0)?.description
            })
    }
}

/// The parameters that the host adds to those of each plugin.
struct PluginOptions: Sendable {
    static let timeoutParameter = Parameter.seconds(
        "timeout", default: 20, in: 1...300,
        summary: "Seconds that the plugin may be silent; the time that the user takes does not count.")
    static let environmentParameter = Parameter.string(
        "environment", defaultValue: "none",
        summary: "Names of environment variables that the plugin gets, separated by commas.")
    static let digestParameter = Parameter<String?>(
        "sha256", .string, refusesBlank: true,
        summary: "The SHA-256 of the executable file; another file is refused."
    ) { text, _ throws(ParameterProblem) in
        guard text.utf8.count == 64, text.allSatisfy(\.isHexDigit) else {
            throw .expected("must be 64 hexadecimal digits")
        }
        return text
    }
    /// How much longer than a plugin with a time limit of its own the host waits, so that the plugin's error comes first.
    private static let margin = Duration.seconds(10)

    /// Those that the plugin does not declare itself.
    static func descriptors(beside declared: [DeclaredParameter]) -> [ParameterDescriptor] {
        [timeoutParameter.descriptor, environmentParameter.descriptor, digestParameter.descriptor].filter { option in
            !declared.contains { $0.descriptor.name == option.name }
        }
    }

    var timeout = Duration.seconds(20)
    var variables: [String] = []
    var digest: String?

    /// The defaults.
    init() {}

    init(
        _ parameters: Parameters, _ declared: [DeclaredParameter], of plugin: InstalledPlugin
    ) throws(ProviderError) {
        timeout = parameters[Self.timeoutParameter]
        if let own = declared.first(where: { $0.descriptor.name == Self.timeoutParameter.name }) {
            let seconds = (own.value(parameters) ?? own.descriptor.defaultValue).flatMap { Int($0) } ?? 20
            timeout = .seconds(max(0, min(seconds, 86400))) + Self.margin
        }
        digest = parameters[Self.digestParameter]
        variables = (parameters[Self.environmentParameter] ?? "").split(separator: ",").map { String($0).trimmed }
        let isName = variables.allSatisfy { name in
            !name.isEmpty && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_") }
        }
        guard isName else {
            throw parameters.invalid(
                Self.environmentParameter, "must be names of environment variables, separated by commas")
        }
    }

    /// Reads these parameters before the plugin is asked for its own, one of which `timeout` may be.
    init(_ configured: ProviderParameters, of plugin: InstalledPlugin) throws(ProviderError) {
        var own = ProviderParameters()
        for name in [Self.environmentParameter.name, Self.digestParameter.name] { own[name] = configured[name] }
        try self.init(
            try Parameters(own, of: Self.descriptors(beside: []), owner: plugin.id, keyStores: .none), [], of: plugin)
        if let seconds = configured.string(Self.timeoutParameter.name).flatMap({ Int($0) }), 1...300 ~= seconds {
            timeout = .seconds(seconds)
        }
    }
}

// MARK: - The cache

/// The answers of plugins to `hello`, by the digests of their executables.
final class DescriptionCache: Sendable {
    private let storage: (@Sendable () throws(ProviderError) -> any IdentityStorage)?
    private let known = Mutex<[String: Hello]>([:])
    private let limits = Mutex<[ProviderID: StartLimit]>([:])

    /// The greatest number of answers that are stored.
    private static let maximum = 64
    private static let record = "descriptions"

    private struct Contents: Codable {
        static let format = VersionedRecord<Self>(
            of: "descriptions of plugins", ifDamaged: "each plugin is asked again")
        /// Most recent last.
        var entries: [Entry] = []
        struct Entry: Codable {
            let digest: String
            let hello: Hello
        }
    }

    init(_ storage: (@Sendable () throws(ProviderError) -> any IdentityStorage)?) { self.storage = storage }

    /// Bounds how often a plugin is started for its description.
    func limit(for id: ProviderID) -> StartLimit {
        limits.withLock { limits in
            let limit = limits[id] ?? StartLimit(id)
            limits[id] = limit
            return limit
        }
    }

    /// Without the store's help where it has none: then the plugin is asked again.
    subscript(digest: String) -> Hello? {
        get {
            if let hello = known.withLock({ $0[digest] }) { return hello }
            guard let storage = try? storage?(), let record = try? storage.record(named: Self.record),
                let hello = Self.contents(record)?.entries.last(where: { $0.digest == digest })?.hello
            else { return nil }
            known.withLock { $0[digest] = hello }
            return hello
        }
        set {
            guard let newValue else { return }
            known.withLock { $0[digest] = newValue }
            guard let storage = try? storage?() else { return }
            try? storage.updateRecord(named: Self.record) { record in
                guard var contents = Self.contents(record) else { return nil }
                contents.entries.removeAll { $0.digest == digest }
                contents.entries = contents.entries.suffix(Self.maximum - 1) + [.init(digest: digest, hello: newValue)]
                return try? Contents.format.record(of: contents)
            }
        }
    }

    /// Returns `nil` for a record of a newer version, which is not rewritten.
    private static func contents(_ record: SecretBytes?) -> Contents? {
        guard let record else { return Contents() }
        do throws(ProviderError) { return try Contents.format.undamagedContent(of: record) ?? Contents() } catch {
            return nil
        }
    }
}

/// The storage of a plugin that is only asked for its description.
struct NoStorage: IdentityStorage {
    private var unavailable: ProviderError {
        ProviderError(.operationNotAllowed, "A plugin has no storage before it is configured.")
    }

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? { throw unavailable }
    func entryNames() throws(ProviderError) -> [String] { throw unavailable }
    func recordNames() throws(ProviderError) -> [String] { throw unavailable }
    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) { throw unavailable }
    func removeEntry(named name: String) throws(ProviderError) { throw unavailable }
    func record(named name: String) throws(ProviderError) -> SecretBytes? { throw unavailable }
    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) { throw unavailable }
    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? { throw unavailable }
}
