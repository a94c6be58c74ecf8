import ArgumentParser
import CertificateProviding

struct Check: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Check the configuration and this host for problems; fails if one needs manual action.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let findings = await HostCheck(context).run()
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
private struct CheckDocument: Document {
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
