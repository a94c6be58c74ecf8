import CertificateProviding
import Testing

struct VersionedRecordTests {
    private struct Content: Codable, Equatable {
        var names: [String]
        var count = 1
    }

    private let format = VersionedRecord<Content>(2, of: "names", ifDamaged: "write them again", writtenBy: "namer")

    @Test func theVersionIsBesideTheFields() throws {
        let record = try format.record(of: Content(names: ["a"]))
        #expect(record == SecretBytes(utf8: #"{"count":1,"names":["a"],"version":2}"#))
        #expect(try format.content(of: record) == Content(names: ["a"]))
    }

    @Test(arguments: [#"{"version":3}"#, #"{"version":3,"names":["a"],"count":1}"#])
    func aNewerVersionIsRefusedAndNoDamage(text: String) throws {
        let error = #expect(throws: ProviderError.self) { try format.undamagedContent(of: SecretBytes(utf8: text)) }
        #expect(error?.code == .storeReadFailed && error?.reason == nil)
        #expect(error?.message == "The record of names was written by a newer namer; update namer.")
    }

    @Test(arguments: [
        "", "{", "[]", #"{"names":["a"],"count":1}"#, #"{"version":1,"names":["a"],"count":1}"#, #"{"version":2}"#,
        #"{"version":"2","names":["a"],"count":1}"#, #"{"version":2,"names":[1],"count":1}"#,
    ]) func anotherContentIsDamage(text: String) throws {
        let error = #expect(throws: ProviderError.self) { try format.content(of: SecretBytes(utf8: text)) }
        #expect(error?.code == .storeReadFailed && error?.reason == .damaged)
        #expect(error?.message == "The record of names is damaged; write them again.")
        #expect(try format.undamagedContent(of: SecretBytes(utf8: text)) == nil)
    }
}
