import ArgumentParser
import CertificateProviding
import HostService
import Terminal

struct ServeExplain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "explain",
        abstract: "Show which identities of the running service a process may use, and why not the others.",
        discussion: "For the user of the service, and root. Each grant is shown with the selectors that do not match.")

    @OptionGroup var options: GlobalOptions

    @OptionGroup var status: StatusSocketOption

    @Argument(help: ArgumentHelp("The number of the process.", valueName: "pid")) var process: Int32

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            guard let explanation = try StatusSocket.explanation(of: process, at: status.socket) else {
                throw ProviderError(.notFound, "There is no process \(process), or the service does not see it.")
            }
            try context.show(CallerDocument(explanation)) { Self.text(explanation) }
            return .done
        }
    }

    private static func text(_ explanation: HostStatus.Explanation) -> String {
        var lines = [explanation.caller]
        for identity in explanation.identities {
            lines.append("\(identity.name.withVisibleControls): \(identity.isGranted ? "granted" : "not granted")")
            if identity.grants.isEmpty { lines.append("    it has no grant") }
            for grant in identity.grants {
                func result(_ mismatches: [String]) -> String {
                    mismatches.isEmpty ? "matches" : mismatches.joined(separator: ", ")
                }
                let credentials = grant.credentials.map { "; for credentials of its unit: \(result($0))" } ?? ""
                lines.append(
                    "    \(grant.name) (\(grant.text.withVisibleControls)): \(result(grant.mismatches))" + credentials)
            }
        }
        return lines.map { $0 + "\n" }.joined()
    }
}

/// The result of `serve explain`.
private struct CallerDocument: CommandDocument {
    static let kind = "Caller"

    struct Item: Encodable {
        let name: String
        let granted: Bool
        let grants: [HostStatus.Explanation.Grant]
    }

    let caller: String
    let items: [Item]

    init(_ explanation: HostStatus.Explanation) {
        caller = explanation.caller
        items = explanation.identities.map { Item(name: $0.name, granted: $0.isGranted, grants: $0.grants) }
    }
}
