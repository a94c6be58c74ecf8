import Foundation
import TestSupport
import Testing

/// Documentation/Command.md has what the command says of itself. Write it anew: CERTPROV_TEST_PAGES=write.
@Suite struct CommandPageTests {
    private struct Command: Decodable {
        let commandName: String
        let abstract: String?
        let subcommands: [Command]?
        let arguments: [Argument]?

        struct Argument: Decodable { let valueName: String? }

        /// The row of each command that does something.
        func rows(_ before: String = "") -> [String] {
            if commandName == "help" { return [] }
            let own = "| `\(before)\(commandName)` | \(abstract ?? "") |"
            guard let subcommands, !subcommands.isEmpty else { return [own] }
            // One with options of its own does something by itself.
            let isGroup = arguments?.contains { $0.valueName == "file" } != true
            return (isGroup ? [] : [own]) + subcommands.flatMap { $0.rows(before + commandName + " ") }
        }
    }

    private struct Help: Decodable { let command: Command }

    @Test func theSubcommandsAreThoseOfTheCommand() throws {
        let help = try Sandbox().certprov("--experimental-dump-help")
        let command = try JSONDecoder().decode(Help.self, from: Data(help.stdoutBytes)).command
        let table = ["| command | what it does |", "|---|---|"] + command.rows()
        #expect(table.count > 20)
        let page = try GeneratedPage("Documentation/Command.md", tables: ["## Subcommands": table])
        let isCurrent = page.isCurrent
        #expect(isCurrent, "Write the tables anew: CERTPROV_TEST_PAGES=write.")
    }

    /// Each is provoked by `TroubleshootingCodeTests`.
    @Test func theExitStatusesAreThoseOfTheErrorCodes() throws {
        // Success, and the answer no.
        let statuses = Set(try TroubleshootingCodeTests.statuses().values).union([0, 1])
        let rows = try Page("Documentation/Command.md").text.matches(of: #/(?m)^\| (\d+) \| /#).map { String($0.1) }
        #expect(rows == statuses.sorted().map(String.init))
    }
}
