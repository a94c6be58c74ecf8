import CertificateProviding
import Contracts
import Foundation
import Glibc
import Testing

/// The program that makes PDFs of templates.
@Suite struct ProgramRendererTests {
    private let folder: CallFolder

    init() throws { folder = try CallFolder() }

    @Test("it gets the file on stdin, no arguments, and its stdout is the PDF")
    func rendered() async throws {
        let program = try await folder.program("render", "printf '%s:' $#\ncat\necho noise >&2\n")
        let json = Array(repeating: UInt8(ascii: "x"), count: 3 << 20)
        let pdf = try await ProgramRenderer(program, within: .seconds(600)).pdf(of: json)
        #expect(pdf == Array("0:".utf8) + json)
    }

    @Test("one that does not read its input may still answer")
    func unread() async throws {
        let program = try await folder.program("render", "exec <&-\necho PDF\n")
        #expect(
            try await ProgramRenderer(program, within: .seconds(600)).pdf(of: Array(repeating: 0, count: 3 << 20))
                == Array("PDF\n".utf8))
    }

    @Test(
        "what goes wrong is an error that names the program",
        arguments: [
            ("cat >/dev/null; exit 4", ProviderError.Code.unavailable, "status 4"),
            ("cat >/dev/null; kill -9 $$", .unavailable, "signal 9"), ("cat >/dev/null", .malformedData, "nothing"),
            ("cat >/dev/null; exec cat /dev/zero", .malformedData, "more than"),
        ])
    func failures(script: String, code: ProviderError.Code, part: String) async throws {
        let program = try await folder.program("render", script + "\n")
        let error = try await #require(throws: ProviderError.self) {
            try await ProgramRenderer(program, within: .seconds(600)).pdf(of: [1])
        }
        #expect(error.code == code && error.message.contains(part), "\(error)")
        #expect(error.message.hasPrefix("options: ") && error.message.contains(program), "\(error)")
    }

    @Test("one that is not there cannot be run")
    func missing() async throws {
        let error = try await #require(throws: ProviderError.self) {
            try await ProgramRenderer("/nowhere/render").pdf(of: [1])
        }
        #expect(error.code == .unavailable)
    }

    @Test("one that does not end is ended, with what it has started")
    func overdue() async throws {
        let program = try await folder.program(
            "render",
            "trap '' TERM\n(trap '' TERM; while :; do touch '\(folder["alive"])'; sleep 0.05; done) &\ncat >/dev/null\nwait\n"
        )
        let error = try await #require(throws: ProviderError.self) {
            try await ProgramRenderer(program, within: .milliseconds(500)).pdf(of: [1])
        }
        #expect(error.code == .timedOut, "\(error)")
        try await until("its child is gone") {
            try? FileManager.default.removeItem(atPath: folder["alive"])
            usleep(200_000)
            return !folder.exists("alive")
        }
    }
}
