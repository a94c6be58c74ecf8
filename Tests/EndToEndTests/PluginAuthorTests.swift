import Foundation
import TestSupport
import Testing

/// The way of a new author, as the documentation shows it: each command of its transcripts is run, and what it prints is compared.
@Suite(.enabled(if: TestLength.hasSeconds)) struct PluginAuthorTests {
    struct Language: Sendable, CustomTestStringConvertible {
        let name: String
        /// Runs before the plugin is verified.
        var build = ":"
        /// Lets the plugin no longer store what it obtains, and repairs that.
        var mistake: (breaks: String, repairs: String)?
        var testDescription: String { name }

        static let all = [
            Language(name: "python"), Language(name: "sh"),
            Language(
                name: "go", build: "go build -o certprov-plugin-acme .",
                mistake: ("sed -i.good 's/ask(\"entry.write\".*, nil)/nil/' main.go", "mv main.go.good main.go")),
        ]
    }

    private struct Step {
        var command: String
        var output: [String] = []
    }

    private static func steps() throws -> [Step] {
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../../Documentation/WritingAPlugin.md")
        let blocks = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "```")
        var steps: [Step] = []
        for block in blocks where block.hasPrefix("console\n") {
            for line in block.dropFirst("console\n".count).split(separator: "\n", omittingEmptySubsequences: false) {
                if line.hasPrefix("$ ") {
                    steps.append(Step(command: String(line.dropFirst(2))))
                } else if line.hasPrefix("> "), steps.last?.output.isEmpty == true {
                    steps[steps.count - 1].command += "\n" + line.dropFirst(2)
                } else {
                    steps[steps.count - 1].output.append(String(line))
                }
            }
            while steps.last?.output.last == "" { steps[steps.count - 1].output.removeLast() }
        }
        return steps
    }

    @Test func theCommandsOfTheReadmeWork() throws {
        let readme = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../README.md")
        let commands = try String(contentsOf: readme, encoding: .utf8).split(separator: "\n").filter {
            $0.hasPrefix("$ certprov plugin ")
        }
        #expect(commands.count == 2)
        let sandbox = try Sandbox()
        let script = commands.map { $0.replacing("$ certprov", with: "\"$CERTPROV\"") }.joined(separator: " && ")
        let run = try sandbox.shell("cd $HOME && " + script)
        #expect(run.status == 0 && run.stdout.contains(" passed, 0 failed, 0 skipped."), "\(run)")
    }

    @Test(arguments: Language.all) func thePageIsTrue(_ language: Language) throws {
        let sandbox = try Sandbox()
        let port = String(Int.random(in: 20000..<30000))
        let steps = try Self.steps()
        try #require(steps.count > 9)
        var script = "cd \(sandbox.path)/home; export PATH=\(sandbox.path)/bin:$PATH\n"
        try FileManager.default.createDirectory(atPath: sandbox.path + "/bin", withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(
            atPath: sandbox.path + "/bin/certprov", withDestinationPath: BuiltCommand.path)
        for (number, step) in steps.enumerated() {
            var command = step.command.replacing("python", with: language.name).replacing("8443", with: port)
            if let mistake = language.mistake {
                if command.hasPrefix("sed ") { command = mistake.breaks + "; " + language.build }
                if command.hasPrefix("mv ") { command = mistake.repairs + "; " + language.build }
            }
            // What a reader is told in the text.
            if number == 2 { script += "\(language.build)\n" }
            if command.contains("certprov connect") {
                script += """
                    mkfifo endless
                    openssl s_server -accept \(port) -cert example/cert.pem -key example/key.pem -CAfile example/cert.pem \\
                        -Verify 1 -verify_return_error <>endless >server.log 2>&1 & server=$!
                    for look in $(seq 100); do
                        grep -q ACCEPT server.log && break
                        sleep 0.1
                    done

                    """
            }
            script += "printf '\\n@@@ \(number)\\n'\n{ \(command)\n} 2>&1\nprintf '@@ status %d\\n' $?\n"
        }
        script += "kill $server\n"
        let run = try sandbox.shell(script)
        let parts = run.stdout.components(separatedBy: "\n@@@ ").dropFirst()
        try #require(parts.count == steps.count, "\(run)")
        for (step, part) in zip(steps, parts) {
            let lines = part.split(separator: "\n", omittingEmptySubsequences: false).dropFirst()
            let output = lines.prefix { !$0.hasPrefix("@@ status") }.map(String.init)
            let status = lines.first { $0.hasPrefix("@@ status") }
            let fails = step.output.contains { $0.hasPrefix("FAILED") }
            #expect(status == "@@ status \(fails ? 76 : 0)", "\(language): \(step.command)\n\(part)")
            let expected = step.output.map { $0.replacing("python", with: language.name).replacing("8443", with: port) }
            // Each language has files of its own, and a build.
            if step.command.contains("plugin new"), language.name == "go" { continue }
            #expect(Self.fits(expected[...], output[...]), "\(language): \(step.command)\n\(part)")
        }
    }

    /// A line `…` is any number of lines, and `…` in a line is any text.
    private static func fits(_ expected: ArraySlice<String>, _ lines: ArraySlice<String>) -> Bool {
        guard let first = expected.first else { return lines.allSatisfy(\.isEmpty) }
        if first == "…" {
            return (lines.startIndex...lines.endIndex).contains { fits(expected.dropFirst(), lines[$0...]) }
        }
        guard let line = lines.first, fits(first, line) else { return false }
        return fits(expected.dropFirst(), lines.dropFirst())
    }

    private static func fits(_ expected: String, _ line: String) -> Bool {
        var rest = line[...]
        let parts = expected.components(separatedBy: "…")
        for (number, part) in parts.enumerated() {
            if number == 0 {
                guard rest.hasPrefix(part) else { return false }
                rest = rest.dropFirst(part.count)
            } else if number == parts.count - 1 {
                return rest.hasSuffix(part)
            } else {
                guard let place = rest.range(of: part) else { return false }
                rest = rest[place.upperBound...]
            }
        }
        return rest.isEmpty
    }
}
