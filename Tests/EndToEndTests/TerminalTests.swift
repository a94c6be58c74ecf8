import Foundation
import Glibc
import Testing

/// Questions to a person at a terminal, which `script` plays.
@Suite struct TerminalTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Runs a command at a terminal and types `answer` once `question` is on it.
    /// - Returns: The status, and all that was on the terminal; `nil`, said aloud, where there is no `script`.
    private func atTerminal(
        _ command: String, answering question: String, with answer: String
    ) throws -> (status: Int32?, screen: String)? {
        guard try sandbox.shell("command -v script").status == 0 else {
            print("TerminalTests: there is no 'script', so questions at a terminal are NOT TESTED.")
            return nil
        }
        let (keyboard, screen) = (sandbox.path + "/keyboard", sandbox.path + "/screen")
        try #require(mkfifo(keyboard, 0o600) == 0 && mkfifo(screen, 0o600) == 0)
        defer {
            unlink(keyboard)
            unlink(screen)
        }
        // For reading and writing, so that neither waits for its other end.
        let (input, output) = (open(keyboard, O_RDWR | O_CLOEXEC), open(screen, O_RDWR | O_CLOEXEC))
        defer {
            close(input)
            close(output)
        }
        // The terminal itself echoes, unless it is told not to.
        let process = try sandbox.start([
            "/bin/sh", "-c", #"exec script -qef -E always -c "$1" /dev/null <"$2" >"$3""#, "sh", command, keyboard,
            screen,
        ])
        var seen: [UInt8] = []
        func read(until isEnough: () -> Bool) {
            let deadline = ContinuousClock.now + .seconds(30)
            while !isEnough() && ContinuousClock.now < deadline {
                var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
                guard poll(&waiting, 1, 50) == 1 else { continue }
                var buffer = [UInt8](repeating: 0, count: 4096)
                let count = Glibc.read(output, &buffer, buffer.count)
                seen += buffer.prefix(max(0, count))
            }
        }
        read { String(decoding: seen, as: UTF8.self).contains(question) }
        let line = Array((answer + "\n").utf8)
        try #require(write(input, line, line.count) == line.count)
        read { process.hasEnded }
        let result = process.wait()
        read {
            var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            return poll(&waiting, 1, 0) != 1
        }
        return (result.status, String(decoding: seen, as: UTF8.self))
    }

    private func command(_ words: String) -> String {
        "\"$CERTPROV\" \(words) --provider pkcs12 --set path=\(Fixtures.path("ec.p12")) --set password-source=prompt"
    }

    @Test func asksForThePasswordWithoutShowingIt() throws {
        guard
            let (status, screen) = try atTerminal(
                command("fetch"), answering: "Password for \(Fixtures.path("ec.p12")): ", with: Fixtures.password)
        else { return }
        #expect(status == 0, "\(screen)")
        #expect(screen.contains("Password for") && screen.contains("CN=client"), "\(screen)")
        #expect(!screen.contains("Tr0ub4dor"), "\(screen)")
        #expect(try sandbox.entry().isEmpty == false)
    }

    @Test func aWrongAnswerIsAWrongPasswordAndNotAskedForAgain() throws {
        guard
            let (status, screen) = try atTerminal(
                command("fetch -v -v"), answering: "Password for", with: "not-the-pw-7351")
        else { return }
        #expect(status == 77 && screen.contains("[wrongPassword]"), "\(screen)")
        #expect(screen.components(separatedBy: "Password for").count == 2, "\(screen)")
        #expect(!screen.contains("7351"), "\(screen)")
    }

    @Test(arguments: [("y", true), ("yes", true), ("n", false), ("", false), ("yesss", false)])
    func asksBeforeItDeletes(answer: String, isDeleted: Bool) throws {
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        guard let (status, screen) = try atTerminal(command("delete"), answering: "[y/N]", with: answer) else { return }
        #expect(status == (isDeleted ? 0 : 77), "\(screen)")
        #expect(isDeleted || screen.contains("[userCancelled]"), "\(screen)")
        // Here, what is typed is seen: the terminal does echo.
        #expect(answer.isEmpty || screen.contains("[y/N] \(answer)"), "\(screen)")
        let left = try FileManager.default.contentsOfDirectory(atPath: sandbox.store + "/identities/pkcs12")
        #expect(left.isEmpty == isDeleted)
    }
}
