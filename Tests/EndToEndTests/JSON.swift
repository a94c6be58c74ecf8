import Foundation
import Glibc
import TestSupport
import Testing

/// A parsed JSON document, walked by key and index.
struct JSON: @unchecked Sendable, CustomStringConvertible {
    // Immutable Foundation values only.
    let value: Any?

    init(_ value: Any?) { self.value = value }

    init(parsing text: String) throws { value = try JSONSerialization.jsonObject(with: Data(text.utf8)) }

    subscript(key: String) -> JSON { JSON((value as? [String: Any])?[key]) }
    subscript(index: Int) -> JSON { JSON((value as? [Any]).flatMap { $0.indices.contains(index) ? $0[index] : nil }) }

    var string: String? { value as? String }
    var int: Int? { value as? Int }
    var bool: Bool? { value as? Bool }
    var isNull: Bool { value is NSNull }
    var keys: [String] { (value as? [String: Any])?.keys.sorted() ?? [] }
    var array: [JSON] { (value as? [Any])?.map(JSON.init) ?? [] }
    var description: String { "\(value ?? "nothing")" }
}

extension Output {
    /// The one JSON document on stdout, which must be one line with sorted keys.
    func document(_ kind: String, sourceLocation: SourceLocation = #_sourceLocation) throws -> JSON {
        try Self.document(stdout, kind, sourceLocation)
    }

    /// The JSON objects on stderr, one per line.
    func errorDocuments(sourceLocation: SourceLocation = #_sourceLocation) throws -> [JSON] {
        try stderr.split(separator: "\n").map { try Self.document($0 + "\n", "Error", sourceLocation) }
    }

    /// Expects this exit status, and these texts on the streams; `""` is for a stream without output.
    @discardableResult
    func expect(
        _ status: Int32? = 0, stdout: String..., stderr: String..., about subject: Any = "",
        sourceLocation: SourceLocation = #_sourceLocation
    ) -> Output {
        #expect(self.status == status, "\(subject) \(self)", sourceLocation: sourceLocation)
        for (stream, texts) in [(self.stdout, stdout), (self.stderr, stderr)] {
            let missing = texts.filter { $0.isEmpty ? !stream.isEmpty : !stream.contains($0) }
            #expect(missing.isEmpty, "\(subject) \(self)", sourceLocation: sourceLocation)
        }
        return self
    }

    /// Requires this exit status.
    @discardableResult
    func require(_ status: Int32 = 0, sourceLocation: SourceLocation = #_sourceLocation) throws -> Output {
        try #require(self.status == status, "\(self)", sourceLocation: sourceLocation)
        return self
    }

    /// Expects a failure that `--json` describes in one object on stderr, with nothing on stdout.
    @discardableResult
    func expectFailure(
        _ code: String, status: Int32, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        #expect(self.status == status, "\(self)", sourceLocation: sourceLocation)
        #expect(stdoutBytes.isEmpty, "\(self)", sourceLocation: sourceLocation)
        let errors = try errorDocuments(sourceLocation: sourceLocation)
        #expect(errors.map { $0["code"].string } == [code], "\(self)", sourceLocation: sourceLocation)
        let message = try #require(errors.first?["message"].string, sourceLocation: sourceLocation)
        #expect(message.count > 10, sourceLocation: sourceLocation)
        return message
    }

    private static func document(
        _ text: some StringProtocol, _ kind: String, _ sourceLocation: SourceLocation
    ) throws -> JSON {
        let text = String(text)
        let json = try JSON(parsing: text)
        #expect(json["apiVersion"].string == "certprov/v1", sourceLocation: sourceLocation)
        #expect(json["kind"].string == kind, "\(text)", sourceLocation: sourceLocation)
        let page = try Page("Documentation/Monitoring.md").text
        #expect(page.contains("\n### \(kind)\n") || page.contains("`\(kind)`"), sourceLocation: sourceLocation)
        let value = try #require(json.value, sourceLocation: sourceLocation)
        let sorted = try JSONSerialization.data(withJSONObject: value, options: [.sortedKeys, .withoutEscapingSlashes])
        #expect(text == String(decoding: sorted, as: UTF8.self) + "\n", sourceLocation: sourceLocation)
        return json
    }
}

extension Subprocess {
    /// Waits for what a process does that goes on.
    func waitUntil(_ isSo: () throws -> Bool) throws {
        while try !isSo() {
            try #require(!hasEnded, "\(wait())")
            usleep(1000)
        }
    }
}
