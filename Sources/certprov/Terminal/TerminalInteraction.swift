import CertificateProviding
import Glibc

/// Asks the user on the controlling terminal, independent of stdin and stdout.
struct TerminalInteraction: UserInteraction {
    /// Makes an interaction with the controlling terminal.
    init() {}

    /// Whether the process has a controlling terminal.
    var canAsk: Bool {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else { return false }
        close(terminal)
        return true
    }

    /// Asks for a secret without echo. Blocks the thread.
    ///
    /// - Throws: `interactionRequired` if the process has no controlling terminal, `userCancelled` without an answer.
    func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        try ask(prompt + ": ", hidden: true, orElse: "set another secret source")
    }

    /// Asks a question that is answered with `y` or `n`; `n` is the default. Blocks the thread.
    ///
    /// - Throws: `interactionRequired` if the process has no controlling terminal, `userCancelled` without an answer.
    func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        let answer = try ask(question + " [y/N] ", hidden: false, orElse: "use --yes")
        return ["y", "yes"].contains(answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased())
    }

    /// Asks for a text. Blocks the thread.
    ///
    /// - Throws: As ``requestSecret(_:)``.
    func requestText(_ prompt: String) async throws(CertificateProviderError) -> String {
        let answer = try ask(prompt + ": ", hidden: false, orElse: "set the value in the configuration")
        return answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    /// Asks for the number of a choice until there is one. Blocks the thread.
    ///
    /// - Throws: As ``requestSecret(_:)``.
    func choose(_ question: String, among choices: [String]) async throws(CertificateProviderError) -> Int {
        guard !choices.isEmpty else {
            throw CertificateProviderError(
                .internal, "The question \"\(question.withVisibleControls)\" has no choices.")
        }
        let lines = choices.enumerated().map { "\($0.offset + 1). \($0.element.withVisibleControls)" }
        let prompt = ([question.withVisibleControls] + lines).joined(separator: "\n") + "\nNumber: "
        while true {
            let answer = try ask(
                lines: prompt, hidden: false, asking: question, orElse: "set the value in the configuration")
            let number = Int(answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
            if let number, (1...choices.count).contains(number) { return number - 1 }
        }
    }

    /// Shows progress on stderr if that is a terminal, so that the log of a script has only errors.
    func report(_ progress: String) {
        if Console.areNotesWatched { Console.note(progress) }
    }

    /// Shows a countdown on one line of stderr, if that is a terminal, and removes it at the end.
    func report(_ progress: String, remaining: Duration) {
        guard Console.areNotesWatched else { return }
        let (seconds, fraction) = remaining.components
        Console.rewriteNote(remaining > .zero ? "\(progress) (\(seconds + (fraction > 0 ? 1 : 0)) s)" : "")
    }

    /// Asks on the terminal and reads one line. Blocks the thread, since a command has nothing else to do.
    ///
    /// - Parameter advice: The next step in the error if no terminal is available.
    private func ask(
        _ prompt: String, hidden: Bool, orElse advice: String
    ) throws(CertificateProviderError) -> SecretBytes {
        try ask(lines: prompt.withVisibleControls, hidden: hidden, asking: prompt, orElse: advice)
    }

    private func ask(
        lines: String, hidden: Bool, asking question: String, orElse advice: String
    ) throws(CertificateProviderError) -> SecretBytes {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw CertificateProviderError(
                .interactionRequired,
                "No terminal is available to ask \"\(question.withVisibleControls)\"; \(advice).")
        }
        defer { close(terminal) }
        var text = Array(lines.utf8)
        while true {
            // Stops the process here while it is in the background (SIGTTOU), so that it asks once, after fg.
            var settings = termios()
            if tcgetattr(terminal, &settings) == 0 { tcsetattr(terminal, TCSANOW, &settings) }
            let (line, signals) = try HeldSignals.during { arrival throws(CertificateProviderError) in
                func question() throws(CertificateProviderError) -> SecretBytes? {
                    _ = write(terminal, text, text.count)
                    return try Self.readLine(from: terminal, unlessReadable: arrival)
                }
                return try hidden ? SilentTerminal.whileSilent(terminal, question) : question()
            }
            if let line { return line }
            guard signals.isSubset(of: HeldSignals.stopping) else { throw Self.noAnswer }
            // After fg, or at once: the kernel does not stop an orphaned process group. The cursor may still be on the
            // prompt's line.
            if text.first != 0x0d { text.insert(0x0d, at: 0) }
        }
    }

    /// Reads one line; returns `nil` if `arrival` becomes readable before the line is complete.
    private static func readLine(
        from terminal: Int32, unlessReadable arrival: Int32
    ) throws(CertificateProviderError) -> SecretBytes? {
        var used = 0
        var isInterrupted = false
        let line = try SecretBytes(count: 4096) { buffer throws(CertificateProviderError) in
            while used < buffer.count {
                var waiting = [terminal, arrival].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
                guard poll(&waiting, 2, -1) > 0 else {
                    if errno == EINTR { continue }
                    throw noAnswer
                }
                isInterrupted = waiting[1].revents != 0
                if isInterrupted { return }
                let count = read(terminal, buffer.baseAddress?.advanced(by: used), buffer.count - used)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { throw noAnswer }
                used += count
                if buffer[used - 1] == 0x0a { return }
            }
        }
        guard !isInterrupted else { return nil }
        return line.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }.trimmingLineEnding()
    }

    private static var noAnswer: CertificateProviderError {
        CertificateProviderError(.userCancelled, "The question was not answered.")
    }
}
