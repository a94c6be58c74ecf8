import ArgumentParser
import CertificateProviding

struct Providers: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "providers",
        abstract: "Show the installed providers with their parameters.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let descriptors = context.registry.descriptors
            try context.show(ProviderListDocument(descriptors)) { descriptors.map(Self.text).joined(separator: "\n") }
            return .done
        }
    }

    private static func text(_ descriptor: ProviderDescriptor) -> String {
        var table = TextTable(header: ["  PARAMETER", "TYPE", "DEFAULT", "MEANING"])
        for parameter in descriptor.configurableParameters {
            table.append([
                "  " + parameter.name, parameter.kind.rawValue,
                parameter.isRequired ? "(required)" : parameter.defaultValue ?? "-", parameter.summary,
            ])
        }
        return "\(descriptor.id): \(descriptor.displayName)\n  \(descriptor.summary)\n\n\(table.text)"
    }
}

/// The result of `providers`.
private struct ProviderListDocument: Document {
    static let kind = "ProviderList"

    let items: [Item]

    struct Item: Encodable {
        let id: String
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
    }

    init(_ descriptors: [ProviderDescriptor]) {
        items = descriptors.map { descriptor in
            Item(
                id: descriptor.id.rawValue, displayName: descriptor.displayName, summary: descriptor.summary,
                parameters: descriptor.configurableParameters.map {
                    Parameter(
                        name: $0.name, type: $0.kind.rawValue, required: $0.isRequired,
                        default: Nullable($0.defaultValue), summary: $0.summary)
                })
        }
    }
}
