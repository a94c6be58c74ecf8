import Foundation
import Glibc
import TestSupport
import Testing

/// Variables that name no directory for the store.
@Suite struct StateDirectoryTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Runs a command after a script that sets variables.
    private func run(_ command: String, after script: String) throws -> Output {
        try sandbox.run(
            ["/bin/sh", "-c", "cd \"$HOME\"; \(script); exec \"$CERTPROV\" \"$@\"", "sh", command]
                + adHoc(Fixtures.path("ec.p12"), "--json"))
    }

    @Test(arguments: ["list", "fetch", "renew", "delete", "explain"], ["state", "./state", "state:/var/lib/other"])
    func aRelativeStateDirectoryIsRefused(command: String, value: String) throws {
        let output = try run(command, after: "export STATE_DIRECTORY=\(value)")
        let message = try output.expectFailure("configurationInvalid", status: 78)
        #expect(message.contains("STATE_DIRECTORY") && message.contains("absolute"), "\(message)")
        #expect(try FileManager.default.subpathsOfDirectory(atPath: sandbox.path + "/state").isEmpty)
    }

    @Test(arguments: [
        #"export STATE_DIRECTORY="$(printf '%s/\377' "$HOME")""#,
        #"export XDG_STATE_HOME="$(printf '%s/\377' "$HOME")""#,
        // The layout that systemd makes with DynamicUser=.
        #"t="$(printf '%s/\377' "$HOME")"; mkdir -m 700 "$t"; ln -s "$t" link; export STATE_DIRECTORY="$HOME/link""#,
    ])
    func aPathThatIsNotUTF8IsRefused(script: String) throws {
        let message = try run("fetch", after: script).expectFailure("configurationInvalid", status: 78)
        #expect(message.contains("not UTF-8"), "\(message)")
        let written = try sandbox.shell(#"find "$HOME" -type f"#)
        #expect(written.stdout.isEmpty, "\(written)")
    }

    @Test func checkSaysIt() throws {
        try sandbox.certprov(
            ["check"] + adHoc(Fixtures.path("ec.p12")), with: ["STATE_DIRECTORY": "state"]
        ).expect(78, stdout: "STATE_DIRECTORY")
    }
}
