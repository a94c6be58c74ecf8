import Foundation
import Glibc
import TestSupport
import Testing

/// The behaviour when an output is closed, full, or no longer read.
@Suite struct StreamTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private static let commands = [
        ["list"], ["list", "--json"], ["fetch"], ["fetch", "--json"], ["explain"], ["explain", "--json"], ["check"],
        ["check", "--json"],
    ]

    /// Runs a command with redirections of the shell.
    private func run(_ command: [String], _ redirections: String) throws -> Output {
        try sandbox.run(
            ["/bin/sh", "-c", "exec \"$CERTPROV\" \"$@\" \(redirections)", "sh"] + command
                + adHoc(Fixtures.path("ec.p12")))
    }

    @Test(arguments: commands, [">/dev/full", ">&-", "<&- >&-"])
    func anOutputThatCannotBeWrittenIsAnError(command: [String], redirections: String) throws {
        let output = try run(command, redirections).expect(73)
        #expect(output.stdoutBytes.isEmpty)
        if command.contains("--json") {
            try output.expectFailure("storeWriteFailed", status: 73)
        } else {
            #expect(output.stderr.hasSuffix("[storeWriteFailed]\n"), "\(output)")
        }
    }

    @Test(
        arguments: [
            [], ["--help"], ["--version"], ["help", "list"], ["fetch", "--help"], ["connect", "--help"],
            ["--generate-completion-script", "bash"],
        ], [">/dev/full", ">&-"])
    func helpThatCannotBeWrittenIsAnError(command: [String], redirections: String) throws {
        let script = "exec \"$CERTPROV\" \"$@\" \(redirections)"
        let output = try sandbox.run(["/bin/sh", "-c", script, "sh"] + command)
        #expect(output.status == 73 && output.stderr.hasSuffix("[storeWriteFailed]\n"), "\(output)")
    }

    @Test(arguments: commands) func aReaderThatHasGoneIsAnErrorAndNotADeath(command: [String]) throws {
        // The pipe's only reader is closed before the command starts.
        let output = try sandbox.run(
            [
                "/bin/sh", "-c",
                #"mkfifo pipe; exec 3<>pipe 4>pipe; exec 3<&-; exec "$CERTPROV" "$@" >&4"#.replacingOccurrences(
                    of: "pipe", with: "\"$HOME/../pipe\""), "sh",
            ] + command + adHoc(Fixtures.path("ec.p12"))
        ).expect(73)
        #expect(output.stderr.contains("Broken pipe"), "\(output)")
    }

    /// The next file that is opened would get the number of a stream that is closed, and with it the stream's output.
    @Test(arguments: zip(["<&- >&-", ">&-", "<&- >&- 2>&-", "2>&-", "<&- 2>&-"], [73, 73, 73, 0, 0] as [Int32]))
    func noFileOfTheStoreGetsWhatIsWritten(redirections: String, status: Int32) throws {
        let script = "exec \"$CERTPROV\" keygen --key store: --subject CN=streams \(redirections)"
        try sandbox.shell(script).expect(status)
        for name in try FileManager.default.subpathsOfDirectory(atPath: sandbox.store) {
            let content = FileManager.default.contents(atPath: sandbox.store + "/" + name) ?? Data()
            for text in ["CERTIFICATE REQUEST", "certprov: "] {
                #expect(content.range(of: Data(text.utf8)) == nil, "\(name)")
            }
        }
    }

    @Test(arguments: ["2>&-", "2>/dev/full", "<&- 2>&-", "<&-"])
    func theResultDoesNotDependOnTheOtherStreams(redirections: String) throws {
        for command in Self.commands + [["fetch", "--force", "--out", sandbox.path + "/out"]] {
            let output = try run(command, redirections)
            #expect(output.status == 0 && !output.stdoutBytes.isEmpty && output.stderrBytes.isEmpty, "\(output)")
        }
        // And with nowhere to complain, the status still tells.
        try sandbox.run(
            ["/bin/sh", "-c", "exec \"$CERTPROV\" \"$@\" \(redirections)", "sh", "fetch", "--force", "-v", "-v"]
                + adHoc("/nonexistent.p12")
        ).expect(66)
        // Nothing that was meant for a stream went into a file of the store.
        try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).expect()
    }
}
