import ArgumentParser
import CertificateProviding
import Logon
import Terminal

struct Explain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "explain",
        abstract: "Show which provider would be chosen, and why.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let explanation = try await context.manager(configuration).explain()
            try context.show(ExplanationDocument(explanation, configuration.hostValues)) {
                Self.text(explanation, configuration.hostValues)
            }
            return .done
        }
    }

    private static func text(_ explanation: Explanation, _ values: [LogonConfiguration.HostValue]) -> String {
        var table = TextTable(header: ["PROVIDER", "STEP", "OUTCOME", "MS", "WHY"])
        for decision in explanation.decisions {
            table.append([
                decision.provider.rawValue, decision.step.rawValue, decision.outcome.rawValue,
                String(decision.duration.wholeMilliseconds),
                decision.error.map { "\($0.message) [\($0.code)]" } ?? decision.reason ?? "",
            ])
        }
        return table.text + "chosen: \(explanation.chosen?.rawValue ?? "none")\n"
            + values.map { "\($0.key) = \($0.text.withVisibleControls)\n" }.joined()
    }
}

/// The result of `explain`.
private struct ExplanationDocument: CommandDocument {
    static let kind = "Explanation"

    let chosen: Nullable<String>
    let decisions: [DecisionDocument]
    let values: [Value]

    struct Value: Encodable {
        let key: String
        let value: String
    }

    struct DecisionDocument: Encodable {
        let provider: String
        let step: String
        let outcome: String
        let reason: Nullable<String>
        let error: Nullable<Enveloped<ErrorDocument>>
        let durationMilliseconds: Int64
    }

    init(_ explanation: Explanation, _ values: [LogonConfiguration.HostValue]) {
        self.values = values.map { Value(key: $0.key, value: $0.text) }
        chosen = Nullable(explanation.chosen?.rawValue)
        decisions = explanation.decisions.map { decision in
            DecisionDocument(
                provider: decision.provider.rawValue, step: decision.step.rawValue, outcome: decision.outcome.rawValue,
                reason: Nullable(decision.reason), error: Nullable(decision.error.map { Enveloped(ErrorDocument($0)) }),
                durationMilliseconds: decision.duration.wholeMilliseconds)
        }
    }
}

extension Duration {
    fileprivate var wholeMilliseconds: Int64 {
        components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000
    }
}
