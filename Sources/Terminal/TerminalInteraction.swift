public import CertificateProviding
import Glibc

/// Asks the user on the controlling terminal, independent of stdin and stdout.
///
/// One question is asked at a time, on a thread of its own; others wait. A secret is read without echo, and the terminal is as it
/// was before when a signal ends or stops the process. Questions are shown with visible control characters, progress on stderr,
/// if that is a terminal.
public struct TerminalInteraction: UserInteraction {
    private let advice: String

    /// Makes an interaction with the controlling terminal.
    ///
    /// - Parameter advice: The next step in the error of ``confirm(_:)`` where there is no terminal.
    public init(orElse advice: String = "run the command at a terminal") { self.advice = advice }

    /// Whether the process has a controlling terminal.
    public var canAsk: Bool {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else { return false }
        close(terminal)
        return true
    }

    /// Asks for a secret without echo.
    ///
    /// - Throws: `interactionRequired` if the process has no controlling terminal, `userCancelled` without an answer.
    public func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        try await ask(
            Prompt(question: Self.line(prompt), isHidden: true),
            orElse: "run the command at a terminal, or set a source of the secret")
    }

    /// Asks a question that is answered with `y` or `n`; `n` is the default.
    ///
    /// - Throws: `interactionRequired` if the process has no controlling terminal, `userCancelled` without an answer.
    public func confirm(_ question: String) async throws(ProviderError) -> Bool {
        try await answer(to: question) == "y"
    }

    /// Shows lines, and asks a question about them as ``confirm(_:)`` does.
    ///
    /// - Throws: As ``confirm(_:)``.
    public func confirm(
        _ question: String, after lines: [String]
    ) async throws(ProviderError) -> Bool {
        try await answer(to: question, after: { _ in lines }) == "y"
    }

    /// Shows a text, and asks a question about it that is answered with `y`, `n`, or the letter of something else to do; `n` is the default.
    ///
    /// - Parameters:
    ///   - text: `nil` if it is on the screen already.
    ///   - keys: A letter, and what it does, such as "opens the document".
    /// - Returns: `y`, `n`, or the letter.
    /// - Throws: As ``confirm(_:)``.
    public func answer(
        to question: String, about text: ConsentText?, keys: KeyValuePairs<Character, String> = [:]
    ) async throws(ProviderError) -> Character {
        try await answer(to: question, after: { text?.lines(columns: $0) ?? [] }, keys: keys)
    }

    private func answer(
        to question: String, after lines: @escaping @Sendable (_ columns: Int) -> [String] = { _ in [] },
        keys: KeyValuePairs<Character, String> = [:]
    ) async throws(ProviderError) -> Character {
        let choices = (["y/N"] + keys.map { "\($0) \($1)" }).joined(separator: ", ")
        let answer = try await ask(
            Prompt(lines: lines, question: "\(question) [\(choices)] ", about: question), orElse: advice)
        let word = answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased()
        if ["y", "yes"].contains(word) { return "y" }
        return keys.map { $0.key }.first { String($0) == word } ?? "n"
    }

    /// Asks for a text.
    ///
    /// - Throws: As ``requestSecret(_:)``.
    public func requestText(_ prompt: String) async throws(ProviderError) -> String {
        let answer = try await ask(
            Prompt(question: Self.line(prompt)), orElse: "set the value in the configuration")
        return answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns a prompt that ends in one colon, whatever a plugin's ends in.
    private static func line(_ prompt: String) -> String {
        String(prompt.reversed().drop { $0 == ":" || $0.isWhitespace }.reversed()) + ": "
    }

    /// Asks for the number of a choice until there is one.
    ///
    /// - Throws: As ``requestSecret(_:)``.
    public func choose(_ question: String, among choices: [String]) async throws(ProviderError) -> Int {
        guard !choices.isEmpty else {
            throw ProviderError(
                .internal, "The question \"\(question.withVisibleControls)\" has no choices.")
        }
        let lines = [question] + choices.enumerated().map { "\($0.offset + 1). \($0.element)" }
        while true {
            let answer = try await ask(
                Prompt(lines: { _ in lines }, question: "Number: ", about: question),
                orElse: "set the value in the configuration")
            let number = Int(answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
            if let number, (1...choices.count).contains(number) { return number - 1 }
        }
    }

    /// Shows progress on stderr if that is a terminal, so that the log of a script has only errors.
    public func report(_ progress: String) {
        if Console.isStandardErrorTerminal { Console.note(progress) }
    }

    /// Shows a countdown on one line of stderr, if that is a terminal, and removes it at the end.
    public func report(_ progress: String, remaining: Duration) {
        guard Console.isStandardErrorTerminal else { return }
        let (seconds, fraction) = remaining.components
        Console.rewriteNote(remaining > .zero ? "\(progress) (\(seconds + (fraction > 0 ? 1 : 0)) s)" : "")
    }

    /// The text on the screen when an answer is typed.
    private struct Prompt: Sendable {
        /// Stand above the last line.
        var lines: @Sendable (_ columns: Int) -> [String] = { _ in [] }
        /// The last line.
        var question: String
        var isHidden = false
        /// The question in an error; `nil` for the last line.
        var about: String?
    }

    /// Asks on the terminal and reads one line.
    ///
    /// - Parameter advice: The next step in the error if no terminal is available.
    private func ask(_ prompt: Prompt, orElse advice: String) async throws(ProviderError) -> SecretBytes {
        try await Questions.ask { cancellation throws(ProviderError) in
            try Self.ask(prompt, orElse: advice, cancellation)
        }
    }

    /// Blocks for the answer.
    private static func ask(
        _ prompt: Prompt, orElse advice: String, _ cancellation: Questions.Cancellation
    ) throws(ProviderError) -> SecretBytes {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw ProviderError(
                .interactionRequired,
                "No terminal is available to ask \"\((prompt.about ?? prompt.question).withVisibleControls)\"; \(advice)."
            )
        }
        defer { close(terminal) }
        var text = Array(prompt.lines(columns(of: terminal)).map { $0.withVisibleControls + "\n" }.joined().utf8)
        let question = Array(prompt.question.withVisibleControls.utf8)
        while true {
            // Stops the process here while it is in the background (SIGTTOU), so that it asks once, after fg.
            var settings = termios()
            if tcgetattr(terminal, &settings) == 0 { tcsetattr(terminal, TCSANOW, &settings) }
            let (line, signals) = try HeldSignals.during { arrival throws(ProviderError) in
                func answer() throws(ProviderError) -> SecretBytes? {
                    _ = write(terminal, text, text.count)
                    // Characters typed until now were for another program or question. Not after the last line: a program at the other
                    // end of the terminal may answer at once.
                    tcflush(terminal, TCIFLUSH)
                    _ = write(terminal, question, question.count)
                    return try readLine(from: terminal, unlessReadable: arrival, or: cancellation)
                }
                return try prompt.isHidden ? SilentTerminal.whileSilent(terminal, answer) : answer()
            }
            if let line { return line }
            guard signals.isSubset(of: HeldSignals.stopping) else { throw Questions.noAnswer }
            // After fg, or at once: the kernel does not stop an orphaned process group. The cursor may still be on the
            // prompt's line.
            if text.first != 0x0d { text.insert(0x0d, at: 0) }
        }
    }

    /// The width of the screen.
    private static func columns(of terminal: Int32) -> Int {
        var size = winsize()
        guard ioctl(terminal, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }

    /// Reads one line; returns `nil` if `arrival` becomes readable before the line is complete.
    private static func readLine(
        from terminal: Int32, unlessReadable arrival: Int32, or cancellation: Questions.Cancellation
    ) throws(ProviderError) -> SecretBytes? {
        var used = 0
        var isInterrupted = false
        let line = try SecretBytes(count: 4096) { buffer throws(ProviderError) in
            while used < buffer.count {
                var waiting = [terminal, arrival, cancellation.descriptor].map {
                    pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
                }
                guard poll(&waiting, 3, -1) > 0 else {
                    if errno == EINTR { continue }
                    throw Questions.noAnswer
                }
                isInterrupted = waiting[1].revents != 0
                if isInterrupted { return }
                guard waiting[2].revents == 0 else {
                    // The cursor is on the question's line.
                    _ = write(terminal, "\n", 1)
                    throw Questions.noAnswer
                }
                let count = read(terminal, buffer.baseAddress?.advanced(by: used), buffer.count - used)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { throw Questions.noAnswer }
                used += count
                if buffer[used - 1] == 0x0a { return }
            }
        }
        guard !isInterrupted else { return nil }
        return line.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }.trimmingLineEnding()
    }
}
