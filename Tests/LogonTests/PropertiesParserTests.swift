import CertificateProviding
import TestSupport
import Testing

@testable import Logon

@Suite struct PropertiesParserTests {
    private func parse(_ text: String) throws -> [String: String] {
        let settings = try PropertiesParser.settings(in: Array(text.utf8), file: "f")
        return Dictionary(uniqueKeysWithValues: settings.all.map { ($0.key, $0.value ?? "") })
    }

    /// Every one of these was checked against `java.util.Properties.load`.
    @Test(arguments: [
        ("", [:]),
        ("a=1", ["a": "1"]),
        ("a:1\nb 2\nc\t3\nd\u{c}4", ["a": "1", "b": "2", "c": "3", "d": "4"]),
        ("  a = 1 ", ["a": "1 "]),
        ("a : = 1", ["a": "= 1"]),
        ("a==1", ["a": "=1"]),
        ("a\nb=\nc =", ["a": "", "b": "", "c": ""]),
        ("# a=1\n  ! b=2\nc=3 # d", ["c": "3 # d"]),
        ("# a \\\nb=1", ["b": "1"]),
        ("a=1\r\nb=2\rc=3\n", ["a": "1", "b": "2", "c": "3"]),
        ("a=1\\\n   2\\\r\n\t3\\\r 4", ["a": "1234"]),
        ("a=1\\\n\nb=2", ["a": "1", "b": "2"]),
        ("a=1\\\n   \nb=2", ["a": "1", "b": "2"]),
        ("a=1\\\n  # 2", ["a": "1# 2"]),
        ("\\\n# a=1\nb=2", ["b": "2"]),
        ("\\\n\na=1", ["a": "1"]),
        ("a\\\nb=1", ["ab": "1"]),
        ("a\\\n   = 1", ["a": "1"]),
        ("a=1\\", ["a": "1"]),
        ("a=1\\\\\nb=2", ["a": "1\\", "b": "2"]),
        ("a=1\\\\\\\n2", ["a": "1\\2"]),
        ("a\\=b\\:c\\ d=1", ["a=b:c d": "1"]),
        ("\\#a=1\n\\!b=2", ["#a": "1", "!b": "2"]),
        ("a=\\t\\n\\r\\f\\\\", ["a": "\t\n\r\u{c}\\"]),
        ("a=\\ 1", ["a": " 1"]),
        ("a=\\\"\\'\\/\\-", ["a": "\"'/-"]),
        ("a=\\u00e9\\u20AC", ["a": "é€"]),
        ("a=\\ud83d\\uDE00", ["a": "😀"]),
        ("a=\\u00\\\n  41", ["a": "A"]),
        ("a=\\ud83d\\\n\\uDE00", ["a": "😀"]),
        ("\\u0061=1", ["a": "1"]),
        ("a\\u003db=1", ["a=b": "1"]),
        ("grün=ja", ["grün": "ja"]),
        ("a=b=c:d e", ["a": "b=c:d e"]),
    ])
    func readsAsJava(text: String, expected: [String: String]) throws {
        #expect(try parse(text) == expected)
    }

