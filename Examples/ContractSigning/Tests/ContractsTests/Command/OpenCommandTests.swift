import Foundation
import Testing

/// `open` of the built program: what programs beside this one call.
@Suite struct OpenCommandTests {
    private let contracts: ContractsProgram
    private var folder: CallFolder { contracts.folder }

    init() async throws { contracts = try await ContractsProgram() }

    @Test("a file is queued without a terminal, by its path, as a file: URL and from stdin")
    func ways() async throws {
        let file = try folder.write(CallFile.json(), to: "ein Vertrag ü%.sellsign")
        let encoded = try #require(file.addingPercentEncoding(withAllowedCharacters: .urlPathAllowed))
        for argument in [file, "file://\(encoded)", "FILE://localhost\(encoded)", "file:\(encoded)"] {
            let output = try await contracts("open", argument)
            #expect(
                output.status == 0 && output.stdout.contains("is queued. Sign it at a terminal with: contracts sign "),
                "\(output)")
        }
        let output = try await contracts("open", "-", "--json", input: Array(CallFile.json().utf8))
        #expect(try output.json()["kind"] as? String == "Contract", "\(output)")
        #expect(output.stderr.isEmpty, "\(output)")
        #expect(try await contracts("list").stdout.split(separator: "\n").count == 6)
        let other = try folder.write(CallFile.json(more: #""succes_callback_url": "myapp://done", "#), to: "b.sellsign")
        let named = try await contracts("open", other)
        #expect(named.status == 0 && named.stderr.contains("succes_callback_url"), "\(named)")
        #expect(try folder.opened() == [], "no outcome yet")
    }

    @Test(
        "a file that is wrong is not kept, and its caller is told",
        arguments: [
            ("customer.mode", #"{"customer": {"number": "1", "mode": 9, "fields": []}, "#, 65),
            ("options", "", 75),
        ])
    func wrongFiles(member: String, start: String, status: Int32) async throws {
        let text =
            start.isEmpty
            ? #"{"customer": {"number": "1", "mode": 2, "fields": []}, "contract": {"contract_definition_id": 1}, "options": [{"key": "template"}], "#
            : start
        let file = try folder.write(text + #""error_callback_url": "myapp://error"}"#, to: "a.sellsign")
        let output = try await contracts("open", file, "--json")
        #expect(output.status == status && output.stdout.isEmpty, "\(output)")
        let message = try #require(try output.json(true)["message"] as? String)
        #expect(message.hasPrefix(member), "\(message)")
        let opened = try folder.opened()
        #expect(opened.count == 1)
        #expect(opened.first?.removingPercentEncoding == "myapp://error?message=\(message)")
        #expect(try await contracts("list").stdout.isEmpty)
    }

    @Test("warnings are on stderr before an error, with --json too; a refusal names no step that is none here")
    func warningsBeforeError() async throws {
        let json = CallFile.json(more: #""error_callback_url": "other://error", "#, callbacks: false)
        let pdf = String(decoding: CallFile.pdf, as: UTF8.self).replacing(
            "/Kids[3 0 R]/Count 1", with: "/Kids[     ]/Count 0")
        let file = json.replacing(
            Data(CallFile.pdf).base64EncodedString(), with: Data(pdf.utf8).base64EncodedString())
        let output = try await contracts("open", "--json", try folder.write(file, to: "a.sellsign"))
        #expect(output.status == 65 && output.stderr.contains("contracts: "), "\(output)")
        #expect(output.stderr.contains("other"), "\(output)")
        let message = try #require(try output.json(true)["message"] as? String)
        #expect(message.contains("has no page") && !message.contains("sign cms"), "\(message)")
    }

    @Test("what is no file of a contract is refused, without a callback and without a trace")
    func noContract() async throws {
        for bytes in [[], Array("{".utf8), [0xff, 0xfe], Array("[1]".utf8), Array("null".utf8)] as [[UInt8]] {
            let output = try await contracts("open", try folder.write(bytes, to: "a.sellsign"))
            #expect(output.status == 65 && output.stderr.contains("[malformedData]"), "\(output)")
        }
        for (argument, status) in [
            (folder["none.sellsign"], 66), (folder.path, 74), ("https://example.com/a.sellsign", 65),
            ("file://elsewhere/a", 65), ("file:///a%zz", 65), ("file:///a%00", 65), ("", 64),
        ] as [(String, Int32)] {
            let output = try await contracts("open", argument)
            #expect(output.status == status && output.stdout.isEmpty, "\(argument): \(output)")
        }
        #expect(try folder.opened() == [])
        #expect(try await contracts("list").stdout.isEmpty)
    }

    @Test(
        "a callback of another scheme is said, and not opened",
        arguments: ["file:///etc/passwd", "https://example.com"])
    func otherScheme(url: String) async throws {
        let file = try folder.write(
            #"{"customer": {"number": "1", "mode": 9}, "error_callback_url": "\#(url)"}"#, to: "a.sellsign")
        let output = try await contracts("open", file)
        #expect(output.status == 65 && output.stderr.contains("Contracts.callback-schemes"), "\(output)")
        #expect(try folder.opened() == [])
    }

    @Test("the renderer of the settings makes the PDF of a template")
    func renderer() async throws {
        let template =
            #"{"customer": {"number": "1", "mode": 2, "fields": [{"key": "firstname", "value": "A"}, {"key": "lastname", "value": "B"}]}, "#
            + #""contract": {"contract_definition_id": 1, "contract_id": -1}, "options": [{"key": "template", "value": "x"}]}"#
        let pdf = try folder.write(CallFile.pdf, to: "made.pdf")
        let program = try await folder.program("render", "cat >\"\(folder["got"])\"\ncat \"\(pdf)\"\n")
        let with = try await ContractsProgram("Contracts.renderer = \(program)")
        let file = try folder.write(template, to: "a.sellsign")
        let output = try await with("open", file)
        #expect(output.status == 0 && output.stdout.contains("is queued"), "\(output)")
        #expect(try String(contentsOfFile: folder["got"], encoding: .utf8).contains("template"))
        let failing = try await folder.program("failing", "cat >/dev/null; exit 1\n")
        let broken = try await ContractsProgram("Contracts.renderer = \(failing)")
        #expect(try await broken("open", file).status == 69)
    }

    @Test("a call that fails tells its caller, and its token is nowhere", arguments: [false, true])
    func token(isJSON: Bool) async throws {
        let token = "s3cret!|+/=7351"
        let url =
            "sellsign://auth?token=\(token)&success_callback_url=myapp://done&error_callback_url=myapp://error%3Fa=1"
        for arguments in [["open", url], ["open", "-v", url]] {
            let output = try await contracts.run(
                [ContractsProgram.path()] + arguments + (isJSON ? ["--json"] : []))
            #expect(output.status != 0 && !output.description.contains("7351"), "\(output)")
        }
        let opened = try folder.opened()
        #expect(opened.count == 2 && opened.allSatisfy { $0.hasPrefix("myapp://error?a=1&message=") }, "\(opened)")
        #expect(!"\(opened)".contains("7351"))
        let fromStdin = try await contracts("open", "-", input: Array((url + "\n").utf8))
        #expect(fromStdin.status != 0 && !fromStdin.description.contains("7351"), "\(fromStdin)")
        #expect(try folder.opened().count == 3)
        // Nor on the disk.
        let found = try await contracts.run(["grep", "-r", "-l", "7351", folder["state"], folder["home"]])
        #expect(found.status == 1, "\(found)")
    }

    @Test("a mistake of the command line shows no token")
    func mistakes() async throws {
        let url = "sellsign://auth?token=s3cret'\"7351%20"
        for arguments in [
            [url], ["open", url, url], ["open", "--url=\(url)", "x"], ["show", "a", url], ["open", url, "--config"],
            ["list", "--config", url], ["open", "--config", url, url], ["open", "\(url)&x=1"],
            ["open", "\(url)&token=1"],
            ["complete", "a", url], ["pair", "--token-source", url], ["-\(url)"], ["open", url.uppercased(), "b"],
        ] {
            for flag in [[], ["--json"]] {
                let output = try await contracts.run([ContractsProgram.path()] + arguments + flag)
                #expect(output.status != 0 && !output.description.contains("7351"), "\(arguments): \(output)")
            }
        }
    }

    @Test("a call that is refused is none: it has no callback")
    func refused() async throws {
        let output = try await contracts("open", "sellsign://sync/full?file=x&error_callback_url=myapp://error")
        #expect(output.status == 65 && output.stderr.contains("The URL of the call is refused"), "\(output)")
        #expect(try folder.opened() == [])
    }

    @Test("the opener is asked once, and again only after a kill while it ran")
    func killed() async throws {
        let file = try folder.write(#"{"customer": 1, "error_callback_url": "myapp://error"}"#, to: "a.sellsign")
        // It waits for its opener for some seconds only: the opener kills it.
        let killer = try await folder.program("killer", "kill -9 $PPID\nexec \"\(folder["opener"])\" \"$@\"\n")
        let settings = try folder.write(
            "Contracts.callback-schemes = myapp\nContracts.url-opener = \(killer)\n", to: "killed.properties")
        let killed = try await contracts("open", "--config", settings, file)
        #expect(killed.status == -9, "\(killed)")
        try await until("the callback is opened") { try !folder.opened().isEmpty }
        // Reading alone opens nothing.
        #expect(try await contracts("list").status == 0)
        #expect(try folder.opened().count == 1)
        #expect(try await contracts("abandon", "nothing").status == 66)
        #expect(try folder.opened().count == 2)
        #expect(try await contracts("abandon", "nothing").status == 66)
        let opened = try folder.opened()
        #expect(opened.count == 2 && opened[0] == opened[1] && opened[0].hasPrefix("myapp://error?message="))
    }
}
