import CertificateProviding
import TestSupport
import Testing

@testable import Logon

@Suite struct PropertyListTests {
    private func parse(_ text: String) throws -> [String: String?] {
        let settings = try PropertyListReader.settings(in: Array(text.utf8), file: "f")
        return Dictionary(uniqueKeysWithValues: settings.all.map { ($0.key, $0.value) })
    }

    private func plist(_ body: String) -> String { "<plist version=\"1.0\">\n<dict>\n\(body)\n</dict>\n</plist>\n" }

    @Test(
        "A property list is read, with dots between the names of nested keys",
        arguments: [
            ("", [:]),
            ("<key>a</key><string>1</string>", ["a": "1"]),
            ("<key>a</key>\r\n\t<string> 1\n2 </string>", ["a": " 1\n2 "]),
            ("<key>a</key><string/><key>b</key><string></string>", ["a": "", "b": ""]),
            ("<key>a</key><true/><key>b</key><false/><key>c</key><true />", ["a": "true", "b": "false", "c": "true"]),
            ("<key>a</key><integer>8443</integer>", ["a": "8443"]),
            ("<key>a</key><integer>1</integer><key>b</key><integer>0</integer>", ["a": "1", "b": "0"]),
            ("<key>a</key><integer>-1</integer>", ["a": "-1"]),
            ("<key>a</key><dict><key>b</key><dict><key>c</key><string>1</string></dict></dict>", ["a.b.c": "1"]),
            (
                "<key>a</key><string>1</string><key>a.b</key><dict><key>c</key><true/></dict>",
                ["a": "1", "a.b.c": "true"]
            ),
            ("<key>a.b.c</key><string>1</string>", ["a.b.c": "1"]),
            ("<key>a</key><dict/>", [:]),
            ("<!-- <key> --><key>a</key><!-- & --><string>1</string>", ["a": "1"]),
            ("<key>&lt;&amp;&gt;&quot;&apos;</key><string>&lt;&amp;&gt;&quot;&apos;</string>", ["<&>\"'": "<&>\"'"]),
            ("<key>&#97;&#x62;</key><string>&#233;&#x20AC;</string>", ["ab": "é€"]),
            ("<key>a</key><string>&#x1F600;😀</string>", ["a": "😀😀"]),
            ("<key><![CDATA[<a>]]></key><string>1<![CDATA[<2>&amp;]]>3</string>", ["<a>": "1<2>&amp;3"]),
            ("<key>ä</key><string>ö</string>", ["ä": "ö"]),
            ("<key>a</key><array><string>1</string><string/></array>", ["a": nil]),
            ("<key>a</key><array/><key>b</key><array><integer>1</integer><true/></array>", ["a": nil, "b": nil]),
            ("<key>a</key><data>AAEC</data><key>b</key><real>1.5</real>", ["a": nil, "b": nil]),
            ("<key>a</key><date>2026-01-01T00:00:00Z</date><key>b</key><string>1</string>", ["a": nil, "b": "1"]),
            ("<key>a</key><!-- c --> <array><dict/></array><key>b</key><true/>", ["a": nil, "b": "true"]),
            (
                "<key>a</key><array><dict><key>k</key><date>x</date></dict><true/><array/></array><key>b</key><true/>",
                ["a": nil, "b": "true"]
            ),
            ("<key>a</key><real/><key>b</key><real>x</real><key>c</key><true/>", ["a": nil, "b": nil, "c": "true"]),
            ("<key>a</key><array><string>1</string><true/></array>", ["a": nil]),
            ("<key>a</key><dict><key>b</key><date/><key>c</key><true/></dict>", ["a.b": nil, "a.c": "true"]),
        ] as [(String, [String: String?])])
    func reads(body: String, expected: [String: String?]) throws {
        #expect(try parse(plist(body)) == expected)
    }

