import CertificateProviding
import Foundation
import Testing

@testable import PluginProtocol

struct MessageTests {
    private static let number = "A number in a message is too large, negative or not whole, or a text is not UTF-8."

    @Test(
        "A line that is not a message says why",
        arguments: [
            (#"{"id":1,"error":"not found"}"#, "The field 'error' of a message has another type."),
            (#"{"id":1,"error":{"message":"x."}}"#, "The field 'error.code' of a message is missing."),
            (#"{"id":"3","result":{}}"#, "The field 'id' of a message has another type."),
            (#"{"id":-1,"result":{}}"#, number), (#"{"id":1.5,"result":{}}"#, number),
            (#"{"id":1,"error":{"code":"x","message":"x","nativeCode":1e30}}"#, number),
            (#"{"id":1}}"#, "A line is not a message: expected a JSON object with 'id' or 'notice'."),
            (#"[1]"#, "A line is not a message: expected a JSON object with 'id' or 'notice'."),
        ]) func aMalformedLineSaysWhy(line: String, message: String)
    {
        let error = #expect(throws: ProviderError.self) { try Message(line: Array(line.utf8)) }
        #expect(error?.code == .protocolError && error?.message == message)
    }

    @Test("The other side learns that content is damaged, and that another process is at work")
    func theReasonOfAnErrorCrosses() throws {
        for reason in [ProviderError.Reason.damaged, .busy] {
            let error = ProviderError(.storeReadFailed, "It is not read.", reason: reason)
            let line = try JSONEncoder().encode(WireError(error))
            let read = ProviderError(try JSONDecoder().decode(WireError.self, from: line), of: "The plugin")
            #expect(read.code == .storeReadFailed && read.reason == reason)
        }
        let unknown = try JSONDecoder().decode(
            WireError.self, from: Data(#"{"code":"pending","message":"Wait.","reason":"else"}"#.utf8))
        #expect(ProviderError(unknown, of: "The plugin").reason == nil)
    }

    @Test func aKeyThatIsNotOneSaysWhy() throws {
        let line = #"{"id":1,"request":"key.find","params":{"key":{"uri":"keys:1","publicKey":"AAEC"}}}"#
        let error = #expect(throws: ProviderError.self) {
            _ = try Message(line: Array(line.utf8)).params(as: KeyRequest.self)
        }
        #expect(error?.code == .protocolError && error?.message.contains("public key") == true, "\(error as Any)")
    }

    @Test(
        "A field that is not valid is named, where the decoder tells",
        arguments: [
            (#"{"notice":"progress","params":{"for":-1,"text":"x"}}"#, number),
            (#"{"notice":"progress","params":{"for":1e30,"text":"x"}}"#, number),
            (#"{"notice":"progress","params":{"for":1.5,"text":"x"}}"#, number),
            ("{\"notice\":\"progress\",\"params\":{\"for\":1,\"text\":\"?\"}}", number),
            (
                #"{"notice":"progress","params":{"for":"1","text":"x"}}"#,
                "The field 'params.for' of a message has another type."
            ),
            (#"{"notice":"progress","params":{"for":1}}"#, "The field 'params.text' of a message is missing."),
        ]) func aMalformedFieldIsNamed(line: String, message: String) throws
    {
        // The question mark stands for bytes that are not UTF-8.
        let bytes = line.utf8.map { $0 == 0x3f ? 0xff : $0 }
        let error = #expect(throws: ProviderError.self) {
            _ = try Message(line: bytes).params(as: Progress.self)
        }
        #expect(error?.code == .protocolError && error?.message == message)
    }
}
