import CertificateProviding
import Contracts
import Testing

@Suite struct JSONReaderTests {
    private func parse(_ text: String) throws -> JSONValue { try JSONValue(parsing: Array(text.utf8)) }

    @Test(
        "a text of RFC 8259 is read, and written with the same values",
        arguments: [
            "null", " true ", "false", "0", "-0", "-1", "1.50", "1E+2", "1e-30", "123456789012345678901234567890",
            #""""#, #""é😀\u00e9""#, #""\"\\\/\b\f\n\r\t\u0000""#, #""\ud83d\ude00""#, "[]", "[ 1 , [ ] , { } ]", "{}",
            #"{"a":{"b":[1,2,{"c":null}]},"":0,"\u0000":1}"#, "\r\n\t [1]\n",
        ])
    func accepted(text: String) throws {
        let value = try parse(text)
        let again = try JSONValue(parsing: value.bytes)
        #expect(again == value)
        #expect(
            try JSONValue(parsing: value.bytes(sortedKeys: true)).bytes(sortedKeys: true)
                == value.bytes(sortedKeys: true))
    }

    @Test(
        "a text that is no JSON is refused, and the message says where",
        arguments: [
            ("", "The JSON text: ends where a value must be."),
            ("tru", "The JSON text: has t where a value must be (byte 1 of the file)."),
            ("\u{feff}1", "The JSON text: begins with a byte order mark"),
            ("1 2", "The JSON text: has 2 after its end (byte 3"),
            ("01", "The JSON text: is a number that begins with a zero"),
            ("-", "The JSON text: ends where a digit must be"),
            ("-01", "The JSON text: is a number that begins with a zero"), ("1.", "The JSON text: ends where a digit"),
            (".5", "The JSON text: has . where a value must be"), ("+1", "The JSON text: has + where a value"),
            ("1e", "The JSON text: ends where a digit"), ("NaN", "The JSON text: has N where a value"),
            ("'a'", "The JSON text: has ' where a value"), ("[1,]", "[1]: has ] where a value must be"),
            ("[1 2]", "The JSON text: has 2 where a comma or ] must be"), ("[", "[0]: ends where a value must be"),
            ("{", "The JSON text: ends where a member's name must be"), (#"{"a"}"#, "a: has } where a colon must be"),
            (#"{"a":1,}"#, "The JSON text: has } where a member's name must be"),
            (#"{"a":1"#, "The JSON text: ends where a comma or } must be"),
            (#"{a:1}"#, "The JSON text: has a where a member's name"),
            ("// 1\n1", "The JSON text: has / where a value"),
            (#"{"a":{"b":[0,"x]}}"#, "a.b[1]: ends inside a string"),
            ("\"a\nb\"", "The JSON text: has a control character"),
            (#"{"a":"\x"}"#, "a: has an unknown escape"), (#"{"a":"\u12G4"}"#, "a: has G where a hexadecimal digit"),
            (#"{"a":"\ud83d"}"#, "a: has half of a surrogate pair"),
            (#"{"a":"\ud83d\n"}"#, "a: has half of a surrogate pair"),
            (#"{"a":"\ude00\ud83d"}"#, "a: has half of a surrogate pair"),
            (#"{"a":"\ud83d\ud83d"}"#, "a: has half of a surrogate pair"),
            (#"{"a":{"b":1,"b":1}}"#, "a.b: is there twice"), (#"{"a":1,"\u0061":2}"#, "a: is there twice"),
            (#"[{"é":1,"e\u0301":2}]"#, "[0].e\u{301}: is there twice"),
            (#"{"a\u001b[2J\u202e":tru}"#, #"a\1b[2J\e280ae: has t where a value must be"#),
        ])
    func refused(text: String, message: String) async {
        let error = await failure { try parse(text) }
        #expect(error?.code == .malformedData)
        #expect(error?.message.hasPrefix(message) == true, "\(error?.message ?? "accepted")")
    }

    @Test(
        "text that is not UTF-8 is refused",
        arguments: [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xe2, 0x82]])
    func notUTF8(bytes: [UInt8]) async {
        for text in [
            Array(#"{"a":""#.utf8) + bytes + Array(#""}"#.utf8), Array(#"{""#.utf8) + bytes + Array(#"":1}"#.utf8),
        ] {
            let error = await failure { try JSONValue(parsing: text) }
            #expect(error?.message.hasSuffix(": is not UTF-8.") == true, "\(error?.message ?? "accepted")")
        }
    }

    @Test("the outermost value is the first level, and the member that is too deep is named")
    func depth() async throws {
        func nested(_ levels: Int) -> String {
            #"{"fine":[[1]],"deep":"# + String(repeating: "[", count: levels - 1)
                + String(repeating: "]", count: levels - 1) + "}"
        }
        _ = try parse(nested(16))
        #expect(await failure { try parse(nested(17)) }?.message == "deep: has more than 16 levels.")
        #expect(
            await failure { try parse(String(repeating: "[", count: 1_000_000)) }?.message
                == "[0]: has more than 16 levels.")
        #expect(
            await failure { try parse(String(repeating: #"{"a":"#, count: 100_000)) }?.message
                == "a: has more than 16 levels.")
        _ = try JSONValue(parsing: Array(nested(40).utf8), maximumDepth: 40)
    }

    @Test("80 MiB are read, and one byte more is not; nor are more than 1,048,576 values")
    func size() async throws {
        let limit = 80 << 20
        let text = Array("\"".utf8) + [UInt8](repeating: 0x61, count: limit - 2) + Array("\"".utf8)
        #expect(try JSONValue(parsing: text).string?.utf8.count == limit - 2)
        let error = await failure { try JSONValue(parsing: text + [0x20]) }
        #expect(error?.message == "The JSON text has 83886081 bytes; at most 83886080 are read.")
        let values =
            Array("[".utf8) + Array([[UInt8]](repeating: Array("0,".utf8), count: JSONValue.maximumValues - 2).joined())
        _ = try JSONValue(parsing: values + Array("0]".utf8))
        #expect(await failure { try JSONValue(parsing: values + Array("0,0]".utf8)) }?.code == .malformedData)
    }

    @Test("special characters are found at each place of a word")
    func places() throws {
        for special in ["\"", "\\", "\n", "\u{1f}", "\u{0}", "é", "\u{7f}", " ", "!", "[", "]", "\u{80}"] {
            for before in 0..<20 {
                for after in [0, 1, 7, 8, 9] {
                    let text =
                        String(repeating: "a", count: before) + special + String(repeating: "z", count: after) + special
                    let value = JSONValue.string(text)
                    #expect(try JSONValue(parsing: value.bytes) == value, "\(text.debugDescription)")
                }
            }
        }
    }

    @Test("sorted keys are in the order of their bytes, at every level")
    func sorted() throws {
        let value = try parse(#"{"b":[{"z":1,"Z":2}],"é":0,"a":{"2":0,"10":0},"":3}"#)
        #expect(
            String(decoding: value.bytes(sortedKeys: true), as: UTF8.self)
                == #"{"":3,"a":{"10":0,"2":0},"b":[{"Z":2,"z":1}],"é":0}"#)
        #expect(String(decoding: value.bytes, as: UTF8.self) == #"{"b":[{"z":1,"Z":2}],"é":0,"a":{"2":0,"10":0},"":3}"#)
    }

    @Test("values are equal by their characters, not by what Unicode takes for equivalent, and numbers by their text")
    func equality() throws {
        #expect(try parse(#""é""#) != parse(#""e\u0301""#))
        #expect(try parse("1.0") != parse("1.00"))
        #expect(try parse(#"{"é":1}"#) != parse(#"{"e\u0301":1}"#))
        #expect(try parse(#""\u00e9""#) == parse(#""é""#))
        #expect(
            try parse("7").integer == 7 && parse("7.0").integer == nil && parse("99999999999999999999").integer == nil)
    }
}