    @Test(arguments: [
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "\u{feff}<?xml version='1.0' encoding='utf-8'?>",
        "<?xml version=\"1.0\"?>\n<!-- c -->\n",
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">

        """,
    ])
    func acceptsProlog(prolog: String) throws {
        #expect(try parse(prolog + plist("<key>a</key><string>1</string>") + "<!-- end -->\n") == ["a": "1"])
    }

    @Test(
        "A malformed property list is refused with its line, and without the values",
        arguments: [
            ("<key>a</key><string>sEcReT</string>\n<key>a</key><string>2</string>", 4, "'a' is already set in line 3"),
            ("<key>a.b</key><true/><key>a</key>\n<dict>\n<key>b</key><string>sEcReT</string></dict>", 5, "'a.b'"),
            ("<key>a</key><string>sEcReT</string><key>&#97;</key><true/>", 3, "'a'"),
            ("<key>a</key><dict/>\n\n<key>a</key><dict/>", 5, "'a'"),
            ("<key>é</key><true/><key>e\u{301}</key><true/>", 3, "é"),
            ("<key></key><string>sEcReT</string>", 3, "empty"),
            ("<key/><string>sEcReT</string>", 3, "empty"),
            ("\n<string>sEcReT</string>", 4, "<key>"),
            ("<key>a</key>", 4, ""),
            ("<key>a</key><key>b</key><string>sEcReT</string>", 3, "'a'"),
            ("<key>a</key><date>2026-01-01T00:00:00Z", 4, "</date> is missing"),
            ("<key>a</key><array><dict>sEcReT</dict></array>", 3, "there is text outside"),
            ("<key>a</key><array><sEcReT/></array>", 3, "'a'"),
            ("<key>a</key><array><key>sEcReT</key></array>", 3, "'a'"),
            ("<key>a</key><array><string>1</string></dict>", 3, "</array> is missing"),
            ("<key>a</key><sEcReT>1", 3, "'a'"),
            ("<key>a</key><integer>+80</integer>", 3, "'a'"),
            ("<key>a</key><integer>0x50</integer>", 3, "'a'"),
            ("<key>a</key><integer>8e3</integer>", 3, "'a'"),
            ("<key>a</key><integer/>", 3, "'a'"),
            ("<key>a</key><integer>9999999999999999999999</integer>", 3, "'a'"),
            ("<key>a</key><true>sEcReT</true>", 3, ""),
            ("<key>a</key><string>sEcReT&nbsp;</string>", 3, "&lt;"),
            ("<key>a</key><string>sEcReT & b</string>", 3, "&lt;"),
            ("<key>a</key><string>sEcReT&#0;</string>", 3, "&lt;"),
            ("<key>a</key><string>sEcReT&#xD800;</string>", 3, "&lt;"),
            ("<key>a</key><string>sEcReT<!-- c --></string>", 3, ""),
            ("<key>a</key><string>sEcReT", 4, ""),
            ("<key>a</key><string x=\"1\">sEcReT</string>", 3, ""),
            ("<key>a</key>sEcReT<string>1</string>", 3, ""),
            ("<key>a</key><!-- sEcReT", 3, ""),
            ("<key>a</key><string><![CDATA[sEcReT</string>", 3, ""),
            ("<key>a</key><string>sEcReT\u{1}</string>", 3, "control"),
        ])
    func refuses(body: String, line: Int, part: String) {
        expectInvalid(failure { try parse(plist(body)) }, at: "f:\(line): ", part)
    }

    @Test(
        "Text that is not a property list is refused",
        arguments: [
            "", "x", "<", "<plist>", "<plist", "<plist><array/></plist>", "<dict></dict>", "<plist><dict></plist>",
            "<plist><dict/></plist>x", "<plist><dict/><dict/></plist>", "<?xml", "<!DOCTYPE", "<?xml?><plist/>",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><plist><dict/></plist>",
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><plist><dict/></plist>",
            "<?xml version=\"1.0\" encoding=\"UTF-7\"?><plist><dict/></plist>",
        ])
    func refusesOtherText(text: String) {
        expectInvalid(failure { try parse(text) }, at: "f:1: ")
    }

    @Test(
        "A property list with an internal DTD subset is refused",
        arguments: [
            "<!DOCTYPE plist [<!ENTITY a \"sEcReT\">]>",
            "<!DOCTYPE plist [ <!ENTITY a SYSTEM \"file:///etc/passwd\"> ]>",
            "<!DOCTYPE plist SYSTEM \"http://127.0.0.1:9/x.dtd\" [<!ENTITY % p SYSTEM \"http://127.0.0.1:9/\"> %p;]>",
        ])
    func refusesDeclarations(declaration: String) {
        let error = failure { try parse(declaration + plist("<key>a</key><string>&a;</string>")) }
        expectInvalid(error, "internal subset")
    }

    @Test func refusesBinary() {
        let error = failure { try PropertyListReader.settings(in: Array("bplist00\u{1}".utf8), file: "f") }
        expectInvalid(error, "binary")
    }

    @Test("Property lists with too deep nesting, too many keys or too long keys are refused")
    func boundsDepthAndNumber() throws {
        func nested(_ depth: Int) -> String {
            plist(
                String(repeating: "<key>a</key><dict>", count: depth - 1)
                    + String(repeating: "</dict>", count: depth - 1))
        }
        #expect(try parse(nested(PropertyListReader.maximumDepth)).isEmpty)
        #expect(failure { try parse(nested(PropertyListReader.maximumDepth + 1)) }?.code == .configurationInvalid)
        #expect(failure { try parse(nested(30_000)) }?.code == .configurationInvalid)
        func array(_ depth: Int) -> String {
            let (start, end) = ("<array>", "</array>")
            return plist(
                "<key>a</key>" + String(repeating: start, count: depth - 1) + String(repeating: end, count: depth - 1))
        }
        #expect(try parse(array(PropertyListReader.maximumDepth)) == ["a": nil])
        #expect(failure { try parse(array(30_000)) }?.message.contains("nested deeper") == true)
        let half = String(repeating: "k", count: Settings.maximumKeyLength / 2)
        let long = "<key>\(half)</key><dict><key>\(half)</key><true/></dict>"
        #expect(failure { try parse(plist(long)) }?.message.contains("longer") == true)
        let many = (0...Settings.maximumCount).map { "<key>\($0)</key><true/>" }.joined()
        #expect(failure { try parse(plist(many)) }?.code == .configurationInvalid)
    }
}
