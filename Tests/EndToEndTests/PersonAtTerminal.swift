import Foundation
import Glibc
import TestSupport
import Testing

/// The actions of a test at a terminal.
struct PersonAtTerminal {
    let keyboard: Int32
    /// Waits until a text is on the screen so many times.
    let sees: (_ text: String, _ times: Int) -> Void
    /// All that has been on it.
    let screen: () -> String

    func type(_ text: String) throws {
        let bytes = Array(text.utf8)
        try #require(write(keyboard, bytes, bytes.count) == bytes.count)
    }
}

extension Sandbox {
    /// Runs a command at a terminal and lets `body` react once `question` is on it.
    /// - Returns: The status, and all that was on the terminal; `nil`, said aloud, where there is no `script`.
    func atTerminal(
        _ command: String, asked question: String, with variables: [String: String] = [:],
        body: (PersonAtTerminal) throws -> Void
    ) throws -> (status: Int32?, screen: String)? {
        guard try shell("command -v script").status == 0 else {
            print("EndToEndTests: there is no 'script', so questions at a terminal are NOT TESTED.")
            return nil
        }
        let (keyboard, screen) = (path + "/keyboard", path + "/screen")
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
        let process = try start(
            [
                "/bin/sh", "-c", #"exec script -qef -E always -c "$1" /dev/null <"$2" >"$3""#, "sh", command, keyboard,
                screen,
            ], with: variables)
        var seen: [UInt8] = []
        func read(until isEnough: () -> Bool) {
            let deadline = ContinuousClock.now + .seconds(600)
            while !isEnough() && ContinuousClock.now < deadline {
                var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
                guard poll(&waiting, 1, 50) == 1 else { continue }
                var buffer = [UInt8](repeating: 0, count: 4096)
                let count = Glibc.read(output, &buffer, buffer.count)
                seen += buffer.prefix(max(0, count))
            }
        }
        func isRead() -> Bool {
            var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            return poll(&waiting, 1, 0) != 1
        }
        func text() -> String { String(decoding: seen, as: UTF8.self) }
        let person = PersonAtTerminal(
            keyboard: input,
            sees: { part, times in
                func isThere() -> Bool { text().components(separatedBy: part).count > times }
                read { isThere() || process.hasEnded }
                // The last output of a process that has ended.
                read { isThere() || isRead() }
                #expect(isThere(), "'\(part)' is not there \(times) times: \(text())")
            }, screen: text)
        person.sees(question, 1)
        try body(person)
        read { process.hasEnded }
        let result = process.wait()
        read(until: isRead)
        return (result.status, String(decoding: seen, as: UTF8.self))
    }
}
