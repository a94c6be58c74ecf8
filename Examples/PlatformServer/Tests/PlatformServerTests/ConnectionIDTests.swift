import Testing

@testable import PlatformServer

@Suite("Connection ids")
struct ConnectionIDTests {
    @Test("They need no escaping", arguments: ["a", "A.b_c-9", String(repeating: "a", count: 128)])
    func accepted(text: String) { #expect(ConnectionID(text)?.description == text) }

    @Test(
        "Other texts are refused",
        arguments: ["", " ", "a b", "a'b", "a/b", "a;b", "é", "a\u{0}", "a\n", String(repeating: "a", count: 129)])
    func refused(text: String) { #expect(ConnectionID(text) == nil) }

    @Test("The server's own are distinct")
    func random() { #expect(ConnectionID.random() != ConnectionID.random()) }
}
