import Contracts
import Foundation
import Subprocess
import Testing

/// The desktop's way to the program: `install-handler`, then `xdg-open`.
@Suite struct InstallHandlerTests {
    private let contracts: ContractsProgram
    private var folder: CallFolder { contracts.folder }

    init() async throws { contracts = try await ContractsProgram() }

    private let desktop: [Environment.Key: String] = ["DISPLAY": ":99", "XDG_CURRENT_DESKTOP": ""]

    private func has(_ program: String) async throws -> Bool {
        let isThere = try await contracts.run(["sh", "-c", "command -v \(program)"]).status == 0
        if !isThere { print("ContractsTests: there is no '\(program)', so the desktop's way is NOT TESTED.") }
        return isThere
    }

    @Test("xdg-open of a URL and of a file reaches the program, without a desktop")
    func reached() async throws {
        for program in ["xdg-open", "xdg-mime", "update-mime-database"] {
            guard try await has(program) else { return }
        }
        try folder.write(
            "[Default Applications]\ntext/plain=a.desktop\napplication/sellsign=other.desktop;contracts.desktop\n",
            to: "data/applications/mimeapps.list")
        let installed = try await contracts(
            "install-handler", "--no-terminal", "--json", "--config", folder["host.properties"])
        #expect(installed.status == 0, "\(installed)")
        #expect(try installed.json()["warnings"] as? [String] == [], "\(installed)")

        // How xdg-open finds the program where it knows no desktop, and where the desktop has GLib's database.
        var ways = [desktop]
        if try await has("gio") { ways.append(["XDG_CURRENT_DESKTOP": "GNOME"]) }
        for (number, way) in ways.enumerated() {
            let call = "sellsign://sync/full?error_callback_url=myapp%3A%2F%2Ferror"
            let opened = try await contracts.run(["xdg-open", call], with: way)
            try await until("the call is answered: \(opened)") { try folder.opened().count == number + 1 }
        }
        #expect(try folder.opened().allSatisfy { $0.hasPrefix("myapp://error?message=") })

        let file = try folder.write(CallFile.json(number: "By the desktop"), to: "a contract.sellsign")
        var count = 0
        for way in ways {
            let type = try await contracts.run(["xdg-mime", "query", "filetype", file], with: way)
            guard type.stdout == "application/sellsign\n" else {
                // Without a desktop, and without the program mimetype, xdg-open looks at the content only.
                #expect(way == desktop, "\(type)")
                continue
            }
            for target in [file, "file://" + file.replacing(" ", with: "%20")] {
                let output = try await contracts.run(["xdg-open", target], with: way)
                #expect(output.status == 0, "\(output)")
                count += 1
                let expected = count
                try await until("the file is taken") {
                    try FileManager.default.contentsOfDirectory(
                        atPath: folder["state"] + "/certprov/records/contracts_"
                    )
                    .count { $0.hasPrefix("contract-") } == expected
                }
            }
        }
        #expect(try await contracts("list").stdout.components(separatedBy: "By the desktop").count == count + 1)

        let removed = try await contracts("install-handler", "--remove")
        #expect(removed.status == 0 && removed.stderr.isEmpty, "\(removed)")
        #expect(!folder.exists("data/applications/contracts.desktop"))
        let defaults = try String(contentsOfFile: folder["data/applications/mimeapps.list"], encoding: .utf8)
        #expect(defaults == "[Default Applications]\ntext/plain=a.desktop\napplication/sellsign=other.desktop\n")
        let left = try await contracts.run(["grep", "-r", "contracts.desktop", folder["data"], folder["config"]])
        #expect(left.status == 1, "\(left)")
        #expect(!folder.exists("data/mime/packages/contracts.xml"))
        for scheme in ["x-scheme-handler/sellsign", "application/sellsign"] {
            let left = try await contracts.run(["xdg-mime", "query", "default", scheme], with: desktop)
            #expect(left.stdout.trimmingCharacters(in: .whitespacesAndNewlines).isEmpty, "\(left)")
        }
        #expect(try await contracts("install-handler", "--remove").status == 0, "Again.")
    }