    @Test func acceptsByteOrderMark() throws { #expect(try parse("\u{feff}a=1") == ["a": "1"]) }

    @Test(
        "A malformed property file is refused with its line, and without the values",
        arguments: [
            ("a=1\nb=sEcReT\\q", 2, "'b'"),
            ("a=1\r\nb=sEcReT\\q", 2, "'b'"),
            ("a=1\rb=sEcReT\\q", 2, "'b'"),
            ("a=sEcReT\\\n\\q", 2, "'a'"),
            ("a=sEcReT\\u12", 1, "'a'"),
            ("a=sEcReT\\u12\n34=1", 1, "'a'"),
            ("a=sEcReT\\u", 1, "'a'"),
            ("a=sEcReT\\uu0041", 1, "'a'"),
            ("a=sEcReT\\u12g4", 1, "'a'"),
            ("a=sEcReT\\u0000", 1, "NUL"),
            ("a=sEcReT\\ud83d", 1, "surrogate"),
            ("a=sEcReT\\ud83dx", 1, "surrogate"),
            ("a=sEcReT\\ud83d\\", 1, "surrogate"),
            ("a=sEcReT\\ud83d\\t", 1, "surrogate"),
            ("a=sEcReT\\ud83d\\ud83d", 1, "surrogate"),
            ("a=sEcReT\\ude00", 1, "surrogate"),
            ("a=sEcReT\\é", 1, "'a'"),
            ("a=sEcReT\\U0041", 1, "'a'"),
            ("a=sEcReT\\0", 1, "'a'"),
            ("x\\q=sEcReT", 1, "this line"),
            ("sEcReT a\\q", 1, "this line"),
            ("sEcReT\nsEcReT", 2, "is already set in line 1"),
            ("sEcReT==\nsEcReT==", 2, "is already set in line 1"),
            ("<?xml version='1.0'?>\n<plist><dict><key>a</key><string>sEcReT</string></dict></plist>", 1, ".plist"),
            ("\u{feff}\n <plist>\n<string>sEcReT</string>", 1, ".plist"),
            ("bplist00sEcReT", 1, ".plist"),
            ("a=1\n\nb=2\na=sEcReT", 4, "'a' is already set in line 1"),
            ("a=1\n\\u0061=sEcReT", 2, "'a' is already set in line 1"),
            ("#\n=sEcReT", 2, "key"),
            ("\n:sEcReT", 2, "key"),
            ("a=1\nb=sEcReT\0", 2, "control"),
            ("a=1\nb=\u{1b}[1msEcReT", 2, "control"),
            ("a=1\nb=sEcReT\u{7f}", 2, "control"),
        ])
    func refuses(text: String, line: Int, part: String) {
        expectInvalid(failure { try parse(text) }, at: "f:\(line): ", part)
    }

    @Test(
        "A property file that is not text is refused with its line",
        arguments: [
            ([0x61, 0x3d, 0x31, 0x0a, 0x62, 0x3d, 0xff], 2),
            ([0x61, 0x3d, 0xe9], 1),
            ([0x0d, 0x0a, 0x0d, 0x0a, 0x61, 0xc0, 0x80], 3),
            ([0xed, 0xa0, 0x80], 1),
            ([0xff, 0xfe, 0x61, 0x00], 1),
            ([0x7f, 0x45, 0x4c, 0x46, 0x02, 0x01], 1),
        ] as [([UInt8], Int)])
    func refusesWhatIsNotText(bytes: [UInt8], line: Int) {
        expectInvalid(failure { try PropertiesParser.settings(in: bytes, file: "f") }, at: "f:\(line): ")
    }

    @Test func boundsTheNumberOfKeys() throws {
        let most = (0..<Settings.maximumCount).map { "k\($0)\n" }.joined()
        #expect(try parse(most).count == Settings.maximumCount)
        #expect(failure { try parse(most + "more") }?.code == .configurationInvalid)
    }

    @Test func boundsTheLengthOfKeys() throws {
        let longest = String(repeating: "k", count: Settings.maximumKeyLength)
        #expect(try parse(longest + "=1") == [longest: "1"])
        #expect(failure { try parse("\n\(longest)k=1") }?.message.hasPrefix("f:2: ") == true)
    }

    @Test func showsKeysAndPathsInOneShortLine() {
        let key = String(repeating: "k", count: 1000) + "\\n"
        let error = failure { try PropertiesParser.settings(in: Array("\(key)=1\n\(key)=2".utf8), file: "a\nb") }
        #expect(error?.message.contains("\n") == false)
        #expect(error?.message.count ?? .max < 300)
    }

    @Test func remembersTheLineAKeyBeginsIn() throws {
        let settings = try PropertiesParser.settings(in: Array("\n# c\na=\\\n\\\n1\n\\\nb=2".utf8), file: "f")
        #expect(settings["a"]?.position.line == 3)
        #expect(settings["b"]?.position.line == 7)
    }
}
