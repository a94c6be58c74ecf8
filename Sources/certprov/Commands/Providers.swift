import ArgumentParser
import CertificateProviding
import PluginHost
import Terminal

struct Providers: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "providers",
        abstract: "Show the installed providers with their parameters.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let plugins = try await context.installedPlugins()
            let (providers, keyStores) = (context.registry.descriptors, context.registry.keyStores)
            try context.show(ProviderListDocument(providers, keyStores, plugins)) {
                (providers.map { Self.text($0) } + plugins.compactMap { Self.text($0) }
                    + keyStores.map { Self.text($0) }
                    + plugins.flatMap { plugin in plugin.keyStores.map { Self.text($0) } })
                    .joined(separator: "\n")
            }
            return .done
        }
    }

    private static func text(_ descriptor: ProviderDescriptor, _ origin: String = "") -> String {
        "\(descriptor.id): \(descriptor.displayName)\n  \(descriptor.summary)\n\(origin)\n"
            + table(descriptor.configurableParameters)
    }

    /// A plugin with its provider, or why it is not used; nil for one that has key stores only.
    private static func text(_ plugin: ListedPlugin) -> String? {
        if let error = plugin.error { return "\(plugin.id): not used\n  \(error.message)\n" }
        return plugin.provider.map { text($0, "  Plugin: \(plugin.origin)\n") }
    }

    private static func text(_ descriptor: KeyStoreDescriptor) -> String {
        "key store \(descriptor.scheme): \(descriptor.displayName)\n  \(descriptor.summary)\n"
            + (descriptor.parameters.isEmpty
                ? ""
                : "  In the property file: KeyStore.\(descriptor.scheme).PARAMETER\n\n" + table(descriptor.parameters))
    }

    private static func table(_ parameters: [ParameterDescriptor]) -> String {
        var table = TextTable(header: ["  PARAMETER", "TYPE", "DEFAULT", "MEANING"])
        for parameter in parameters {
            table.append([
                "  " + parameter.name, parameter.kind.rawValue,
                parameter.isRequired ? "(required)" : parameter.defaultValue ?? "-",
                ([parameter.summary] + conditions(of: parameter)).joined(separator: " "),
            ])
        }
        return table.text
    }

    private static func conditions(of parameter: ParameterDescriptor) -> [String] {
        var sentences: [String] = []
        if !parameter.needs.isEmpty {
            sentences.append("Needs \(parameter.needs.map(\.assignment).joined(separator: " and ")).")
        }
        if !parameter.excludes.isEmpty { sentences.append("Not with \(parameter.excludes.joined(separator: " or ")).") }
        return sentences
    }
}

extension ParameterCondition {
    /// `protocol=scep`, or the name alone.
    fileprivate var assignment: String { value.map { "\(name)=\($0)" } ?? name }
}

/// The result of `providers`.
private struct ProviderListDocument: CommandDocument {
    static let kind = "ProviderList"

    let items: [Item]
    let keyStores: [KeyStore]
    let plugins: [Plugin]

    struct Plugin: Encodable {
        let id: String
        let path: String
        let version: Nullable<String>
        let protocolVersion: Nullable<Int>
        /// Why the plugin is not used.
        let error: Nullable<String>
    }

    struct Item: Encodable {
        let id: String
        let displayName: String
        let summary: String
        let parameters: [Parameter]
    }

    struct KeyStore: Encodable {
        let scheme: String
        let displayName: String
        let summary: String
        let parameters: [Parameter]
    }

    struct Parameter: Encodable {
        let name: String
        let type: String
        let required: Bool
        let `default`: Nullable<String>
        let summary: String
        /// Names of parameters, or `name=value`.
        let needs: [String]
        let excludes: [String]

        init(_ parameter: ParameterDescriptor) {
            name = parameter.name
            type = parameter.kind.rawValue
            required = parameter.isRequired
            `default` = Nullable(parameter.defaultValue)
            summary = parameter.summary
            needs = parameter.needs.map(\.assignment)
            excludes = parameter.excludes
        }
    }

    init(_ providers: [ProviderDescriptor], _ keyStores: [KeyStoreDescriptor], _ plugins: [ListedPlugin]) {
        items = (providers + plugins.compactMap(\.provider)).map { provider in
            Item(
                id: provider.id.rawValue, displayName: provider.displayName, summary: provider.summary,
                parameters: provider.configurableParameters.map(Parameter.init))
        }
        self.keyStores = (keyStores + plugins.flatMap(\.keyStores)).map { store in
            KeyStore(
                scheme: store.scheme, displayName: store.displayName, summary: store.summary,
                parameters: store.parameters.map(Parameter.init))
        }
        self.plugins = plugins.map { plugin in
            Plugin(
                id: plugin.id.rawValue, path: plugin.path, version: Nullable(plugin.description?.version),
                protocolVersion: Nullable(plugin.description?.protocolVersion), error: Nullable(plugin.error?.message))
        }
    }
}
