import Foundation
import Testing

/// The command line, without servers.
struct CommandLineTests {
    private static let valid =
        "SplitKey.authority = https://localhost:9\nSplitKey.pin = sha256/"
        + Data([UInt8](repeating: 1, count: 32)).base64EncodedString()

    private static let calls: [(String, Int32)] = [
        ("list", 0), ("list --json", 0), ("can-sign alice", 1), ("login", 66), ("sign nothing", 66),
        ("sign --offline --user alice host.properties", 66), ("change-pin", 66), ("forget alice", 77),
        ("forget --yes alice", 66), ("enrol --code-source file:empty", 65), ("enrol", 77),
        ("enrol --code-source nothing", 64),
        ("enrol --code-source file:/nothing", 66), ("sign", 64), ("unknown", 64),
        ("login --user alice --user=bob", 64), ("--help", 0), ("--version", 0),
        ("list --config /nothing", 78),
    ]

    @Test("Exit statuses", arguments: calls)
    func statuses(call: String, status: Int32) async throws {
        let dvs = try DVSProgram(Self.valid)
        try dvs.write(" \n", to: "empty")
        let output = try await dvs.run([DVSProgram.path()] + call.split(separator: " ").map(String.init), in: dvs.path)
        #expect(output.status == status, "\(call): \(output)")
    }

    @Test("A file for the signature that is the document, or cannot be written, is refused before anything is asked")
    func out() async throws {
        let dvs = try DVSProgram(Self.valid)
        let document = try dvs.write("a document", to: "document")
        try FileManager.default.createSymbolicLink(atPath: dvs["symbolic"], withDestinationPath: document)
        try FileManager.default.linkItem(atPath: document, toPath: dvs["hard"])
        let others = [("/nonexist/x", 73), (dvs.path, 73), (dvs["document/x"], 73), ("", 64), ("/dev/null", 66)]
        let same = [document, dvs.path + "/home/../document", dvs["symbolic"], dvs["hard"]].map { ($0, 64) }
        for (path, status) in same + others {
            let output = try await dvs("sign", "--yes", "--out", path, document)
            #expect(output.status == Int32(status), "\(path): \(output)")
            #expect(output.stderr.contains("--out") == (status != 66), "\(output)")
        }
        // No key is there, so these are refused for that.
        #expect(try await dvs("sign", "--yes", "--out", dvs["new"], document).status == 66)
        #expect(try String(contentsOfFile: document, encoding: .utf8) == "a document")
    }

    @Test("Without a terminal and a source of the activation code, the option is named")
    func noCode() async throws {
        let output = try await DVSProgram(Self.valid)("enrol")
        #expect(output.status == 77 && output.stderr.contains("--code-source"), "\(output)")
    }

    private static let mistakes: [(String, String)] = [
        ("", "SplitKey.authority"), ("SplitKey.authority = http://localhost:9", "SplitKey.authority"),
        ("SplitKey.authority = https://localhost:9", "SplitKey.trust-anchors"),
        (valid + "\nSplitKey.relying-party = http://shop.example", "SplitKey.relying-party"),
        (valid + "\nSplitKey.pin-source = 1234", "SplitKey.pin-source"),
        (valid + "\nSplitKey.pairing-helper = ./helper", "SplitKey.pairing-helper"),
        (valid + "\nSplitKey.unknown = 1", "SplitKey.unknown"),
    ]

    @Test("Settings that are missing or wrong", arguments: mistakes)
    func settings(text: String, name: String) async throws {
        let output = try await DVSProgram(text)("can-sign", "alice", "--json")
        #expect(output.status == 78 && output.stdout.isEmpty, "\(output)")
        let error = try output.json(true)
        #expect((error["message"] as? String)?.contains(name) == true && error["kind"] as? String == "Error")
    }

    @Test("Documents have the keys of those of certprov")
    func documents() async throws {
        let dvs = try DVSProgram(Self.valid)
        let list = try await dvs("list", "--json").json()
        #expect(list["apiVersion"] as? String == "certprov/v1" && list["kind"] as? String == "SplitKeyList")
        #expect((list["items"] as? [Any])?.isEmpty == true && (list["warnings"] as? [Any])?.isEmpty == true)
        let answer = try await dvs("can-sign", "--json", "alice").json()
        #expect(answer["canSign"] as? Bool == false)
    }
}
