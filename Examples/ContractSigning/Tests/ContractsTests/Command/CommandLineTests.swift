import Foundation
import Testing

/// The command line of the built program: mistakes, exit statuses and documents.
@Suite struct CommandLineTests {
    private let contracts: ContractsProgram

    init() async throws { contracts = try await ContractsProgram() }

    @Test(
        "a mistake of the command line has the status 64, and a document with --json",
        arguments: [
            ["nothing"], ["list", "extra"], ["show"], ["show", ""], ["show", "a", "b"], ["complete"],
            ["complete", "a"],
            ["complete", "a", "b"], ["complete", "a", "=b"], ["complete", "a", "b=1", "b=2"],
            ["complete", "a", "-", "b=1"],
            ["abandon"], ["abandon", "a", "b"], ["open"], ["open", ""], ["open", "a", "b"], ["install-handler", "x"],
            ["list", "--config", ""], ["list", "--config", "a", "--config", "b"], ["list", "--unknown"],
            ["resolve", "a", "--keep", "mine", "--keep", "server"],
        ])
    func mistakes(arguments: [String]) async throws {
        let output = try await contracts.run([ContractsProgram.path()] + arguments)
        #expect(output.status == 64 && output.stdout.isEmpty && !output.stderr.isEmpty, "\(output)")
        let document = try await contracts.run([ContractsProgram.path()] + arguments + ["--json"])
        #expect(document.status == 64 && document.stdout.isEmpty, "\(document)")
        #expect(try document.json(true)["kind"] as? String == "Error", "\(document)")
        #expect(try document.json(true)["code"] as? String == "usage", "\(document)")
    }

    @Test("help and version are results")
    func help() async throws {
        for arguments in [["--help"], ["--version"], ["help", "open"], ["list", "--help"]] {
            let output = try await contracts.run([ContractsProgram.path()] + arguments)
            #expect(output.status == 0 && !output.stdout.isEmpty && output.stderr.isEmpty, "\(output)")
        }
        let full = try await contracts.run(["sh", "-c", "\(ContractsProgram.path()) --help >/dev/full"])
        #expect(full.status == 73, "\(full)")
    }

    @Test("the token of a call in the wrong place is in no message", arguments: ["\t", "\u{1b}[31m", "'\u{202e}", "x"])
    func token(end: String) async throws {
        let call = "sellsign://auth?token=SECRET\(end)"
        for arguments in [
            ["show", call], ["sign", call], ["complete", call, "a=b"], ["abandon", call], ["resolve", call],
            ["list", "--config", call], ["list", "--config=" + call], ["resolve", "a", "--keep", call],
        ] {
            for options in [[], ["--json"]] {
                let output = try await contracts.run([ContractsProgram.path()] + arguments + options)
                #expect(output.status != 0 && !output.description.contains("SECRET"), "\(arguments): \(output)")
            }
        }
    }

    @Test("an argument that is not UTF-8 is refused")
    func bytes() async throws {
        let output = try await contracts.run(["sh", "-c", "\(ContractsProgram.path()) open \"$(printf '\\377')\""])
        #expect(output.status == 64 && output.stderr.contains("UTF-8"), "\(output)")
    }

    @Test(
        "the property file: missing, unknown keys, schemes that cannot be",
        arguments: ["list", "show", "open", "abandon", "complete"])
    func configuration(command: String) async throws {
        let rest: [String: [String]] = [
            "show": ["a"], "open": ["/dev/null"], "abandon": ["--yes", "a"], "complete": ["a", "b=c"],
        ]
        let words = [ContractsProgram.path(), command] + (rest[command] ?? [])
        let folder = contracts.folder
        let missing = try await contracts.run(words + ["--json", "--config", folder["none.properties"]])
        #expect(missing.status == 78, "\(missing)")
        #expect(try missing.json(true)["code"] as? String == "configurationMissing")
        let nowhere = try await contracts.run(["CERTPROV_CONFIG="] + words)
        #expect(nowhere.status == 78 && nowhere.stderr.contains("--config"), "\(nowhere)")
        for line in [
            "Contracts.unknown = 1", "Contracts.callback-schemes = myapp, https", "Contracts.callback-schemes = file",
            "Contracts.callback-schemes = javascript", "Contracts.callback-schemes = data",
            "Contracts.callback-schemes = http",
            "Contracts.url-opener = bin/opener", "Contracts.synchronise = perhaps",
        ] {
            let file = try folder.write(line + "\n", to: "wrong.properties")
            let output = try await contracts.run(words + ["--config", file])
            #expect(output.status == 78 && output.stdout.isEmpty, "\(line): \(output)")
            #expect(
                output.stderr.contains("wrong.properties") && output.stderr.contains("[configurationInvalid]"),
                "\(output)")
        }
    }

    @Test("a full disk for the result is an error; a closed stream is not the queue's")
    func streams() async throws {
        let path = ContractsProgram.path()
        _ = try await contracts.open(try contracts.folder.write(CallFile.json(), to: "a.sellsign"))
        let full = try await contracts.run(["sh", "-c", "\(path) list >/dev/full"])
        #expect(full.status == 73 && full.stderr.contains("[storeWriteFailed]"), "\(full)")
        let closed = try await contracts.run(["sh", "-c", "\(path) list >&- 2>&-"])
        #expect(closed.status == 73, "\(closed)")
        #expect(try await contracts("list").status == 0)
    }
}
