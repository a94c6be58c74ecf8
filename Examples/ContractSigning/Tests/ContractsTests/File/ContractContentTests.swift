import CertificateProviding
@testable import Contracts
import Testing

@Suite struct ContractContentTests {
    private static func fields(_ fields: KeyValuePairs<String, JSONValue?>) -> JSONValue {
        .array(
            fields.map { key, value in
                .object([.init("key", .string(key))] + (value.map { [.init("value", $0)] } ?? []))
            })
    }

    private static let names: KeyValuePairs<String, JSONValue?> = ["firstname": .string("A"), "lastname": .string("B")]

    @Test(
        "what is missing depends on the mode, and fields count in either spelling",
        arguments: [
            (2, fields(names), []), (1, fields(names), ["cellPhone"]), (3, fields(names), ["cellPhone", "email"]),
            (2, fields([:]), ["firstname", "lastname"]),
            (2, fields(["firstname": .string(" \t\n"), "lastname": nil]), ["firstname", "lastname"]),
            (2, fields(["firstname": .null, "last_name": .string("B")]), ["firstname"]),
            (
                1,
                fields([
                    "firstName": .string("A"), "last_name": .string("B"), "cell_phone": .string("+33 6 12 34 56 78"),
                ]), []
            ),
            (
                1, fields(["first_name": .string("A"), "lastName": .string("B"), "cellPhone": .number("33612345678")]),
                []
            ),
            (
                3,
                fields([
                    "firstname": .string("A"), "lastname": .string("B"), "email": .string("a@b.example"),
                    "cell_phone": .string("0612345678"),
                ]), []
            ),
            (
                3,
                fields([
                    "firstname": .string("A"), "lastname": .string("B"), "email": .string("a@b.example"),
                    "phone": .string("0612345678"),
                ]), ["cellPhone"]
            ),
        ] as [(Int, JSONValue, [String])])
    func missing(mode: Int, fields: JSONValue, missing: [String]) async throws {
        let content = try await SellSignFixture.content([
            "customer.mode": .number("\(mode)"), "customer.fields": fields,
        ])
        #expect(content.missing == missing)
    }

