import CertificateProviding
import Contracts
import FoundationEssentials
import Synchronization
import Testing

@Suite struct ContractFileTests {
    @Test(
        "the files for all implementations come out as their index says",
        .enabled("There is no ../shared/testdata/sellsign beside this checkout.") { SellSignFixture.folder != nil })
    func sharedFolder() async throws {
        let folder = URL(filePath: try #require(SellSignFixture.folder))
        let lines = try String(contentsOf: folder.appending(path: "index.tsv"), encoding: .utf8).split(separator: "\n")
            .dropFirst()
        #expect(lines.count >= 10)
        for line in lines {
            let columns = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            let (file, outcome, member) = (columns[0], columns[1], columns[2])
            let bytes = Array(try Data(contentsOf: folder.appending(path: file)))
            switch await Result(of: { try await ContractFile.read(bytes) }) {
            case .success(let contract):
                #expect((contract.content.missing.isEmpty ? "inProgress" : "incomplete") == outcome, "\(file)")
                if outcome == "incomplete" { #expect(contract.content.missing == ["delivery_date"], "\(file)") }
                let original = try contract.content.originalFile { contract.documents[$0] ?? [] }
                #expect(try original == JSONValue(parsing: bytes), "\(file)")
            case .failure(let error as ProviderError):
                let code: ProviderError.Code = outcome == "refused" ? .operationNotAllowed : .malformedData
                #expect(error.code == code && error.message.hasPrefix("\(member): "), "\(file): \(error.message)")
            case .failure(let error): Issue.record(error)
            }
        }
    }

    @Test("the file of the README has all that a signature needs")
    func fileOfTheReadme() async throws {
        var folder = URL(filePath: #filePath)
        for _ in 0..<4 { folder.deleteLastPathComponent() }
        let readme = try String(contentsOf: folder.appending(path: "README.md"), encoding: .utf8)
        let sample = try #require(
            readme.components(separatedBy: "```json\n").last?.components(separatedBy: "```").first)
        let pdf = Data(SellSignFixture.pdf()).base64EncodedString()
        let file = try await ContractFile.read(Array(sample.replacing("JVBERi0xLjcK…", with: pdf).utf8))
        #expect(file.content.missing.isEmpty)
    }

    @Test("the page's example is read whole, and each member comes out with its value")
    func complete() async throws {
        let json = try SellSignFixture.complete()
        let file = try await ContractFile.read(json.bytes)
        let content = file.content
        #expect(
            content.customerNumber == "my_customer_number" && content.customer.mode == .person
                && content.contractID == nil)
        #expect(
            content.customer.fields.map(\.key) == ["firstname", "lastname", "civility", "companyName", "shoe_size"])
        #expect(content.customer.fields.map(\.value) == ["Jean", "Dupont", "MONSIEUR", "cal", "42.50"])
        #expect(content.pdf.name == "my_contract.pdf" && content.pdf.type == "application/pdf")
        #expect(content.attachments.map(\.name) == ["cal.png"] && content.attachments.map(\.type) == ["image/png"])
        #expect(
            content.documents == [
                DocumentReference(of: SellSignFixture.pdf()), DocumentReference(of: SellSignFixture.png),
            ])
        #expect(
            content.properties.map(\.key) == ["my_internal_contract_id"]
                && content.properties.map(\.value) == ["AF72379987"])
        #expect(content.missing.isEmpty && content.isKeptOnMove)
        #expect(
            content.successCallback == "myapp://success?id=AF72379987"
                && content.errorCallback == "myapp://error?id=AF72379987")
        #expect(Set(file.documents.keys) == Set(content.documents))
        #expect(try content.originalFile { file.documents[$0] ?? [] } == json)
        // What the server reads is the same.
        #expect(try ContractContent(JSONValue(parsing: content.json.bytes)) == content)
        #expect(content.json.bytes.count < 2500)
    }

    @Test("what is not known is kept, and optional members may be null or missing")
    func optional() async throws {
        let small = #"{"customer":{"number":"1","mode":2},"contract":{"contract_definition_id":-1}}"#
        var json = try JSONValue(parsing: Array(small.utf8))
        json[at: "contract.pdf_file_path"] = SellSignFixture.uri("application/pdf", SellSignFixture.pdf())
        for name in [
            "files", "options", "contractors", "contract_properties", "success_callback_url", "error_callback_url",
        ] {
            json[at: name] = .null
        }
        for name in ["contract_id", "pdf_file_name", "message_title", "message_body", "keep_on_move"] {
            json[at: "contract.\(name)"] = .null
        }
        json[at: "customer.fields"] = .null
        let file = try await ContractFile.read(json.bytes)
        #expect(file.content.missing == ["firstname", "lastname"] && file.content.pdf.name == "contract.pdf")
        #expect(file.content.errorCallback == nil && file.content.contractID == nil)
        #expect(try file.content.originalFile { file.documents[$0] ?? [] } == json)
    }

    @Test("members that the format does not have are named by their paths")
    func unknownMembers() async throws {
        let content = try await ContractFile.read(SellSignFixture.complete().bytes).content
        #expect(content.unknownMembers == ["my_own_member", "contractors[0].ratio", "customer.fields[4] (shoe_size)"])
        var json = try SellSignFixture.complete()
        for path in ["colour", "customer.nubmer", "contract.keep_on_mvoe", "contract.a\u{1b}b"] {
            json[at: path] = .bool(true)
        }
        let unknown = try await ContractFile.read(json.bytes).content.unknownMembers
        #expect(
            Set(unknown) == [
                "my_own_member", "colour", "contractors[0].ratio", "customer.nubmer", "customer.fields[4] (shoe_size)",
                "contract.keep_on_mvoe",
                "contract.\(DisplayText.visible("a\u{1b}b"))",
            ])
    }

    private static let base64 = "JVBERi0xLjc="

    /// What is changed, and how the message begins.
    static let spoiledFiles: [(path: String, value: JSONValue?, message: String)] = [
        ("customer", nil, "customer: is missing."), ("customer", .string("x"), "customer: is no object."),
        ("customer.number", nil, "customer.number: is missing."),
        ("customer.number", .null, "customer.number: is missing."),
        ("customer.number", .number("7"), "customer.number: is no string."),
        ("customer.number", .string(""), "customer.number: has not 1 to 255 characters."),
        (
            "customer.number", .string(String(repeating: "é", count: 256)),
            "customer.number: has not 1 to 255 characters."
        ),
        ("customer.mode", nil, "customer.mode: is missing."),
        ("customer.mode", .number("9"), "customer.mode: is none of 1"),
        ("customer.mode", .number("0"), "customer.mode: is none of 1"),
        ("customer.mode", .string("2"), "customer.mode: is none of 1"),
        ("customer.mode", .number("2.0"), "customer.mode: is none of 1"),
        ("customer.mode", .number("1e0"), "customer.mode: is none of 1"),
        ("customer.contractor_id", .string("x"), "customer.contractor_id: is no integer"),
        ("customer.fields", .string("x"), "customer.fields: is no array."),
        ("customer.fields[0]", .null, "customer.fields[0]: is no object."),
        ("customer.fields[1].key", nil, "customer.fields[1].key: is missing."),
        ("customer.fields[1].key", .number("1"), "customer.fields[1].key: is no string."),
        ("customer.fields[1].key", .string(""), "customer.fields[1].key: is empty."),
        (
            "customer.fields[1].key", .string("first_name"),
            "customer.fields[1].key: is the field firstname, which is there already."
        ),
        ("customer.fields[1].value", .array([]), "customer.fields[1].value: is neither a string nor a number."),
        ("contractors", .object([]), "contractors: is no array."),
        ("contractors[0]", .number("1"), "contractors[0]: is no object."),
        ("contract", nil, "contract: is missing."), ("contract", .array([]), "contract: is no object."),
        ("contract.contract_definition_id", nil, "contract.contract_definition_id: is missing."),
        ("contract.contract_definition_id", .string("1"), "contract.contract_definition_id: is no integer"),
        ("contract.contract_definition_id", .number("1e99"), "contract.contract_definition_id: is no integer"),
        ("contract.contract_id", .string("x"), "contract.contract_id: is no integer"),
        ("contract.message_title", .number("1"), "contract.message_title: is no string."),
        ("contract.message_body", .object([]), "contract.message_body: is no string."),
        ("contract.keep_on_move", .string("yes"), "contract.keep_on_move: is none of true, false, 1 and 0."),
        ("contract.pdf_file_name", .number("1"), "contract.pdf_file_name: is no string."),
        ("contract.pdf_file_path", nil, "contract.pdf_file_path: is missing."),
        ("contract.pdf_file_path", .number("1"), "contract.pdf_file_path: is no string."),
        ("contract.pdf_file_path", .string(""), "contract.pdf_file_path: is no data: URI with ;base64"),
        ("contract.pdf_file_path", .string("/etc/passwd"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("file:///etc/passwd"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("https://example.com/a.pdf"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("data:application/pdf,%25PDF"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("data:application/pdf;base64"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("data:a b;base64,\(base64)"), "contract.pdf_file_path: is no data: URI"),
        ("contract.pdf_file_path", .string("data:application/pdf;base64,"), "contract.pdf_file_path: "),
        (
            "contract.pdf_file_path", .string("data:application/pdf;base64,\(base64)\n"),
            "contract.pdf_file_path: is no base64"
        ),
        (
            "contract.pdf_file_path", .string("data:application/pdf;base64,JVBERi0xLjc"),
            "contract.pdf_file_path: is no base64"
        ),
        (
            "contract.pdf_file_path", .string("data:application/pdf;base64,JVBERi0xLjd="),
            "contract.pdf_file_path: is no base64"
        ),
        (
            "contract.pdf_file_path", .string("data:application/pdf;base64,JVBE=i0xLjc="),
            "contract.pdf_file_path: is no base64"
        ),
        (
            "contract.pdf_file_path", .string("data:application/pdf;base64,JVBE_-0xLjc="),
            "contract.pdf_file_path: is no base64"
        ),
        ("contract.pdf_file_path", .string("data:application/pdf;base64,===="), "contract.pdf_file_path: is no base64"),
        ("contract.pdf_file_path", .string("data:application/pdf;base64,\(base64)"), "contract.pdf_file_path: "),
        (
            "contract.pdf_file_path", .string(DocumentReference(of: [1]).placeholder(type: "application/pdf")),
            "contract.pdf_file_path: is no base64"
        ),
        (
            "contract.pdf_file_path", SellSignFixture.uri("image/png", SellSignFixture.pdf()),
            "contract.pdf_file_path: is image/png, and no PDF"
        ),
        (
            "contract.pdf_file_path", SellSignFixture.uri("application/pdf", SellSignFixture.png),
            "contract.pdf_file_path: "
        ),
        (
            "contract.pdf_file_path", SellSignFixture.uri("application/pdf", SellSignFixture.pdf().dropLast(60)),
            "contract.pdf_file_path: "
        ),
        ("contract_properties", .string("x"), "contract_properties: is no array."),
        ("contract_properties[0]", .string("x"), "contract_properties[0]: is no object."),
        ("contract_properties[0].key", nil, "contract_properties[0].key: is missing."),
        ("contract_properties[0].key", .string(""), "contract_properties[0].key: is empty."),
        ("contract_properties[0].value", .object([]), "contract_properties[0].value: is neither"),
        (
            "contract_properties[0].to_fill_by_user", .number("2"),
            "contract_properties[0].to_fill_by_user: is none of true"
        ),
        (
            "contract_properties[9]", .object([.init("key", .string("my_internal_contract_id"))]),
            "contract_properties[1].key: is my_internal_contract_id, which is there already."
        ),
        ("files", .object([]), "files: is no array."), ("files[0]", .string("x"), "files[0]: is no object."),
        ("files[0].path", nil, "files[0].path: is missing."),
        ("files[0].path", .string("../../x"), "files[0].path: is no data: URI"),
        ("files[0].path", .bool(true), "files[0].path: is no string."),
        ("files[0].name", .array([]), "files[0].name: is no string."),
        ("files[0].type", .number("1"), "files[0].type: is no string."),
        ("files[0].type", .string("png"), "files[0].type: is no media type"),
        ("files[0].type", .string("image/jpeg"), "files[0].type: is image/jpeg, and files[0].path says image/png."),
        ("files[0].path", SellSignFixture.uri("image/png", [1, 2, 3]), "files[0].path: the content is not image/png"),
        ("options", .string("x"), "options: is no array."),
        ("success_callback_url", .number("1"), "success_callback_url: is no string."),
        ("success_callback_url", .string("no url"), "success_callback_url: is no URL"),
        ("error_callback_url", .string("myapp://x\u{1b}"), "error_callback_url: is no URL"),
        (
            "error_callback_url", .string("myapp:" + String(repeating: "x", count: 8190)),
            "error_callback_url: has more than 8192 bytes."
        ),
    ]

    @Test(
        "a spoiled file is refused, and the message begins with the member's path",
        arguments: Array(spoiledFiles.indices))
    func spoiled(index: Int) async throws {
        let (path, value, message) = Self.spoiledFiles[index]
        let bytes = try SellSignFixture.file([path: value])
        let error = await failure { try await ContractFile.read(bytes) }
        #expect(error?.code == .malformedData, "\(path): \(error?.description ?? "accepted")")
        #expect(error?.message.hasPrefix(message) == true, "\(path): \(error?.message ?? "accepted")")
        #expect(error?.message.utf8.count ?? 0 < 500)
    }

    @Test("what is no object is refused", arguments: ["", "[]", "null", "7", "\"x\"", "{", "\u{0}"])
    func noObject(text: String) async {
        #expect(await failure { try await ContractFile.read(Array(text.utf8)) }?.code == .malformedData)
    }

    @Test("members that are there twice are named, at every level")
    func duplicates() async throws {
        let text = String(decoding: try SellSignFixture.complete().bytes, as: UTF8.self)
        for (member, path) in [
            (#""mode":2"#, "customer.mode"), (#""options":[]"#, "options"), (#""name":"cal.png""#, "files[0].name"),
            (#""key":"civility""#, "customer.fields[2].key"), (#""kept":["#, "my_own_member.kept"),
        ] {
            let twice = text.replacing(
                member, with: member.hasSuffix("[") ? "\"kept\":1,\(member)" : "\(member),\(member)")
            let error = await failure { try await ContractFile.read(Array(twice.utf8)) }
            #expect(error?.message.hasPrefix("\(path): is there twice") == true, "\(error?.message ?? "accepted")")
            #expect(ContractFile.callbacks(of: Array(twice.utf8)).error == "myapp://error?id=AF72379987")
        }
    }

    @Test("the callbacks of a file that is refused are told, unless they are what is wrong")
    func callbacks() async throws {
        func error(_ changes: [String: JSONValue?]) throws -> String? {
            ContractFile.callbacks(of: try SellSignFixture.file(changes)).error
        }
        #expect(try error(["customer": nil as JSONValue?]) == "myapp://error?id=AF72379987")
        #expect(try error(["error_callback_url": nil as JSONValue?]) == nil)
        #expect(try error(["error_callback_url": .number("1")]) == nil)
        #expect(try error(["error_callback_url": .string("x")]) == nil)
        #expect(try error(["error_callback_url": .string("")]) == nil)
        let deep = String(repeating: "[", count: 200) + String(repeating: "]", count: 200)
        let text = #"{"x":\#(deep),"error_callback_url":"a:b","error_callback_url":"a:c","success_callback_url":"a:d"}"#
        #expect(ContractFile.callbacks(of: Array(text.utf8)) == (success: "a:d", error: nil))
        #expect(ContractFile.callbacks(of: Array("{".utf8)) == (success: nil, error: nil))
        #expect(
            ContractFile.callbacks(of: [UInt8](repeating: UInt8(ascii: "["), count: 1 << 20)) == (
                success: nil, error: nil
            ))
    }

    @Test("a template is rendered by a program, and refused without one")
    func template() async throws {
        let changes: [String: JSONValue?] = [
            "contract.pdf_file_path": nil as JSONValue?,
            "options": .array([.object([.init("key", .string("bicycles")), .init("value", .string("1"))])]),
        ]
        let bytes = try SellSignFixture.file(changes)
        let refusal = await failure { try await ContractFile.read(bytes) }
        #expect(refusal?.code == .operationNotAllowed && refusal?.message.hasPrefix("options: ") == true)

        let given = Mutex<[UInt8]>([])
        let file = try await ContractFile.read(bytes) { json throws(ProviderError) in
            given.withLock { $0 = json }
            return SellSignFixture.pdf("rendered")
        }
        #expect(try JSONValue(parsing: given.withLock { $0 }) == JSONValue(parsing: bytes))
        #expect(file.documents[file.content.pdf.document] == SellSignFixture.pdf("rendered"))
        #expect(file.documents.count == 2)
        var expected = try JSONValue(parsing: bytes)
        expected[at: "contract.pdf_file_path"] = SellSignFixture.uri("application/pdf", SellSignFixture.pdf("rendered"))
        #expect(try file.content.originalFile { file.documents[$0] ?? [] } == expected)

        let spoiled = try SellSignFixture.file(changes.merging(["customer.mode": .number("9")]) { $1 })
        let first = await failure {
            try await ContractFile.read(spoiled) { _ throws(ProviderError) in
                Issue.record("the program was run for a spoiled file")
                return []
            }
        }
        #expect(first?.message.hasPrefix("customer.mode: ") == true)
        let noPDF = await failure { try await ContractFile.read(bytes) { _ throws(ProviderError) in [1] } }
        #expect(
            noPDF?.code == .malformedData && noPDF?.message.hasPrefix("options: ") == true, "\(noPDF?.message ?? "")")
        let large = await failure {
            try await ContractFile.read(bytes) { _ throws(ProviderError) in
                [UInt8](repeating: 0, count: 50_000_001)
            }
        }
        #expect(large?.message.hasPrefix("options: ") == true)
    }

    @Test(
        "a file name is its last component, without what cannot be seen",
        arguments: [
            ("../../x", "x"), ("/etc/passwd", "passwd"), ("C:\\Users\\me\\c.pdf", "c.pdf"),
            ("a\u{0}b\n\u{1b}[2J.pdf", "ab[2J.pdf"),
            ("fdp.\u{202e}exe.pdf", "fdp.exe.pdf"),
            ("\u{202a}\u{202b}\u{202c}\u{202d}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}a.pdf", "a.pdf"),
            ("\u{2028}a\u{2029}.pdf\u{feff}\u{200b}", "a.pdf"), ("..", "contract.pdf"), (".", "contract.pdf"),
            ("", "contract.pdf"),
            ("a/", "contract.pdf"), ("\u{202e}", "contract.pdf"), ("  a .pdf  ", "a .pdf"),
            ("..\u{200b}", "contract.pdf"), ("/\\/", "contract.pdf"),
            ("\u{301}a.pdf", "a.pdf"), ("Vertrag für Zoë 😀.pdf", "Vertrag für Zoë 😀.pdf"),
            ("a\u{7f}\u{85}\u{e0041}b", "ab"), ("..a", "..a"),
        ])
    func names(name: String, expected: String) async throws {
        let content = try await SellSignFixture.content([
            "contract.pdf_file_name": .string(name), "files[0].name": .string(name),
        ])
        #expect(content.pdf.name == expected)
        #expect(content.attachments[0].name == (expected == "contract.pdf" ? "attachment-1" : expected))
        // What came goes on.
        #expect(content.json[at: "files[0].name"] == .string(name))
    }

    @Test("a name of 10,000 characters is cut before its extension")
    func longName() async throws {
        for character in ["a", "é", "😀", "e\u{301}"] {
            let name = String(repeating: character, count: 10_000)
            let content = try await SellSignFixture.content([
                "contract.pdf_file_name": .string(name + ".pdf"), "files[0].name": .string(name),
            ])
            #expect(
                content.pdf.name.hasSuffix(".pdf") && content.pdf.name.utf8.count <= 255
                    && content.pdf.name.utf8.count > 240)
            #expect(content.attachments[0].name.utf8.count <= 255)
        }
        let marks = try await SellSignFixture.content([
            "contract.pdf_file_name": .string("a" + String(repeating: "\u{301}", count: 10_000))
        ])
        #expect(marks.pdf.name.utf8.count <= 255)
    }

    @Test(
        "an attachment is what its type says, where that can be told",
        arguments: [
            ("image/png", SellSignFixture.png, true), ("image/png", [0x89, 0x50], false),
            ("image/jpeg", [0xff, 0xd8, 0xff, 0xe0], true),
            ("image/jpg", [0xff, 0xd8, 0xff, 0xdb], true), ("image/jpeg", SellSignFixture.png, false),
            ("image/gif", Array("GIF89a".utf8), true),
            ("image/gif", Array("GIF88a".utf8), false), ("image/tiff", [0x49, 0x49, 0x2a, 0, 1], true),
            ("image/tiff", [0x4d, 0x4d, 0, 0x2a], true),
            ("image/tiff", [0x49, 0x49, 0x2a], false), ("application/pdf", Array("%PDF-1.4".utf8), true),
            ("application/pdf", Array("%!PS".utf8), false),
            ("text/plain", Array("für\n".utf8), true), ("text/plain", [], true),
            ("text/plain", [0x66, 0xfc, 0x72], false), ("text/plain", [0x61, 0], false),
            ("text/plain;charset=iso-8859-1", [0x66, 0xfc, 0x72], true),
            ("text/plain;charset=us-ascii", Array("für".utf8), false),
            ("text/plain; charset=UTF-8", Array("für".utf8), true), ("TEXT/PLAIN", [0xff], false),
            ("text/plain;charset=\"utf-8\"", [0xff], false), ("text/csv", [0x66, 0xfc], true),
            ("text/csv;charset=utf-8", [0x66, 0xfc], false),
            ("text/plain;charset=utf-16", [0x61, 0], true),
            ("application/zip", [0x50, 0x4b, 3, 4], true), ("application/zip", [0x7f, 0x45, 0x4c, 0x46], false),
            ("image/webp", Array("RIFF....WEBPVP8 ".utf8), true), ("image/webp", Array("RIFF....WAVE".utf8), false),
            ("application/octet-stream", [0, 1, 2], true), ("application/x-unknown", [0, 1, 2], true),
        ] as [(String, [UInt8], Bool)])
    func types(type: String, content: [UInt8], isAccepted: Bool) async throws {
        let file = try SellSignFixture.file([
            "files[0].type": .string(type), "files[0].path": SellSignFixture.uri("", content),
        ])
        let error = await failure { try await ContractFile.read(file) }
        #expect((error == nil) == isAccepted, "\(error?.message ?? "accepted")")
        if !isAccepted { #expect(error?.message.hasPrefix("files[0].path: the content is not ") == true) }
    }

    @Test("documents of 50 MB together are taken, and one byte more is not")
    func documentSizes() async throws {
        func file(_ sizes: [Int]) throws -> [UInt8] {
            var json = try SellSignFixture.complete(pdf: SellSignFixture.pdf(size: sizes[0]))
            json[at: "files"] = .array(
                sizes.dropFirst().enumerated().map { index, size in
                    let content = [UInt8](repeating: UInt8(index), count: size)
                    return .object([
                        .init("path", SellSignFixture.uri("application/octet-stream", content)),
                        .init("name", .string("\(index)")),
                        .init("type", .string("application/octet-stream")),
                    ])
                })
            return json.bytes
        }
        let accepted = try await ContractFile.read(file([20_000_000, 10_000_000, 10_000_000, 10_000_000]))
        #expect(accepted.documents.values.reduce(0) { $0 + $1.count } == 50_000_000 && accepted.documents.count == 4)
        let error = await failure {
            try await ContractFile.read(file([20_000_000, 10_000_000, 10_000_000, 10_000_001]))
        }
        #expect(error?.code == .malformedData)
        #expect(
            error?.message
                == "files[2].path: with the documents before it has 50000001 bytes; at most 50000000 are taken.")
        let pdf = await failure { try await ContractFile.read(file([50_000_001])) }
        #expect(pdf?.message.hasPrefix("contract.pdf_file_path: with the documents") == true)
    }

    @Test("a file of more than 80 MiB is refused")
    func fileSize() async throws {
        let bytes = try SellSignFixture.file([:])
        _ = try await ContractFile.read(bytes + [UInt8](repeating: 0x20, count: (80 << 20) - bytes.count))
        #expect(
            await failure {
                try await ContractFile.read(bytes + [UInt8](repeating: 0x20, count: (80 << 20) - bytes.count + 1))
            }?.code == .malformedData)
    }

    @Test("at most 1000 attachments are taken")
    func attachments() async throws {
        let entry = JSONValue.object([.init("path", .string("data:;base64,"))])
        let file = try SellSignFixture.file(["files": .array([JSONValue](repeating: entry, count: 1000))])
        #expect(try await ContractFile.read(file).content.attachments.last?.name == "attachment-1000")
        let error = await failure {
            try await ContractFile.read(
                SellSignFixture.file(["files": .array([JSONValue](repeating: entry, count: 1001))]))
        }
        #expect(error?.message.hasPrefix("files[1000]: is one attachment too many") == true)
    }
}
