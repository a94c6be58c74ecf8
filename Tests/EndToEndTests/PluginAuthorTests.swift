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
                name: "go", build: "go build -o certprov-plugin-corp .",
                mistake: ("sed -i.good 's/ask(\"entry.write\".*, nil)/nil/' main.go", "mv main.go.good main.go")),
        ]
    }

    @Test(arguments: Language.all) func thePageIsTrue(_ language: Language) throws {
        let sandbox = try Sandbox()
        let port = try ReservedPort()
        let steps = try Page("Documentation/WritingAPlugin.md").steps
        try #require(steps.count > 9)
        var script = "cd \(sandbox.path)/home; export PATH=\(sandbox.path)/bin:$PATH\n"
        try FileManager.default.createDirectory(atPath: sandbox.path + "/bin", withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(
            atPath: sandbox.path + "/bin/certprov", withDestinationPath: BuiltCommand.path)
        for (number, step) in steps.enumerated() {
            var command = step.command.replacing("python", with: language.name).replacing("8443", with: "\(port)")
            if let mistake = language.mistake {
                if command.hasPrefix("sed ") { command = mistake.breaks + "; " + language.build }
                if command.hasPrefix("mv ") { command = mistake.repairs + "; " + language.build }
            }
            // An instruction of the text to the reader.
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
        let run = try withExtendedLifetime(port) { try sandbox.shell(script) }
        let parts = run.stdout.components(separatedBy: "\n@@@ ").dropFirst()
        try #require(parts.count == steps.count, "\(run)")
        for (step, part) in zip(steps, parts) {
            let lines = part.split(separator: "\n", omittingEmptySubsequences: false).dropFirst()
            let output = lines.prefix { !$0.hasPrefix("@@ status") }.map(String.init)
            let status = lines.first { $0.hasPrefix("@@ status") }
            let fails = step.output.contains { $0.hasPrefix("FAILED") }
            #expect(status == "@@ status \(fails ? 76 : 0)", "\(language): \(step.command)\n\(part)")
            let expected = step.output.map {
                $0.replacing("python", with: language.name).replacing("8443", with: "\(port)")
            }
            // Each language has files of its own, and a build.
            if step.command.contains("plugin new"), language.name == "go" { continue }
            #expect(Transcript.fits(expected[...], output[...]), "\(language): \(step.command)\n\(part)")
        }
    }
}
