import Foundation
import Testing

/// `open` at a terminal: a contract goes on to the question whether it is signed.
@Suite struct OpenAtTerminalTests {
    private let contracts: ContractsProgram
    private var folder: CallFolder { contracts.folder }

    init() async throws {
        let made = try await ContractsProgram()
        let settings = try String(contentsOfFile: made.folder["host.properties"], encoding: .utf8)
        try made.folder.write(settings + (try await made.identity("Alice")), to: "host.properties")
        contracts = made
    }

    private func state() async throws -> [String] {
        let items = try #require(try await contracts("list", "--json").json()["items"] as? [[String: Any]])
        return items.compactMap { $0["state"] as? String }
    }

    @Test("the person approves: it is signed, and the calling program is told")
    func approved() async throws {
        let file = try folder.write(CallFile.json(), to: "a.sellsign")
        let output = try await contracts.atTerminal("\"$CONTRACTS\" open \(file)", typing: "y\n")
        #expect(output.status == 0 && output.stdout.contains("Sign this contract? [y/N]"), "\(output)")
        #expect(output.stdout.contains("Jean") && output.stdout.contains("SHA-256"), "\(output)")
        #expect(try await state() == ["toValidate"])
        // There is no server that could validate it.
        let list = try await contracts("list").stdout
        #expect(list.contains("  signed  ") && !list.contains("toValidate") && !list.contains("not sent"), "\(list)")
        #expect(try folder.opened() == ["myapp://done?x=1"])
    }

    @Test("the person declines: it stays queued, and no outcome is told")
    func declined() async throws {
        let file = try folder.write(CallFile.json(), to: "a.sellsign")
        let output = try await contracts.atTerminal("\"$CONTRACTS\" open \(file)", typing: "n\n")
        #expect(output.status == 77 && output.stdout.contains("[userCancelled]"), "\(output)")
        #expect(try await state() == ["inProgress"])
        #expect(try folder.opened() == [])
    }

    @Test(
        "each signatory signs by name; one who declines ends the contract with the reason, and the calling program is told"
    )
    func signatories() async throws {
        let people = ["Marie", "Paul"].map { name in
            #"{"number": "\#(name)-1", "fields": [{"key": "firstname", "value": "\#(name)"}, {"key": "lastname", "value": "Curie"}]}"#
        }.joined(separator: ", ")
        let json = CallFile.json().replacing(#""contractors": []"#, with: #""contractors": [\#(people)]"#)
        let file = try folder.write(json, to: "a.sellsign")
        let id = try await contracts.open(file)
        // Whoever is meant is asked for by name.
        let first = try await contracts.atTerminal("\"$CONTRACTS\" sign \(id)", typing: "2\ny\n")
        #expect(first.status == 0 && first.stdout.contains("Who approves now?"), "\(first)")
        #expect(first.stdout.contains("signatory 2 of 3") && first.stdout.contains("signed by 1 of 3"), "\(first)")
        let twice = try await contracts("sign", id, "--signatory", "Marie Curie")
        #expect(twice.status == 66 && twice.stderr.contains("Paul Curie (Paul-1)"), "\(twice)")
        let own = try await contracts.atTerminal(
            "\"$CONTRACTS\" sign \(id) --signatory 'jean dupont' --identity \(folder["host.properties"])", typing: "y\n"
        )
        #expect(own.status == 0 && own.stdout.contains("by an identity of the person's own"), "\(own)")
        #expect(try await state() == ["inProgress"])
        #expect(try folder.opened() == [])

        let other = try await contracts.open(file)
        let last = try await contracts.atTerminal("\"$CONTRACTS\" sign \(id) --signatory Paul-1", typing: "y\n")
        #expect(last.status == 0, "\(last)")
        #expect(try await state() == ["toValidate", "inProgress"])
        #expect(try folder.opened() == ["myapp://done?x=1"])
        #expect(try await contracts("abandon", other, "--signatory", "Paul-1", "--yes").status == 64)
        let declined = try await contracts(
            "abandon", other, "--signatory", "Paul-1", "--reason", "Too dear", "--yes", "--json")
        #expect(declined.status == 0, "\(declined)")
        let contract = try #require(try declined.json()["contract"] as? [String: Any])
        let abandonment = try #require(contract["abandonment"] as? [String: Any])
        #expect(abandonment["signatory"] as? Int == 2 && abandonment["reason"] as? String == "Too dear")
        #expect(try folder.opened().last?.hasSuffix("Too%20dear") == true)
    }

    @Test("one that lacks something is queued without a question")
    func incomplete() async throws {
        let file = try folder.write(CallFile.json(lastName: nil), to: "a.sellsign")
        let output = try await contracts.atTerminal("\"$CONTRACTS\" open \(file)")
        #expect(output.status == 0 && output.stdout.contains("lacks lastname"), "\(output)")
        #expect(!output.stdout.contains("[y/N]"))
    }

    @Test("with stderr in a file there is nobody who sees the question, so that it is queued")
    func unwatched() async throws {
        let file = try folder.write(CallFile.json(), to: "a.sellsign")
        let output = try await contracts.atTerminal("\"$CONTRACTS\" open \(file) 2>\(folder["errors"])")
        #expect(output.status == 0 && output.stdout.contains("is queued"), "\(output)")
        #expect(try await state() == ["inProgress"])
    }

    @Test(
        "a terminal that is closed at the question whether to synchronise keeps the signature, and the next run tells of it"
    )
    func closed() async throws {
        let settings = try String(contentsOfFile: folder["host.properties"], encoding: .utf8)
        try folder.write(settings + "Contracts.url = https://localhost:9\n", to: "host.properties")
        let file = try folder.write(CallFile.json(), to: "a.sellsign")
        let screen = folder["screen"]
        let command = "script -qefc '\"$CONTRACTS\" open \(file)' \(screen)"
        let isAsked =
            "until grep -q 'Sign this contract' \(screen) && tail -c 2 \(screen) | grep -q '] '; do sleep 0.02; done"
        let folder = folder
        try await contracts.killed(
            running: ["sh", "-c", ": >\(screen); { \(isAsked); echo y; sleep 600; } | \(command)"]
        ) {
            ((try? String(contentsOfFile: screen, encoding: .utf8)) ?? "").contains("Synchronise now?")
        }
        try await until("the program has ended") {
            try FileManager.default.contentsOfDirectory(atPath: "/proc").allSatisfy { name in
                let words = (try? String(contentsOfFile: "/proc/\(name)/cmdline", encoding: .utf8)) ?? ""
                return !words.contains("contracts\u{0}open\u{0}\(file)")
            }
        }
        #expect(try folder.opened() == [])
        #expect(try await state() == ["toValidate"])
        #expect(try await contracts("abandon", "nothing").status == 66)
        #expect(try folder.opened() == ["myapp://done?x=1"])
    }
}
