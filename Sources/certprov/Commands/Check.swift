import ArgumentParser
import CertificateProviding
import Terminal

struct Check: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Check the configuration and this host for problems; fails if one needs manual action.",
        discussion: """
            A certificate that has expired is such a problem. With --expires-within, so is one that will soon.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var timer: RenewalTimer

    @Option(
        help: ArgumentHelp(
            "Fail also if an identity in use expires within this time, such as 14d or 36h.", valueName: "time"),
        transform: SpanOfTime.ofCertificates)
    var expiresWithin: SpanOfTime?

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let findings = await HostCheck(context, timer, expiresWithin: expiresWithin).run()
            try context.show(CheckDocument(findings)) {
                var table = TextTable(header: ["RESULT", "WHAT", "DETAIL"])
                for finding in findings { table.append([finding.severity.rawValue, finding.what, finding.detail]) }
                return table.text
            }
            return findings.first { $0.severity == .error }.map { ExitStatus($0.code ?? .internal) } ?? .done
        }
    }
}

/// The result of `check`.
private struct CheckDocument: CommandDocument {
    static let kind = "CheckReport"

    let items: [Item]
    let ok: Bool

    struct Item: Encodable {
        let severity: String
        let what: String
        let detail: String
        let code: Nullable<String>
    }

    init(_ findings: [Finding]) {
        items = findings.map { finding in
            Item(
                severity: finding.severity.rawValue, what: finding.what, detail: finding.detail,
                code: Nullable(finding.code?.rawValue))
        }
        ok = !findings.contains { $0.severity == .error }
    }
}