    @Test(
        "an address for a code is checked where the mode needs it",
        arguments: [
            ("email", "nobody"), ("email", "a@b@c"), ("email", "@b"), ("email", "a@"), ("email", "a@b\r\nBcc: c@d"),
            ("email", "a b@c"), ("email", "<a@b>"),
            ("cellPhone", "abc"), ("cell_phone", "12"), ("cellPhone", "0612345678; rm"),
            ("cellPhone", "+33\n612345678"), ("cellPhone", "٠٦١٢٣٤٥٦٧٨"),
        ])
    func addresses(key: String, value: String) async throws {
        let fields = Self.fields(["firstname": .string("A"), "lastname": .string("B"), key: .string(value)])
        let error = await failure {
            try await SellSignFixture.content(["customer.mode": .number("3"), "customer.fields": fields])
        }
        #expect(error?.code == .malformedData && error?.message.hasPrefix("customer.fields[2].value: is no ") == true)
        #expect(
            try await SellSignFixture.content(["customer.mode": .number("2"), "customer.fields": fields]).missing
                .isEmpty)
    }

    /// A file with values to fill in.
    private static func incomplete() async throws -> ContractContent {
        try await SellSignFixture.content([
            "customer.mode": .number("1"),
            "customer.fields": fields(["firstname": .string(""), "shoe_size": .string("42")]),
            "contract_properties": .array([
                .object([
                    .init("to_fill_by_user", .number("1")), .init("key", .string("date")),
                    .init("unit", .string("day")),
                ]),
                .object([
                    .init("key", .string("done")), .init("value", .string("x")), .init("to_fill_by_user", .bool(true)),
                ]),
                .object([.init("key", .string("none")), .init("value", .null), .init("to_fill_by_user", .number("0"))]),
                .object([
                    .init("key", .string("last_name")), .init("value", .string(" ")),
                    .init("to_fill_by_user", .bool(true)),
                ]),
            ]),
        ])
    }

    @Test("values are filled in where they are missing, and nothing else changes")
    func filling() async throws {
        let content = try await Self.incomplete()
        #expect(content.missing == ["firstname", "lastname", "cellPhone", "date", "contract_properties.last_name"])
        let some = try content.filling(["date": "2027-01-15", "cell_phone": "+33612345678"])
        #expect(some.missing == ["firstname", "lastname", "contract_properties.last_name"])
        let all = try some.filling(["firstname": "Zoë", "last_name": "D", "contract_properties.last_name": "L"])
        #expect(all.missing.isEmpty)
        var expected = content.json
        expected[at: "customer.fields"] = Self.fields([
            "firstname": .string("Zoë"), "shoe_size": .string("42"), "cellPhone": .string("+33612345678"),
            "lastname": .string("D"),
        ])
        expected[at: "contract_properties[0].value"] = .string("2027-01-15")
        expected[at: "contract_properties[3].value"] = .string("L")
        #expect(all.json == expected)
        #expect(all.properties.map(\.value) == ["2027-01-15", "x", nil, "L"])
        #expect(try content.filling([:]) == content)
    }

    @Test("a value that is not missing, or does not fit, is refused, and nothing is filled in")
    func refusals() async throws {
        let content = try await Self.incomplete()
        for key in ["done", "none", "shoe_size", "civility", "", "contract_properties.date", "x\u{1b}"] {
            let error = await failure { try content.filling([key: "1", "date": "x"]) }
            #expect(error?.code == .notFound, "\(key)")
            #expect(
                error?.message.hasSuffix(
                    "missing are firstname, lastname, cellPhone, date, contract_properties.last_name.") == true)
            #expect(error?.message.contains("\u{1b}") == false)
        }
        for (key, value) in [
            ("date", ""), ("date", " \n"), ("cellPhone", "x"), ("date", "\u{1b}[2J"),
            ("date", String(repeating: "x", count: 10_001)),
        ] {
            let error = await failure { try content.filling([key: value]) }
            #expect(error?.code == .malformedData && error?.message.hasPrefix("\(key): ") == true)
        }
        #expect(
            await failure { try content.filling(["cellPhone": "+33612345678", "cell_phone": "+33612345679"]) }?.code
                == .malformedData)
        let complete = try await SellSignFixture.content()
        #expect(
            await failure { try complete.filling(["firstname": "x"]) }?.message
                == "The contract has no value firstname to fill in: nothing is missing.")
    }

    private static func person(
        _ values: KeyValuePairs<String, JSONValue?>, _ members: [JSONValue.Member] = []
    ) -> JSONValue {
        .object([.init("fields", fields(values))] + members)
    }

    @Test("each of the contract's people is a signatory, with a number, a mode and missing values of its own")
    func signatories() async throws {
        let content = try await SellSignFixture.content([
            "contractors": .array([
                Self.person(["firstname": .string("Marie")], [.init("contractor_id", .number("7"))]),
                Self.person(["email": .string("p@example.org")], [.init("mode", .number("3"))]),
            ])
        ])
        #expect(content.signatories.map(\.number) == ["my_customer_number", "7", nil])
        #expect(content.signatories.map(\.mode) == [.person, .person, .mail])
        #expect(
            content.missing == [
                "contractors[0].lastname", "contractors[1].firstname", "contractors[1].lastname",
                "contractors[1].cellPhone",
            ])
        let some = try content.filling([
            "contractors[0].last_name": "Curie", "contractors[1].cell_phone": "+33612345678",
        ])
        #expect(some.missing == ["contractors[1].firstname", "contractors[1].lastname"] && content.isFilled(in: some))
        let all = try some.filling(["contractors[1].firstname": "Paul", "contractors[1].lastname": "Curie"])
        #expect(all.missing.isEmpty && content.isFilled(in: all) && some.isFilled(in: all))
        #expect(all.signatories.map(\.name) == ["Jean Dupont", "Marie Curie", "Paul Curie"])
        #expect(all.signatories[2].codes.map(\.channel) == [.textMessage, .mail])
        #expect(all.signatories[2].codes.map(\.address) == ["+33612345678", "p@example.org"])
        let flawed = await failure { try some.filling(["contractors[1].lastname": "x\u{1b}"]) }
        #expect(flawed?.message.hasPrefix("contractors[1].lastname: ") == true)
        var other = all.json
        other[at: "contractors[0].fields[0].value"] = .string("Marya")
        #expect(!content.isFilled(in: try ContractContent(other)))
        #expect(try all.signatory("7", among: [0, 1]) == 1 && all.signatory("paul curie", among: [1, 2]) == 2)
        for (text, indexes) in [("8", [0, 1, 2]), ("Paul Curie", [0, 1])] {
            #expect(await failure { try all.signatory(text, among: indexes) }?.code == .notFound)
        }
    }

    @Test(
        "what is wrong with a contractor or the order is said by its member",
        arguments: [
            ("contractors[0].mode", JSONValue.number("4"), "contractors[0].mode: is none of 1"),
            ("contractors[0].number", .string(""), "contractors[0].number: has not 1 to 255"),
            ("contractors[0].fields", .object([]), "contractors[0].fields: is no array"),
            ("contractors", .array(Array(repeating: .object([]), count: 32)), "contractors[31]: is one signatory too"),
            (
                "options", .array([.object([.init("key", .string("signing_order")), .init("value", .string("x"))])]),
                "options[0].value: is neither sequential nor any"
            ),
        ])
    func flawedSignatories(path: String, value: JSONValue, message: String) async throws {
        let error = await failure { try await SellSignFixture.content([path: value]) }
        #expect(error?.code == .malformedData && error?.message.hasPrefix(message) == true, "\(error?.message ?? "")")
    }

    @Test("fields are made where the customer has none")
    func noFields() async throws {
        let content = try await SellSignFixture.content(["customer.fields": nil as JSONValue?])
        let filled = try content.filling(["firstname": "A", "lastname": "B"])
        #expect(filled.missing.isEmpty && filled.customer.fields.map(\.value) == ["A", "B"])
    }

    @Test(
        "a reference has one text",
        arguments: [
            "", "sha256:D,1", "data:;base64,sha256:D", "data:;base64,sha256:D,", "data:;base64,sha256:D,-1",
            "data:;base64,sha256:D,01", "data:;base64,sha256:D,+1",
            "data:;base64,sha256:D,1,2", "data:;base64,sha256:D,99999999999999999999", "data:;base64,sha512:D,1",
            "data:a/b,sha256:D,1", "DATA:;base64,sha256:D,1",
            "data:;base64,sha256:D,1 ", "data:;base64,sha256:../../../etc/passwd,1", "data:\u{301};base64,sha256:D,1",
            "data:;base64,\u{301}sha256:D,1",
        ])
    func references(text: String) {
        let digest = DocumentReference(of: [1]).sha256
        #expect(DocumentReference.reading(placeholder: text.replacing("D", with: digest)) == nil)
        #expect(DocumentReference.reading(placeholder: "data:;base64,sha256:\(digest.uppercased()),1") == nil)
        let written = DocumentReference(of: [1]).placeholder(type: "text/plain;charset=UTF-8")
        let read = DocumentReference.reading(placeholder: written)
        #expect(read?.type == "text/plain;charset=UTF-8" && read?.document == DocumentReference(of: [1]))
    }

    @Test("references of more than 50 MB together are refused, whatever their sizes are")
    func sizes() async throws {
        let json = try await SellSignFixture.content().json
        for (one, other, isAccepted) in [
            (50_000_000, 0, true), (25_000_000, 25_000_001, false), (1, Int.max, false), (Int.max, Int.max, false),
            (Int.max, 1, false),
        ] {
            var json = json
            for (path, size) in [("contract.pdf_file_path", one), ("files[0].path", other)] {
                let reference = try #require(DocumentReference(sha256: DocumentReference(of: [1]).sha256, size: size))
                json[at: path] = .string(reference.placeholder(type: ""))
            }
            #expect((await failure { try ContractContent(json) } == nil) == isAccepted, "\(one) \(other)")
        }
    }

    @Test("documents in the place of references are refused")
    func documents() async throws {
        var json = try await SellSignFixture.content().json
        json[at: "files[0].path"] = SellSignFixture.uri("image/png", SellSignFixture.png)
        #expect(
            await failure { try ContractContent(json) }?.message.hasPrefix(
                "files[0].path: is no reference of a document") == true)
    }

    @Test("content of more than 16 levels is refused, wherever it comes from")
    func depth() async throws {
        var json = try await SellSignFixture.content().json
        for levels in [15, 16] {
            json[at: "mine"] = (0..<levels).reduce(.number("1")) { value, _ in .array([value]) }
            let error = await failure { try ContractContent(json) }
            #expect(error?.message == (levels == 15 ? nil : "mine: has more than 16 levels."))
        }
    }

    @Test("a file that cannot be sent, for its size or its number of values, is not accepted")
    func limits() async throws {
        let most = JSONValue.maximumValues - ContractVersion.maximumEnvelope.values
        let others = try await SellSignFixture.content().json.count
        let zeros = JSONValue.array(Array(repeating: .number("0"), count: most - others + 1))
        let error = await #expect(throws: ProviderError.self) {
            try await SellSignFixture.content(["options": zeros])
        }
        #expect(
            error?.code == .malformedData && error?.message.contains("values; at most") == true,
            "\(error?.message ?? "")")
        var json = try await SellSignFixture.content().json
        let text = String(repeating: "x", count: (80 << 20) - 4096)
        json.set("my_own_member", .string(text))
        let content = try ContractContent(json)
        let size = #expect(throws: ProviderError.self) { try content.requireSendable() }
        #expect(size?.code == .malformedData && size?.message.contains("bytes as it is sent") == true)
    }
}
