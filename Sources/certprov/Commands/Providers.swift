import ArgumentParser
import CertificateProviding

struct Providers: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "providers",
        abstract: "Show the installed providers with their parameters.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let (providers, keyStores) = (context.registry.descriptors, context.registry.keyStores)
            try context.show(ProviderListDocument(providers, keyStores)) {
                (providers.map(Self.text) + keyStores.map(Self.text)).joined(separator: "\n")
            }
            return .done
        }
    }

    private static func text(_ descriptor: ProviderDescriptor) -> String {
        "\(descriptor.id): \(descriptor.displayName)\n  \(descriptor.summary)\n\n"
            + table(descriptor.configurableParameters)
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
private struct ProviderListDocument: Document {
    static let kind = "ProviderList"

    let items: [Item]
    let keyStores: [KeyStore]

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

    init(_ providers: [ProviderDescriptor], _ keyStores: [KeyStoreDescriptor]) {
        items = providers.map { provider in
            Item(
                id: provider.id.rawValue, displayName: provider.displayName, summary: provider.summary,
                parameters: provider.configurableParameters.map(Parameter.init))
        }
        self.keyStores = keyStores.map { store in
            KeyStore(
                scheme: store.scheme, displayName: store.displayName, summary: store.summary,
                parameters: store.parameters.map(Parameter.init))
        }
    }
}
