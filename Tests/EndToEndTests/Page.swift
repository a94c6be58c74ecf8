import Foundation
import TestSupport
import Testing

/// A page of the documentation, with its transcripts.
struct Page {
    /// The README, and the pages of the book with their paths.
    static let all: [String] =
        ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        + ["Documentation", "Examples"].flatMap { folder in
            let files = FileManager.default.enumerator(
                at: root.appending(path: folder), includingPropertiesForKeys: nil, options: .skipsHiddenFiles)
            return (files?.allObjects ?? []).compactMap { ($0 as? URL)?.standardized.path }.filter {
                $0.hasSuffix(".md")
            }
            .map { String($0.dropFirst(root.path.count).drop { $0 == "/" }) }.sorted()
        }

    static let root = GeneratedPage.root

    let name: String
    let text: String
    /// The blocks of the language `console`.
    let transcripts: [Transcript]
    /// The commands of all of them.
    var steps: [Transcript.Step] { transcripts.flatMap(\.steps) }

    init(_ name: String) throws {
        self.name = name
        text = try String(contentsOf: Self.root.appending(path: name), encoding: .utf8)
        transcripts = text.components(separatedBy: "```").filter { $0.hasPrefix("console\n") }.map {
            Transcript(page: name, text: String($0.dropFirst("console\n".count)))
        }
    }

    /// The blocks of a language.
    ///
    /// - Parameter heading: Of the section that they are in; `nil` for the whole page.
    func blocks(_ language: String, under heading: String? = nil) -> [String] {
        let sections = ("\n" + text).components(separatedBy: "\n## ")
        let part = heading.map { heading in sections.first { $0.hasPrefix(heading + "\n") } ?? "" } ?? text
        return part.components(separatedBy: "```").dropFirst().filter { $0.hasPrefix("\(language)\n") }.map {
            String($0.dropFirst(language.count + 1))
        }
    }
}

/// The text on a terminal: commands after `$ `, or `# ` for root, further lines of them after `> `, and their output.
struct Transcript {
    struct Step {
        var command: String
        var output: [String] = []
    }

    let page: String
    let lines: [String]
    let steps: [Step]

    init(page: String, text: String) {
        self.page = page
        lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        var steps: [Step] = []
        let prompt = text.hasPrefix("# ") ? "# " : "$ "
        // One that begins with `…` is the end of what a script prints.
        for line in lines where lines.first != "…" {
            if line.hasPrefix(prompt) {
                steps.append(Step(command: String(line.dropFirst(2))))
            } else if line.hasPrefix("> "), steps.last?.output.isEmpty == true {
                steps[steps.count - 1].command += "\n" + line.dropFirst(2)
            } else if !steps.isEmpty {
                steps[steps.count - 1].output.append(line)
            }
        }
        for index in steps.indices {
            while steps[index].output.last == "" { steps[index].output.removeLast() }
        }
        self.steps = steps
    }

    /// Whether these lines are the expected ones. A line `…` is any number of lines, and `…` in a line is any text. A time
    /// is any time, and a port of this host is any port.
    static func fits(_ expected: ArraySlice<String>, _ lines: ArraySlice<String>) -> Bool {
        guard let first = expected.first else { return lines.allSatisfy(\.isEmpty) }
        if first == "…" {
            return (lines.startIndex...lines.endIndex).contains { fits(expected.dropFirst(), lines[$0...]) }
        }
        guard let line = lines.first, fits(timeless(first), timeless(line)) else { return false }
        return fits(expected.dropFirst(), lines.dropFirst())
    }

    private static func timeless(_ line: String) -> String {
        line.replacing(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/, with: "0000-00-00T00:00:00Z")
            .replacing(/localhost:\d+/, with: "localhost:0")
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

extension Sandbox {
    /// Runs the commands of a transcript one after the other, in one shell in `home`, and compares what they print. Port 8443 is
    /// another one. A server runs until the end.
    ///
    /// - Parameter setup: What the reader has done before.
    func expect(
        _ steps: [Transcript.Step], after setup: String = ":", with variables: [String: String] = [:]
    ) throws {
        let port = try ReservedPort()
        var script = """
            cd "$HOME"; export PATH="${CERTPROV%/*}:$PATH"; server=
            trap '[ -z "$server" ] || kill "$server"' EXIT
            { \(setup)
            } >&2

            """
        for (number, step) in steps.enumerated() {
            script += "printf '\\n@@@ \(number)\\n'\n"
            if step.command.hasPrefix("openssl s_server ") {
                script += """
                    \(step.command) >server.log 2>&1 & server=$!
                    for look in $(seq 100); do
                        grep -q ACCEPT server.log && break
                        sleep 0.1
                    done

                    """
            } else {
                script += "{ \(step.command)\n} 2>&1\n"
            }
            script += "printf '@@ status %d\\n' $?\n"
        }
        // A busy machine is slow, and each command has time limits of its own.
        let run = try withExtendedLifetime(port) {
            try start(["/bin/sh", "-c", script.replacing("8443", with: "\(port)")], with: variables).wait()
        }
        let parts = run.stdout.components(separatedBy: "\n@@@ ").dropFirst()
        try #require(parts.count == steps.count, "\(run)")
        for (step, part) in zip(steps, parts) {
            let lines = part.split(separator: "\n", omittingEmptySubsequences: false).dropFirst()
            let output = lines.prefix { !$0.hasPrefix("@@ status") }.map(String.init)
            #expect(lines.contains("@@ status 0"), "\(step.command)\n\(part)\n\(run.stderr)")
            #expect(Transcript.fits(step.output[...], output[...]), "\(step.command)\n\(part)")
        }
    }
}
