import Foundation
import Glibc
import TestSupport
import Testing

/// The requests that wait, from another terminal.
@Suite(.timeLimit(.minutes(30))) struct RequestsQueueTests {
    private let sandbox: Sandbox
    private var requests: String { sandbox.store + "/requests" }
    // The SHA-256 of `%PDF-1.7 7`.
    private static let digest = "9daeef5cc83c87e4b11c192830584407224861c68e5b082b6bb1d6fe95c737c2"

    init() throws { sandbox = try Sandbox() }

    /// Another process has so many requests that wait, one after the other.
    private func waiter(_ count: Int, text: String = "text", _ more: [String: String] = [:]) throws -> Subprocess {
        var environment = sandbox.environment
        environment.merge(["DIGEST": Self.digest, "CLIENT_NAME": "Shop", "TEXT": text]) { $1 }
        environment.merge(more) { $1 }
        return try Subprocess(
            [BuiltCommand.program("RequestWaiter"), requests, "wait", "7", "\(count)"], environment: environment,
            in: nil,
            seconds: 600)
    }

    private func id(_ line: String?) throws -> String {
        let line = try #require(line)
        try #require(line.hasPrefix("waits "), "\(line)")
        return String(line.dropFirst(6))
    }

    private func certprov(_ arguments: String...) throws -> Output { try sandbox.certprov(["requests"] + arguments) }

    @Test func theLifeOfARequest() throws {
        for nothing in [try certprov("list"), try certprov("log")] {
            #expect(nothing.status == 0 && nothing.stdout.isEmpty && nothing.stderr.isEmpty, "\(nothing)")
        }
        #expect(!FileManager.default.fileExists(atPath: requests))
        let waiter = try waiter(3)
        var id = try id(waiter.readLine())
        try certprov("list").expect(stdout: id, "Shop")
        let item = try certprov("list", "--json").document("WaitingRequestList")["items"][0]
        let shown = try certprov("show", id, "--json").document("WaitingRequest")["request"]
        #expect(item.keys == shown.keys && item["id"].string == id)
        #expect(shown["id"].string == id && shown["state"].string == "waiting" && shown["client"].int == 7)
        #expect(shown["digest"].string == Self.digest && shown["size"].int == 10)
        #expect(shown["signedBefore"].string == "2023-11-14T22:13:20Z")
        let text = try certprov("show", id).stdout
        let document = try #require(shown["documentPath"].string), logo = try #require(shown["logoPath"].string)
        #expect(text.contains(Self.digest) && text.contains(document) && text.contains(logo), "\(text)")
        #expect(try contents(document) == Array("%PDF-1.7 7".utf8) && contents(logo) == [1, 2, 3])

        try certprov("approve", id, "--json").expectFailure("interactionRequired", status: 77)
        let approved = try certprov("approve", id, "--yes")
        #expect(
            approved.status == 0 && approved.stdout == "\(id): approved\n" && approved.stderr.isEmpty, "\(approved)")
        #expect(waiter.readLine() == "approved")
        // It has gone by now, or is about to.
        id = try self.id(waiter.readLine())
        let declined = try certprov("decline", id, "--json").document("RequestAnswer")
        #expect(declined["answer"].string == "declined" && declined["digest"].string == Self.digest)
        #expect(waiter.readLine() == "declined")
        id = try self.id(waiter.readLine())
        waiter.kill()
        _ = waiter.wait(seconds: 60)
        for command in ["show", "approve", "decline"] {
            for gone in [id, "abcdef", "../x", ""] {
                try certprov(command, gone, "--json").expectFailure("notFound", status: 66)
            }
        }
        #expect(try certprov("list").stdout.isEmpty)
    }

    @Test("An answer to a request that is asked about elsewhere says where") func askedElsewhere() throws {
        let waiter = try waiter(1, ["ELSEWHERE": "1"])
        let deadline = ContinuousClock.now + .seconds(60)
        var state: JSON?
        // Its process has no pipe to wait at, and ends at once.
        while state == nil, .now < deadline, !waiter.hasEnded {
            state = try certprov("list", "--json").document("WaitingRequestList")["items"].array.first
        }
        #expect(state == nil || state?["state"].string == "askedElsewhere")
    }

    @Test(
        "No text of a request can do anything at a terminal",
        arguments: [
            "\u{1b}[2J\u{1b}]0;title\u{7}", "a\nb\r\u{8}", "\u{202e}gpj\u{2066}", "\u{9b}31m\u{7f}",
        ])
    func hostileTexts(text: String) throws {
        let waiter = try waiter(1, text: String(repeating: text, count: 2000), ["CLIENT_NAME": text])
        let id = try id(waiter.readLine())
        let line =
            #"{"approver":null,"client":7,"digest":"00","fingerprint":null,"operation":"sign-pdf","outcome":"signed","#
        let journal = requests + "/journal.jsonl"
        let json = String(decoding: try JSONSerialization.data(withJSONObject: [text]), as: UTF8.self).dropFirst()
            .dropLast()
        try sandbox.write(
            line + #""peer":\#(json),"requestID":\#(json),"time":"2026-11-28T11:00:00Z"}"# + "\nrest", to: journal)
        for command in [["list"], ["show", id], ["log"]] {
            for form in [[], ["--json"]] {
                let output = try sandbox.certprov(["requests"] + command + form).expect()
                let isHarmless = output.stdout.unicodeScalars.allSatisfy { scalar in
                    scalar == "\n"
                        || scalar.value >= 0x20 && !(0x7f...0x9f).contains(scalar.value)
                            && !(0x202a...0x202e).contains(scalar.value) && !(0x2066...0x2069).contains(scalar.value)
                }
                #expect(isHarmless, "\(command) \(form)")
            }
        }
        // Escapes that a plain encoder does not write.
        let shown = try JSON(parsing: try certprov("show", id, "--json").stdout)["request"]
        #expect(shown["clientName"].string == text && shown["serviceName"].string?.hasPrefix(text) == true)
        #expect(try certprov("show", id).stdout.utf8.count < 20_000)
        let log = try JSON(parsing: try certprov("log", "--json").stdout)["items"].array
        #expect(log.count == 1 && log.first?["requestID"].string == text)
    }

    @Test("log shows so many lines, and says that others are damaged") func log() throws {
        let writer = try Subprocess(
            [BuiltCommand.program("RequestWaiter"), requests, "journal", "a", "5"], environment: sandbox.environment,
            in: nil, seconds: 600)
        while writer.readLine() != nil {}
        let items = try certprov("log", "--last", "2", "--json").document("RequestLog")["items"].array
        #expect(
            items.count == 2
                && items.allSatisfy { $0["outcome"].string == "signed" && $0["approver"].string == "unattended" })
        let journal = requests + "/journal.jsonl"
        try sandbox.write(try contents(journal) + Array("damage\n".utf8), to: journal)
        let output = try certprov("log")
        #expect(
            output.status == 0 && output.stderr.contains("1 lines of")
                && output.stdout.split(separator: "\n").count == 6)
        for wrong in ["0", "10001", "x"] { #expect(try certprov("log", "--last", wrong).status == 64) }
        chmod(journal, 0o644)
        try certprov("log", "--json").expectFailure("storeReadFailed", status: 74)
    }
}