    @Test("a desktop starts it in a terminal, where a person can be asked")
    func inTerminal() async throws {
        guard try await has("xdg-open") else { return }
        #expect(try await contracts("install-handler").status == 0)
        // The terminal emulator of the desktop.
        let emulator = try await folder.program("emulator", "shift\nexec \"$@\"\n")
        let output = try await contracts.run(
            ["xdg-open", "sellsign://sync/full?error_callback_url=myapp://error"],
            with: desktop.merging(["TERMINAL": emulator]) { $1 })
        try await until("the call is answered: \(output)") { try !folder.opened().isEmpty }
    }

    @Test("the files are valid, and name the program with the property file")
    func valid() async throws {
        #expect(try await contracts("install-handler", "--config", folder["nofile.properties"]).status == 78)
        let output = try await contracts.run(
            [
                "env", "-C", folder.path, ContractsProgram.path(), "install-handler", "--config", "host.properties",
            ], with: desktop)
        #expect(output.status == 0, "\(output)")
        let entry = try String(contentsOfFile: folder["data/applications/contracts.desktop"], encoding: .utf8)
        #expect(entry.contains("\nExec=\(ContractsProgram.path()) open --config /"), "\(entry)")
        #expect(entry.contains("/host.properties -- %u\n") && entry.contains("\nTerminal=true\n"), "\(entry)")
        if try await has("desktop-file-validate") {
            let output = try await contracts.run(
                ["desktop-file-validate", folder["data/applications/contracts.desktop"]])
            #expect(output.status == 0 && output.stdout.isEmpty, "\(output)")
        }
    }

    @Test("without the desktop's programs the files are there, and what is left is said")
    func withoutPrograms() async throws {
        let output = try await contracts.run(
            ["PATH=/nowhere", ContractsProgram.path(), "install-handler"])
        #expect(output.status == 0 && folder.exists("data/applications/contracts.desktop"), "\(output)")
        for program in ["xdg-mime", "update-mime-database", "update-desktop-database"] {
            #expect(output.stderr.contains(program), "\(output)")
        }
    }

    @Test("a directory that cannot be written to is an error, and so is an environment without one")
    func errors() async throws {
        try folder.write("", to: "file")
        let blocked = try await contracts.run(
            ["XDG_DATA_HOME=\(folder["file"])", ContractsProgram.path(), "install-handler", "--json"])
        #expect(try blocked.status == 73 && blocked.json(true)["code"] as? String == "storeWriteFailed", "\(blocked)")
        let none = try await contracts.run(
            ["-u", "XDG_DATA_HOME", "-u", "HOME", ContractsProgram.path(), "install-handler"])
        #expect(none.status == 78, "\(none)")
    }

    @Test(
        "an argument of Exec is quoted where it must be",
        arguments: [
            ("/usr/bin/contracts", "/usr/bin/contracts"), ("/a b/c", "\"/a b/c\""), ("/a\"b", #""/a\\"b""#),
            ("/a$b`c", #""/a\\$b\\`c""#),
            (#"/a\b"#, #""/a\\\\b""#), ("/a%b", "\"/a%%b\""), ("", "\"\""), ("/a;b", "\"/a;b\""),
        ])
    func quoting(argument: String, expected: String) {
        let entry = HandlerFiles.desktopEntry([argument], isInTerminal: false)
        #expect(entry.contains("\nExec=\(expected) %u\n"), "\(entry)")
    }

    @Test("the entry names the property file of the environment, which the desktop's programs do not have")
    func environment() async throws {
        _ = try await contracts("install-handler")
        let entry = try String(contentsOfFile: folder["data/applications/contracts.desktop"], encoding: .utf8)
        #expect(entry.contains("--config") && entry.contains(folder["host.properties"]), "\(entry)")
    }
}
