import Foundation
import Testing

@testable import PlatformServer

@Suite("The reader of Atom entries")
struct AtomEntryReaderTests {
    @Test("It reads properties, whatever the prefixes are")
    func properties() throws {
        let text = """
            <?xml version="1.0" encoding="UTF-8"?>
            <a:entry xmlns:a="http://www.w3.org/2005/Atom"><a:title>d:DeviceType</a:title><a:content type="application/xml">
            <x:properties xmlns:x="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"
                xmlns="http://schemas.microsoft.com/ado/2007/08/dataservices">
            <DeviceType>Lin&#117;x</DeviceType><DeviceModel><![CDATA[<A>]]></DeviceModel><CustomCustom1/></x:properties>
            </a:content></a:entry>
            """
        #expect(
            try AtomEntryReader.properties(in: Data(text.utf8))
                == ["DeviceType": "Linux", "DeviceModel": "<A>", "CustomCustom1": ""])
        #expect(try AtomEntryReader.properties(in: Data(entry().utf8)) == [:])
    }

    static let malformedEntries = [
        "", " ", "text", "<entry", "<entry/>", entry() + "<more/>", entry("<d:DeviceType>"),
        // The right names in the wrong namespace.
        #"<entry><content><properties/></content></entry>"#,
        entry("<m:DeviceType>1</m:DeviceType>"), entry("<DeviceType>1</DeviceType>"),
        entry("<d:ApplicationConnectionId>c2</d:ApplicationConnectionId>"),
        entry("<d:DeviceType>1</d:DeviceType><d:DeviceType>2</d:DeviceType>"),
        entry("<d:DeviceType><d:DeviceModel>1</d:DeviceModel></d:DeviceType>"),
        entry("<d:DeviceType>\(String(repeating: "a", count: 1025))</d:DeviceType>"),
        entry("<d:DeviceType>\u{0}</d:DeviceType>"), entry("<d:DeviceType>&#1;</d:DeviceType>"),
        entry("<d:DeviceType>&undefined;</d:DeviceType>"),
        #"<!DOCTYPE entry [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>"# + entry("<d:DeviceType>&b;</d:DeviceType>"),
        #"<!DOCTYPE entry SYSTEM "file:///etc/passwd">"# + entry(),
        String(repeating: "<a>", count: 20000),
        #"<entry xmlns="http://www.w3.org/2005/Atom">"# + String(repeating: "<a>", count: 17)
            + String(repeating: "</a>", count: 17) + "</entry>",
    ]

    @Test("It refuses a malformed entry", arguments: malformedEntries)
    func malformed(text: String) {
        #expect(throws: AtomEntryReader.Failure.self) { try AtomEntryReader.properties(in: Data(text.utf8)) }
    }

    @Test("It refuses other encodings than UTF-8")
    func encodings() throws {
        let utf16 = try #require(entry().data(using: .utf16))
        #expect(throws: AtomEntryReader.Failure.self) { try AtomEntryReader.properties(in: utf16) }
        #expect(throws: AtomEntryReader.Failure.self) { try AtomEntryReader.properties(in: Data([0xFF, 0xFE, 0x3C])) }
    }

    @Test("It survives mutations")
    func mutations() {
        var generator = SystemRandomNumberGenerator()
        let original = Data(entry("<d:DeviceType>Linux</d:DeviceType>").utf8)
        for _ in 0..<500 {
            var mutated = original
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                mutated[Int.random(in: 0..<mutated.count, using: &generator)] = UInt8.random(
                    in: 0...255, using: &generator)
            }
            _ = try? AtomEntryReader.properties(in: mutated)
        }
    }
}
