import Foundation
import Testing

/// `list`, `show`, `complete` and `abandon` of the built program.
@Suite struct QueueCommandTests {
    private let contracts: ContractsProgram
    private var folder: CallFolder { contracts.folder }

    init() async throws { contracts = try await ContractsProgram() }

    @Test("list and show have the contract, as text and as a document")
    func listed() async throws {
        #expect(try await contracts("list").stdout == "")
        let empty = try await contracts("list", "--json")
        #expect(empty.stdout == #"{"apiVersion":"certprov/v1","items":[],"kind":"ContractList","warnings":[]}"# + "\n")
        let id = try await contracts.open(try folder.write(CallFile.json(id: 4711), to: "a.sellsign"))
        let text = try await contracts("list").stdout
        #expect(
            text.contains(id) && text.contains("inProgress  ") && text.contains("Jean Dupont"), "\(text)")
        let list = try await contracts("list", "--json").json()
        let items = try #require(list["items"] as? [[String: Any]])
        #expect(list["kind"] as? String == "ContractList" && items.count == 1)
        #expect(items[0]["id"] as? String == id && items[0]["state"] as? String == "inProgress")
        #expect(
            items[0]["revision"] is NSNull && items[0]["conflict"] is NSNull
                && (items[0]["approvals"] as? [Any])?.isEmpty == true)
        let customer = try #require(items[0]["customer"] as? [String: Any])
        #expect(customer["number"] as? String == "C1" && customer["mode"] as? Int == 2)
        let pdf = try #require(items[0]["pdf"] as? [String: Any])
        #expect(pdf["size"] as? Int == CallFile.pdf.count && (pdf["sha256"] as? String)?.count == 64)
        for name in [id, String(id.prefix(6)), "4711"] {
            let shown = try await contracts("show", "--json", name).json()
            #expect(
                shown["kind"] as? String == "Contract" && (shown["contract"] as? [String: Any])?["id"] as? String == id)
        }
        let lines = try await contracts("show", id).stdout.split(separator: "\n")
        let path = try #require(lines.first { $0.hasPrefix("  to read: ") }).dropFirst(11)
        #expect(try Array(Data(contentsOf: URL(filePath: String(path)))) == CallFile.pdf)
    }

    @Test("complete fills in what is missing, also from stdin")
    func completed() async throws {
        let file = try folder.write(CallFile.json(lastName: nil), to: "a.sellsign")
        let output = try await contracts("open", file)
        #expect(output.status == 0 && output.stdout.contains("lacks lastname"), "\(output)")
        #expect(output.stdout.contains("contracts complete"))
        let id = try #require(
            try await contracts("list").stdout.split(separator: "\n").last?.split(separator: " ").first)
        let wrong = try await contracts("complete", "--json", String(id), "colour=red")
        #expect(wrong.status == 66, "\(wrong)")
        #expect(try wrong.json(true)["code"] as? String == "notFound" && wrong.stderr.contains("lastname"))
        let document = try await contracts("complete", "--json", String(id), "lastname=O'Neil = Ø").json()
        let contract = try #require(document["contract"] as? [String: Any])
        #expect(contract["state"] as? String == "inProgress" && contract["missing"] as? [String] == [])
        #expect(document["kind"] as? String == "Contract")
        let fields = (contract["customer"] as? [String: Any])?["fields"] as? [[String: String]]
        #expect(fields?.last == ["key": "lastname", "value": "O'Neil = Ø"])
        let again = try await contracts("complete", String(id), "lastname=X")
        #expect(again.status == 75 && again.stderr.contains("inProgress"), "\(again)")
        let second = try await contracts.open(file)
        let filled = try await contracts("complete", second, "-", input: Array("lastname=Müller\r\n".utf8))
        #expect(filled.status == 0 && filled.stdout.contains("lastname: Müller"), "\(filled)")
    }

    @Test("a key with = or - is filled in as the message says; -1 is no number")
    func unusualKeys() async throws {
        let properties =
            #"[{"key": "a", "to_fill_by_user": 1}, {"key": "a=b", "to_fill_by_user": 1}, {"key": "-x y", "to_fill_by_user": 1}]"#
        let json = CallFile.json().replacing(
            #""contract_properties": []"#, with: #""contract_properties": \#(properties)"#)
        let id = try await contracts.open(try folder.write(json, to: "a.sellsign"))
        let shown = try await contracts("show", id)
        #expect(shown.status == 0 && !shown.stdout.contains("Number:"), "\(shown)")
        #expect(try await contracts("show", "--", "-1").status == 66)
        let refused = try await contracts("sign", id)
        #expect(refused.stderr.contains("contracts complete \(id) -- a=… 'a=b'=… '-x y'=…"), "\(refused)")
        for (values, left) in [(["a=b=1=2", "-x y=3"], ["a"]), (["a=b=4"], [])] as [([String], [String])] {
            let output = try await contracts.run(
                [ContractsProgram.path(), "complete", "--json", id, "--"] + values)
            #expect(output.status == 0, "\(output)")
            let contract = try #require(try output.json()["contract"] as? [String: Any])
            #expect(contract["missing"] as? [String] == left && contract["number"] is NSNull, "\(output)")
        }
        let filled = try await contracts("show", id).stdout
        for line in ["Property a: b=4", "Property a=b: 1=2", "Property -x y: 3"] { #expect(filled.contains(line)) }
    }

    @Test("a store that cannot be read is said once, and not for each contract")
    func unreadableStore() async throws {
        for number in ["1", "2", "3"] {
            _ = try await contracts.open(try folder.write(CallFile.json(number: number), to: "a.sellsign"))
        }
        let keys = try await contracts.run(["find", folder["state"], "-name", "store.key"])
        let key = try #require(keys.stdout.split(separator: "\n").first.map(String.init))
        #expect(try await contracts.run(["chmod", "644", key]).status == 0)
        let list = try await contracts("list")
        #expect(list.status != 0 && list.stderr.split(separator: "\n").count == 1, "\(list)")
    }

    @Test("abandon asks at a terminal, needs --yes without one, and tells the calling program")
    func abandoned() async throws {
        let id = try await contracts.open(try folder.write(CallFile.json(), to: "a.sellsign"))
        let silent = try await contracts("abandon", id)
        #expect(silent.status == 77 && silent.stderr.contains("[interactionRequired]"), "\(silent)")
        #expect(silent.stderr.contains("--yes"))
        let no = try await contracts.atTerminal("\"$CONTRACTS\" abandon \(id)", typing: "n\n")
        #expect(no.status == 77 && no.stdout.contains("Abandon this contract? [y/N]"), "\(no)")
        #expect(try folder.opened() == [])
        let yes = try await contracts.atTerminal("\"$CONTRACTS\" abandon \(id)", typing: "y\n")
        #expect(yes.status == 0 && yes.stdout.contains("State: abandoned"), "\(yes)")
        #expect(try folder.opened() == ["myapp://error?x=1&message=The%20contract%20is%20abandoned%20at%20the%20host."])
        let again = try await contracts("abandon", "--yes", "--json", id)
        #expect(again.status == 75 && again.stdout.isEmpty, "\(again)")
        #expect(try again.json(true)["code"] as? String == "operationNotAllowed")
        #expect(try folder.opened().count == 1)
    }

    @Test("two contracts that an id may mean are none; one that is not there is not found")
    func ambiguous() async throws {
        let file = try folder.write(CallFile.json(id: 7), to: "a.sellsign")
        _ = try await contracts.open(file)
        _ = try await contracts.open(file)
        let several = try await contracts("show", "7", "--json")
        #expect(several.status == 65, "\(several)")
        let none = try await contracts("show", "nowhere\u{1b}[31m")
        #expect(none.status == 66 && !none.stderr.contains("\u{1b}"), "\(none)")
    }

    @Test("text from a file cannot act on the terminal")
    func hostileText() async throws {
        let name = #"a\u001b]0;x\u0007\u202e.pdf"#
        let id = try await contracts.open(
            try folder.write(CallFile.json(lastName: #"Du\u001b[31mpont\u202e\u2028"#, name: name), to: "a.sellsign"))
        for arguments in [["list"], ["show", id], ["list", "--json"], ["show", "--json", id]] {
            let output = try await contracts.run([ContractsProgram.path()] + arguments)
            #expect(output.status == 0, "\(output)")
            for character in ["\u{1b}", "\u{7}", "\u{202e}", "\u{2028}"] {
                #expect(!output.stdout.unicodeScalars.contains(Unicode.Scalar(character) ?? " "), "\(arguments)")
            }
        }
        let shown = try #require(try await contracts("show", "--json", id).json()["contract"] as? [String: Any])
        let fields = (shown["customer"] as? [String: Any])?["fields"] as? [[String: String]]
        #expect(fields?.last?["value"] == "Du\u{1b}[31mpont\u{202e}\u{2028}")
    }

    @Test("a damaged document hides no other contract")
    func damaged() async throws {
        let (one, two) = (
            try await contracts.open(try folder.write(CallFile.json(), to: "a.sellsign")),
            try await contracts.open(try folder.write(CallFile.json(number: "C2"), to: "b.sellsign"))
        )
        let directory = folder["state"] + "/certprov/contracts"
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            guard let text = try? String(contentsOfFile: directory + "/" + name, encoding: .utf8),
                text.contains(#""C2""#)
            else { continue }
            try Data("{}".utf8).write(to: URL(filePath: directory + "/" + name))
        }
        let list = try await contracts("list")
        #expect(list.status == 74 && list.stdout.contains(one) && !list.stdout.contains(two), "\(list)")
        #expect(list.stderr.contains(two), "\(list)")
        #expect(try await contracts("show", two).status == 74)
        #expect(list.stderr.contains("contracts resolve \(two) --keep server"), "\(list)")
        let asked = try await contracts("resolve", two, "--keep", "server")
        #expect(asked.status == 77 && asked.stderr.contains("[interactionRequired]"), "\(asked)")
        let removed = try await contracts("resolve", String(two.prefix(8)), "--keep", "server", "--yes")
        #expect(removed.status == 0 && removed.stdout.contains("is removed"), "\(removed)")
        let whole = try await contracts("list")
        #expect(whole.status == 0 && whole.stdout.contains(one) && whole.stderr.isEmpty, "\(whole)")
    }
}
