import Testing

@testable import PluginProtocol

struct MessageTraceTests {
    private static let secret = "aHVudGVyMg=="

    @Test(
        "A line that is nearly a message shows no secret",
        arguments: [
            "{'id': 1, 'result': {'value': {'secret': '\(secret)'}}}",
            #""{\"id\":1,\"result\":{\"value\":{\"secret\":\"\#(secret)\"}}}""#,
            "{id:1,result:{value:{secret:\(secret)}}}",
            "{\"id\":1,\"result\":{\"value\":{\"Secret\":\"\(secret)\"}}",
            #"{"id":1,"result":{"value":"{\"secret\":\"\#(secret)\"}"}}"#,
        ]) func noSecretIsShown(line: String)
    {
        let text = MessageTrace.text(of: Array(line.utf8))
        #expect(!text.contains(Self.secret), "\(text)")
    }

    @Test func otherGarbageIsShown() {
        let text = MessageTrace.text(of: Array("Traceback (most recent call last):\n".utf8))
        #expect(text == "not a message: 'Traceback (most recent call last):'")
    }
}
