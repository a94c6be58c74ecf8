import NamedKeys
import Testing

@Suite struct KeyNameTests {
    @Test(
        "A name has 1 to 128 bytes of UTF-8 without control characters and slashes",
        arguments: [
            ("a", true), ("A pair", true), ("a.b-c_d", true), ("ключ", true), ("👩‍💻", true), (" x", true), ("~", true),
            (String(repeating: "x", count: 128), true), (String(repeating: "é", count: 64), true),
            ("", false), (String(repeating: "x", count: 129), false), (String(repeating: "é", count: 65), false),
            (".", false), ("..", false), (".x", false), ("-x", false), ("-", false), ("a/b", false), ("/", false),
            ("a\nb", false), ("a\0", false), ("a\u{7f}", false), ("a\u{85}", false), ("\u{1b}[2J", false),
            ("\t", false),
        ])
    func rule(text: String, isName: Bool) {
        #expect((KeyName(text) != nil) == isName)
        if isName { #expect(KeyName(text)?.description == text) }
    }

    @Test("Two spellings of one text are one name")
    func canonicalEquivalence() {
        #expect(KeyName("caf\u{e9}") == KeyName("cafe\u{301}"))
        #expect(KeyName("a") != KeyName("A"))
    }
}
